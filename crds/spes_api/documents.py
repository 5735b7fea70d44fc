"""Reads one YAML or JSON file that a person wrote: safe, bounded, with the line of every field.

Called by `loading`. Knows nothing of kinds. Differs from PyYAML's safe_load where that would
surprise: no aliases (through them a small file expands to gigabytes), no key twice, no dates, and
3e-4 is a number, as it is for Kubernetes. A key without a value counts as absent, as an API server
treats it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from spes_api.errors import ConfigError, Problem

# Kubernetes stores no larger object.
MAX_BYTES = 1 << 20
# Far above any kind of ours; keeps the parser's recursion shallow.
MAX_DEPTH = 32

FieldPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a file says, and where it says it."""

    source: str
    value: object
    lines: Mapping[FieldPath, int] = field(default_factory=dict)

    def line_of(self, path: FieldPath) -> int | None:
        """The line of a field, or of the nearest field around it that is written down."""
        for length in range(len(path), -1, -1):
            if (line := self.lines.get(path[:length])) is not None:
                return line
        return None

    def error(self, *problems: Problem) -> ConfigError:
        """The error that names this document."""
        return ConfigError.of(self.source, problems)


def read_document(path: Path) -> Document:
    """The one document in a file; JSON if its name ends in .json, else YAML.

    Raises:
        ConfigError: it cannot be read, is too large, no text, or holds no single document.
    """
    text = _read_text(path)
    return _read_json(str(path), text) if path.suffix == ".json" else _read_yaml(str(path), text)


def _read_text(path: Path) -> str:
    try:
        if path.is_dir():
            raise _refused(path, "is a directory (expected a YAML or JSON file)")
        if path.exists() and not path.is_file():
            raise _refused(path, "is not a regular file (expected a YAML or JSON file)")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise _refused(path, "does not exist; check the path") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _refused(path, f"cannot be read: {reason}") from error
    if len(data) > MAX_BYTES:
        raise _refused(path, f"is too large (got more than {MAX_BYTES} bytes)")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(
            path, f"is not text (byte 0x{data[error.start]:02x} at {error.start}; expected UTF-8)"
        ) from error


def _refused(path: Path, text: str) -> ConfigError:
    return ConfigError.of(str(path), [Problem(text=text)])


class _Loader(yaml.SafeLoader):
    """SafeLoader with the differences that the module's docstring lists."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        mark = self.get_mark()
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(
                problem="aliases are not supported; write the value out", problem_mark=mark
            )
        if self.depth >= MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"nested deeper than {MAX_DEPTH} levels", problem_mark=mark
            )
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                raise yaml.MarkedYAMLError(
                    problem="a key must be text; put it in quotes", problem_mark=key.start_mark
                )
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{key.value} is given twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_REPLACED = {f"tag:yaml.org,2002:{tag}" for tag in ("timestamp", "int", "float", "merge", "value")}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"[-+]?(?:0x[0-9a-fA-F]{1,16}|0o[0-7]{1,21}|0|[1-9][0-9_]{0,24})$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$"
        r"|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
    ),
    list("-+0123456789."),
)


def _read_yaml(source: str, text: str) -> Document:
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        value = loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = Problem(
            text=f"is not valid YAML: {error.problem or error.context}",
            line=mark.line + 1 if mark else None,
        )
        raise ConfigError.of(source, [problem]) from error
    except (yaml.YAMLError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError.of(source, [Problem(text=f"is not valid YAML: {reason}")]) from error
    if node is None:
        raise ConfigError.of(source, [Problem(text="is empty (expected YAML or JSON)")])
    return Document(source=source, value=_without_nulls(value), lines=dict(_lines(node, ())))


def _lines(node: yaml.Node, path: FieldPath) -> list[tuple[FieldPath, int]]:
    found = [] if path else [(path, node.start_mark.line + 1)]
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            found.append(((*path, key.value), key.start_mark.line + 1))
            found += _lines(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            found.append(((*path, index), value.start_mark.line + 1))
            found += _lines(value, (*path, index))
    return found


def _read_json(source: str, text: str) -> Document:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        value = dict(pairs)
        if len(value) < len(pairs):
            twice = next(key for key, _ in pairs if sum(key == k for k, _ in pairs) > 1)
            raise ValueError(f"{twice} is given twice")
        return value

    try:
        value = _without_nulls(json.loads(text, object_pairs_hook=unique))
    except json.JSONDecodeError as error:
        problem = Problem(text=f"is not valid JSON: {error.msg}", line=error.lineno)
        raise ConfigError.of(source, [problem]) from error
    except RecursionError as error:
        raise ConfigError.of(
            source, [Problem(text="is not valid JSON: nested too deep")]
        ) from error
    except ValueError as error:
        raise ConfigError.of(source, [Problem(text=f"is not valid JSON: {error}")]) from error
    return Document(source=source, value=value)


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
