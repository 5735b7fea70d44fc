"""The CEL rules of a structural schema, judged by cel-python as an API server judges them.

Values become CEL values by their schema: a whole number in a field of type `number` is a double. A
rule that names `oldSelf` judges changes alone. Of the functions that Kubernetes adds to CEL, those
that our rules call are registered here.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import celpy
from celpy import celtypes


def broken_rules(schema: dict[str, Any], value: Any, old: Any = None) -> Iterator[str]:
    """The messages of all rules that a value breaks, which its schema accepts.

    Args:
        schema: Of the value.
        value: With the schema's defaults, as an API server has it then.
        old: The value that it replaces; None: it is new.
    """
    this = _cel_value(schema, value)
    for rule in schema.get("x-kubernetes-validations", []):
        names = {"self": this}
        if "oldSelf" in rule["rule"]:
            if old is None:
                continue
            names["oldSelf"] = _cel_value(schema, old)
        if not _program(rule["rule"]).evaluate(names):
            yield rule["message"]
    if isinstance(value, list):
        for item in value:  # none of our lists tells which entry an entry replaces
            yield from broken_rules(schema["items"], item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from broken_rules(_field(schema, key), item, (old or {}).get(key))


def _field(schema: dict[str, Any], key: str) -> dict[str, Any]:
    """The schema of a field of an object, or of the values of a map."""
    found: dict[str, Any] = schema.get("properties", {}).get(key) or schema["additionalProperties"]
    return found


@cache
def _program(rule: str) -> celpy.Runner:
    environment = _environment()
    return environment.program(environment.compile(rule), functions={"split": _split})


@cache
def _environment() -> celpy.Environment:
    return celpy.Environment()


def _split(text: celtypes.StringType, separator: celtypes.StringType) -> celtypes.ListType:
    return celtypes.ListType([celtypes.StringType(part) for part in text.split(separator)])


def _cel_value(schema: dict[str, Any], value: Any) -> celtypes.Value:
    if isinstance(value, dict):
        return celtypes.MapType(
            {
                celtypes.StringType(key): _cel_value(_field(schema, key), item)
                for key, item in value.items()
            }
        )
    if isinstance(value, list):
        return celtypes.ListType([_cel_value(schema["items"], item) for item in value])
    if schema["type"] == "number":
        return celtypes.DoubleType(value)
    return celpy.json_to_cel(value)
