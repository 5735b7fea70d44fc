"""docs/reference/fields.md: the fields of every kind. Pure.

Made from the schemas that an API server judges and fills in, so types, bounds, defaults and rules
are those of a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from spes_api.definitions import DEFINITIONS, Definition
from spes_api.schema_base import MAX_COUNT

_HEAD = """# Fields of every kind

Written by `hack/docs/generate.py` from the definitions in [`crds/`](../../crds). People write the
`spec` of SpesJob and MemberCluster; the rest is how hub and members speak of them: a MemberReport
is its member's, a TrainerAssignment the hub's, but for its status.

[`examples/moe-tiny.yaml`](../../examples/moe-tiny.yaml) shows every field of a job in its place.
`spes explain FILE` judges a file as a cluster does, with the line of each mistake;
`kubectl explain spesjob.spec.sync` shows what this page does.
"""
_RULES = "x-kubernetes-validations"
Schema = dict[str, Any]


def fields_page() -> str:
    """The page."""
    return "\n".join([_HEAD, *(text for one in DEFINITIONS for text in _kind(one))])


def _kind(definition: Definition) -> Iterator[str]:
    name = definition.model.__name__
    version = definition.manifest()["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    short = f"`{definition.plural}`, `{definition.short_name}`; {definition.scope.lower()}"
    yield f"## {name}\n\n{schema['description']} ({short})\n"
    for part in ("spec", "status"):
        if part in schema["properties"]:
            yield from _section(name, part, schema["properties"][part])


def _section(kind: str, path: str, schema: Schema) -> Iterator[str]:
    """The fields of one object; objects right below `spec` get sections of their own."""
    fields, is_spec = schema["properties"], path == "spec"
    yield f"### {kind} {path}\n\n{schema.get('description', '')}\n"
    rows = _Rows(is_deep=not is_spec)
    lines = ["| Field | Type | Default | What it is |", "|---|---|---|---|", *rows.of(schema, "")]
    yield "\n".join(lines) + "\n"
    if rules := list(_rules(schema, "", is_deep=not is_spec)):
        told = "\n".join(f"- {rule}" for rule in rules)
        yield f"An API server also checks:\n\n{told}\n"
    if is_spec:
        for name, field in fields.items():
            if "properties" in field:
                yield from _section(kind, f"{path}.{name}", field)


class _Rows:
    """The rows of one table; an object that comes again is not written out again."""

    def __init__(self, *, is_deep: bool) -> None:
        """`is_deep`: with the fields of objects inside."""
        self._is_deep = is_deep
        self._paths: dict[str, str] = {}

    def of(self, schema: Schema, prefix: str) -> Iterator[str]:
        """A row for each field."""
        for name, field in schema["properties"].items():
            path = prefix + name
            inner, suffix = (field["items"], "[]") if "items" in field else (field, "")
            before = self._known(inner, path + suffix)
            text = _cell(field.get("description", "")) + (f" As `{before}`." if before else "")
            default = "needed" if name in schema.get("required", ()) else _default(field)
            yield f"| `{path}` | {_cell(_type(field))} | {default} | {text} |"
            if self._is_deep and "properties" in inner and not before:
                yield from self.of(inner, f"{path}{suffix}.")

    def _known(self, schema: Schema, path: str) -> str:
        """Where the same object came before; empty: nowhere."""
        if "properties" not in schema:
            return ""
        first = self._paths.setdefault(json.dumps(schema["properties"], sort_keys=True), path)
        return "" if first == path else first


def _rules(schema: Schema, path: str, *, is_deep: bool) -> Iterator[str]:
    """What an object must fulfil; `is_deep`: and all inside it."""
    for rule in schema.get(_RULES, ()):
        yield f"`{path}`: {_cell(rule['message'])}" if path else _cell(rule["message"])
    for name, field in schema.get("properties", {}).items() if is_deep else ():
        inner = f"{path}.{name}" if path else name
        yield from _rules(field.get("items", field), inner, is_deep=True)


def _default(field: Schema) -> str:
    default = field.get("default")
    hidden = default in (None, "", []) or isinstance(default, dict)
    return "" if hidden else f"`{json.dumps(default)}`"


def _type(field: Schema) -> str:
    if "enum" in field:
        return " or ".join(f"`{one}`" for one in field["enum"])
    if "items" in field:
        return f"list of {_type(field['items'])}"
    if "additionalProperties" in field:
        return "map of strings"
    return f"{field['type']}{_bounds(field)}"


def _bounds(field: Schema) -> str:
    least, most = field.get("minimum"), field.get("maximum")
    if most == MAX_COUNT:  # no bound that anybody meets
        most = None
    low = "above" if field.get("exclusiveMinimum") else "at least"
    high = "below" if field.get("exclusiveMaximum") else "at most"
    told = [
        f"{word} {value:,}" for word, value in ((low, least), (high, most)) if value is not None
    ]
    return f", {', '.join(told)}" if told else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
