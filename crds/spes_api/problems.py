"""Turns pydantic's findings into sentences that people can act on.

One sentence per finding: what must hold, what was got, and a hint (the nearest key, the quotes that
are missing). Pure; called by `loading`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from spes_api.documents import Document, FieldPath
from spes_api.errors import Problem
from spes_api.quantity import parse_quantity

# Characters of a value that an error repeats.
MAX_SHOWN = 60

# By pydantic's error type; the braces are filled from the error's context.
_MUST = {
    "literal_error": "must be {expected}",
    "int_type": "must be an integer",
    "float_type": "must be a number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "finite_number": "must be a finite number",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be below {lt}",
    "string_too_short": "must not be shorter than {min_length} characters",
    "string_too_long": "must not be longer than {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
}
_KINDS: dict[object, str] = {
    int: "an integer",
    float: "a number",
    str: "text",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
}


def explain_errors(
    errors: list[ErrorDetails], *, model: type[BaseModel], document: Document
) -> list[Problem]:
    """One problem per finding, in the order of the lines."""
    problems = [_explain(error, model, document) for error in errors]
    return sorted(problems, key=lambda problem: problem.line or 0)


def dotted(path: FieldPath) -> str:
    """The path as people write it: members[0].slots[1].memory."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _explain(error: ErrorDetails, model: type[BaseModel], document: Document) -> Problem:
    path: FieldPath = tuple(part for part in error["loc"] if part != "[key]")
    match error["type"]:
        case "missing":
            text = _missing(path, model)
        case "extra_forbidden":
            text = _unknown(path, model)
        case "value_error":
            path, text = _rule(path, str(error["ctx"]["error"]), model)
        case kind if kind in _MUST:
            text = _unsuitable(error)
        case _:
            text = f"{error['msg'][:1].lower()}{error['msg'][1:]} (got {_shown(error['input'])})"
    return Problem(text=text, field=dotted(path), line=document.line_of(path))


def _missing(path: FieldPath, root: type[BaseModel]) -> str:
    parent, key = _model_at(root, path[:-1]), path[-1]
    for name, info in parent.model_fields.items() if parent else ():
        if (info.alias or name) == key:
            return f"is required (expected {_expected(info)})"
    return "is required"


def _expected(info: FieldInfo) -> str:
    annotation = info.annotation
    if BeforeValidator(parse_quantity) in info.metadata:
        return "bytes such as 48Mi"
    if (model := _model_of(annotation)) is not None and get_origin(annotation) is not list:
        required = [key for key, info in _keys(model).items() if info.is_required()]
        return f"a mapping with {', '.join(required)}" if required else "a mapping"
    return _KINDS.get(get_origin(annotation) or annotation, "a value")


def _unknown(path: FieldPath, root: type[BaseModel]) -> str:
    parent, key = _model_at(root, path[:-1]), str(path[-1])
    here = list(_keys(parent)) if parent else []
    if near := get_close_matches(key, here, n=1):
        return f"is not a field; did you mean {near[0]}?"
    if elsewhere := [place for place in _places(root) if place[-1] == key]:
        return f"is not a field here; did you mean {dotted(elsewhere[0])}?"
    return f"is not a field (expected one of {', '.join(here)})"


def _rule(path: FieldPath, text: str, root: type[BaseModel]) -> tuple[FieldPath, str]:
    """Where a rule over several fields points: at the field that its sentence begins with."""
    first, _, rest = text.partition(" ")
    inner = (*path, *first.split("."))
    parent = _model_at(root, inner[:-1])
    return (inner, rest) if parent is not None and inner[-1] in _keys(parent) else (path, text)


def _unsuitable(error: ErrorDetails) -> str:
    value, context = error["input"], dict(error.get("ctx", {}))
    got = f" (got {context['actual_length'] if error['type'] == 'too_long' else _shown(value)})"
    if error["type"] == "literal_error":
        choices = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        context["expected"] = choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
        near = get_close_matches(str(value).lower(), [choice.lower() for choice in choices], n=1)
        if near:
            match = next(choice for choice in choices if choice.lower() == near[0])
            got += f"; did you mean {match}?" if len(choices) > 1 else ""
    if error["type"] == "string_pattern_mismatch" and "a-z0-9" in str(context["pattern"]):
        return f"must be lower-case letters, digits and inner dashes{got}"
    return _MUST[error["type"]].format(**context) + got + _quotes_hint(error["type"], value)


def _quotes_hint(kind: str, value: object) -> str:
    if kind in ("int_type", "float_type") and isinstance(value, str) and value.strip().isdigit():
        return "; remove the quotes"
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return f"; write {int(value)}"
    if kind == "string_type" and isinstance(value, int | float):
        return f'; put it in quotes: "{_shown(value)}"'
    return ""


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def _keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {info.alias or name: info for name, info in model.model_fields.items()}


def _model_of(annotation: object) -> type[BaseModel] | None:
    """The model inside Optional and list, if there is one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, UnionType, list):
        found = (_model_of(argument) for argument in get_args(annotation))
        return next((model for model in found if model is not None), None)
    return None


def _model_at(root: type[BaseModel], path: FieldPath) -> type[BaseModel] | None:
    model: type[BaseModel] | None = root
    for part in path:
        if isinstance(part, int):
            continue
        info = _keys(model).get(part) if model else None
        model = _model_of(info.annotation) if info else None
    return model


def _places(model: type[BaseModel], path: FieldPath = ()) -> Iterator[FieldPath]:
    """Every field below a model."""
    for key, info in _keys(model).items():
        yield (*path, key)
        inner = _model_of(info.annotation)
        if inner is not None and key != "status":
            yield from _places(inner, (*path, key))
