"""The JSON schema of a program's settings, as the chart takes them. Pure.

Made from the program's own model, less what the chart fills in. Rules that pydantic's schema cannot
say are added here; a model that loses such a field fails the generator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import WithDefaultSchema
from spes_api.quantity import QUANTITY_PATTERN
from spes_operator.daemon.hub_config import HubConfig
from spes_operator.daemon.member_config import MemberConfig

Schema = dict[str, Any]

# Filled in by the chart's templates.
_OF_THE_CHART = ("namespace", "address", "probePort", "metricsPort")
_QUANTITY: Schema = {"type": ["string", "integer"], "pattern": QUANTITY_PATTERN, "minimum": 1}


class _WithEveryDefault(GenerateJsonSchema):
    """Says also the defaults that a model makes anew each time."""

    def get_default_value(self, schema: WithDefaultSchema) -> Any:
        """What an absent field holds."""
        factory: Any = schema.get("default_factory")
        return factory() if factory else super().get_default_value(schema)


def hub_settings() -> tuple[Schema, Schema]:
    """Schema of `hub.config`, and the definitions that it refers to."""
    schema, parts = _settings(HubConfig, "hub", (*_OF_THE_CHART, "images"))
    parts["hubExposure"] |= {"minProperties": 1, "maxProperties": 1}
    return schema, parts


def member_settings() -> tuple[Schema, Schema]:
    """Schema of `member.config`, and the definitions that it refers to."""
    schema, parts = _settings(MemberConfig, "member", (*_OF_THE_CHART, "image", "state"))
    slot = parts["memberSlotConfig"]["properties"]
    for name in ("memory", "activation"):
        slot[name] = _QUANTITY | {"description": slot[name]["description"]}
    parts["memberDatasetConfig"]["oneOf"] = [
        {"required": [source]} for source in ("claim", "hostPath", "image")
    ]
    return schema, parts


def _settings(
    model: type[HubConfig | MemberConfig], prefix: str, without: Collection[str]
) -> tuple[Schema, Schema]:
    whole = model.model_json_schema(
        ref_template=f"#/definitions/{prefix}{{model}}", schema_generator=_WithEveryDefault
    )
    parts = {prefix + name: part for name, part in whole.pop("$defs").items()}
    for name in without:
        del whole["properties"][name]
    whole["required"] = [name for name in whole["required"] if name not in without]
    used = set(_references(whole))
    while more := {ref for name in used for ref in _references(parts[name])} - used:
        used |= more
    return _untitled(whole), {name: _untitled(parts[name]) for name in sorted(used)}


def _references(schema: Any) -> Iterator[str]:
    """Names of the definitions that a schema refers to."""
    if isinstance(schema, dict):
        if isinstance(ref := schema.get("$ref"), str):
            yield ref.rpartition("/")[2]
        for part in schema.values():
            yield from _references(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _references(part)


def _untitled(schema: Any) -> Any:
    """Without the titles that pydantic makes of names, and without keys for API servers."""
    if isinstance(schema, dict):
        return {
            key: _untitled(part)
            for key, part in schema.items()
            if not (key == "title" and isinstance(part, str)) and not key.startswith("x-kubernetes")
        }
    return [_untitled(part) for part in schema] if isinstance(schema, list) else schema
