"""The tables of the chart's README: its values, and the settings of the programs. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from settings_schema import Schema, hub_settings, member_settings
from values_file import Value

_BEGIN, _END = "<!-- generated: {} -->", "<!-- end: {} -->"


def with_tables(readme: str, values: Sequence[Value]) -> str:
    """The README with its tables as they must be now.

    Raises:
        ValueError: It lacks a place for one.
    """
    tables = {
        "values": [(value.name, _shown(value.default), value.text) for value in values],
        "hub.config": list(_fields(*hub_settings(), prefix="")),
        "member.config": list(_fields(*member_settings(), prefix="")),
    }
    for name, rows in tables.items():
        begin, end = _BEGIN.format(name), _END.format(name)
        before, found, rest = readme.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(
                f"helm/spes/README.md has no place for {name} (expected {begin} ... {end})"
            )
        readme = f"{before}{begin}\n{_table(rows)}{end}{after}"
    return readme


def _table(rows: Sequence[tuple[str, str, str]]) -> str:
    lines = ["| Value | Default | What it is |", "|---|---|---|"]
    lines += [f"| `{name}` | {default} | {_escaped(text)} |" for name, default, text in rows]
    return "\n".join(lines) + "\n"


def _fields(schema: Schema, parts: Schema, *, prefix: str) -> Iterator[tuple[str, str, str]]:
    """Each field of a model, and under it those of the models it holds."""
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        default = "needed" if name in required else _shown(field.get("default"))
        inner, suffix = _model_of(field, parts)
        text = field.get("description", "")
        yield prefix + name, "" if inner and not suffix and default != "needed" else default, text
        if inner:
            yield from _fields(inner, parts, prefix=f"{prefix}{name}{suffix}.")


def _model_of(field: Schema, parts: Schema) -> tuple[Schema | None, str]:
    """The model that a field holds, if any; "[]" if it holds a list of them."""
    if field.get("type") == "array":
        return _model_of(field["items"], parts)[0], "[]"
    for one in (field, *field.get("anyOf", ())):
        if "$ref" in one:
            return parts[one["$ref"].rpartition("/")[2]], ""
    return None, ""


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "&#124;")


def _shown(default: Any) -> str:
    return "" if default in (None, "", [], {}) else f"`{json.dumps(default)}`"
