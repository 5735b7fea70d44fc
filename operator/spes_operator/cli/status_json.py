"""`spes status -o json`: the view as it is; docs/reference/status.md lists its fields. Pure."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import datetime

from pydantic.alias_generators import to_camel

from spes_operator.clock import to_text


def as_document(value: object) -> object:
    """The value for JSON: fields in camelCase, times as Kubernetes has them, unknown is null."""
    if is_dataclass(value):
        return {to_camel(one.name): as_document(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, datetime):
        return to_text(value)
    if isinstance(value, tuple):
        return [as_document(one) for one in value]
    return value
