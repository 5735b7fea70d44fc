"""Reads values.yaml: each value's path, default, and the comment above it, which says what it is.

A key with a comment is a value, whatever it holds; a key without one is a section. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

_KEY = re.compile(r"^( *)([A-Za-z]+):")


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value that an admin may set."""

    path: tuple[str, ...]
    default: Any
    text: str

    @property
    def name(self) -> str:
        """As `--set` takes it."""
        return ".".join(self.path)


def read_values(text: str) -> list[Value]:
    """Every value, in the file's order.

    Raises:
        ValueError: A key holds no section and has no comment.
    """
    defaults = yaml.safe_load(text)
    return [
        Value(path=path, default=_at(defaults, path), text=comment)
        for path, comment in _commented(text, defaults)
    ]


def _commented(text: str, defaults: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    above: list[str] = []
    path: tuple[str, ...] = ()
    inside = -1  # indentation of the value whose own lines are passed over
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            above.append(line.strip().removeprefix("# "))
            continue
        key = _KEY.match(line)
        if key is None:
            above = []
            continue
        indent = len(key[1])
        if 0 <= inside < indent:
            continue
        path = (*path[: indent // 2], key[2])
        inside = indent if above else -1
        if above:
            yield path, " ".join(above)
        elif not isinstance(_at(defaults, path), dict):
            raise ValueError(
                f"{'.'.join(path)} has no comment (expected one line that says what it is)"
            )
        above = []


def _at(values: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = values
    for key in path:
        found = found[key]
    return found
