"""What an API server does with a structural schema, short of CEL: defaults, then validation."""

import re
from collections.abc import Iterator
from typing import Any

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}


def with_defaults(schema: dict[str, Any], value: Any) -> Any:
    """The value with every absent field that has a default filled in."""
    if isinstance(value, list):
        return [with_defaults(schema["items"], item) for item in value]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    filled = dict(value)
    for key, inner in schema["properties"].items():
        if key not in filled and "default" in inner:
            filled[key] = inner["default"]
        if key in filled:
            filled[key] = with_defaults(inner, filled[key])
    return filled


def violations(schema: dict[str, Any], value: Any, path: str = "") -> Iterator[str]:
    """Paths of what breaks the schema; unknown fields too, as strict field validation has it."""
    expected = _TYPES[schema["type"]]
    is_flag = isinstance(value, bool) and schema["type"] != "boolean"
    if is_flag or not isinstance(value, expected):
        yield path
        return
    if isinstance(value, dict):
        yield from _mapping_violations(schema, value, path)
    elif isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema["maxItems"]:
            yield path
        for index, item in enumerate(value):
            yield from violations(schema["items"], item, f"{path}[{index}]")
    elif not _scalar_fits(schema, value):
        yield path


def _mapping_violations(schema: dict[str, Any], value: dict[str, Any], path: str) -> Iterator[str]:
    for key in schema.get("required", []):
        if key not in value:
            yield f"{path}.{key}".removeprefix(".")
    for key, item in value.items():
        inner = f"{path}.{key}".removeprefix(".")
        known = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
        if known is None:
            yield inner
        else:
            yield from violations(known, item, inner)


def _scalar_fits(schema: dict[str, Any], value: Any) -> bool:
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, str):
        return (
            schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
            and re.search(schema.get("pattern", ""), value) is not None
        )
    low, high = schema.get("minimum", value), schema.get("maximum", value)
    above = value > low if schema.get("exclusiveMinimum") else value >= low
    below = value < high if schema.get("exclusiveMaximum") else value <= high
    return above and below
