"""Turns a pydantic model into the structural schema that a CustomResourceDefinition takes.

An API server refuses what pydantic writes as it is: references, `const`, a union with null, numeric
`exclusiveMinimum`, `additionalProperties: false`. Pure; called by `definitions`.

    reference            written out in place
    X or null            X; optional means absent, never null
    const c              enum [c]
    exclusiveMinimum n   minimum n, exclusiveMinimum true
    default of an object what differs from the defaults of its own fields, which apply by themselves
    default null         none
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

# Taken over unchanged.
_PLAIN = (
    "type",
    "pattern",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "minimum",
    "maximum",
    "required",
    "enum",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
)
_BOUNDS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))


def structural_schema(model: type[BaseModel], *, defaults: bool) -> Schema:
    """The schema of a model.

    Args:
        model: What an object of the schema is.
        defaults: Whether an API server fills in absent fields: yes for what a person asks for, no
            for what a controller reports.
    """
    raw = model.model_json_schema(by_alias=True)
    return _convert(raw, raw.get("$defs", {}), defaults=defaults)


def _convert(node: Mapping[str, Any], models: Mapping[str, Any], *, defaults: bool) -> Schema:
    node = _resolved(node, models)
    schema: Schema = {}
    if "description" in node:
        schema["description"] = " ".join(node["description"].split())
    # Copies: YAML would write a value that is used twice as an alias.
    schema |= {key: deepcopy(node[key]) for key in _PLAIN if key in node}
    if "const" in node:
        schema["enum"] = [node["const"]]
    if "enum" in schema:
        schema["maxLength"] = max(map(len, schema["enum"]))
    for exclusive, inclusive in _BOUNDS:
        if exclusive in node:
            schema |= {inclusive: node[exclusive], exclusive: True}
    if defaults and node.get("default") is not None:
        schema["default"] = _default(node)
    if "items" in node:
        schema["items"] = _convert(node["items"], models, defaults=defaults)
    if "properties" in node:
        schema["properties"] = {
            key: _convert(value, models, defaults=defaults)
            for key, value in node["properties"].items()
        }
    elif isinstance(node.get("additionalProperties"), dict):
        values = _convert(node["additionalProperties"], models, defaults=defaults)
        schema["additionalProperties"] = values
    return schema


def _default(node: Mapping[str, Any]) -> Any:
    if not isinstance(node["default"], dict):
        return node["default"]
    fields = node.get("properties", {})
    return {
        key: value
        for key, value in node["default"].items()
        if value != fields.get(key, {}).get("default")
    }


def _resolved(node: Mapping[str, Any], models: Mapping[str, Any]) -> Mapping[str, Any]:
    """The node with its reference or its union with null written out; its own keys win."""
    if "anyOf" in node:
        choices = [choice for choice in node["anyOf"] if choice != {"type": "null"}]
        if len(choices) != 1:
            raise ValueError(f"unions are not structural (got {node['anyOf']}); use one-of fields")
        outer = {key: value for key, value in node.items() if key != "anyOf"}
        return {**_resolved(choices[0], models), **outer}
    if "$ref" in node:
        inner = models[node["$ref"].removeprefix("#/$defs/")]
        return {**inner, **{key: value for key, value in node.items() if key != "$ref"}}
    return node
