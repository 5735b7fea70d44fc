"""Replica: objects of one kind as an API server holds them, kept in memory. No I/O.

A listing says how everything is as of one version; changes and answers to writes after it move
single objects on, each only forward. What is in doubt is not answered from memory: the replica is
then no longer fresh, and must be listed again. Used by `cached`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from spes_operator.errors import NotFoundError
from spes_operator.k8s.api import JsonObject, Listing
from spes_operator.k8s.fields import carries, copied

# Namespace and name.
_Key = tuple[str, str]


class _Held(NamedTuple):
    version: int
    obj: JsonObject | None
    """None: it was deleted at that version."""


@dataclass(slots=True)
class _Reading:
    """A listing on its way."""

    began_at: float
    doubts: int
    later: list[tuple[_Key, _Held]] = field(default_factory=list)
    """What came meanwhile: the listing may be older or newer than it."""


class Replica:
    """The objects of one kind that carry a label, if one is given."""

    def __init__(self, label: str, shape: Callable[[JsonObject], JsonObject]) -> None:
        """`shape` makes of an object what is kept of it; it may not change what it gets."""
        self._label = label
        self._shape = shape
        self._held: dict[_Key, _Held] = {}
        self._as_of = 0
        self._listed_at = float("-inf")
        self._doubts = 0
        self._settled_doubts = 0
        self._reading: _Reading | None = None

    def is_fresh(self, *, now: float, max_age: float) -> bool:
        """It was listed lately, and nothing has been in doubt since."""
        return self._settled_doubts == self._doubts and now - self._listed_at < max_age

    def doubt(self) -> None:
        """A write ended without an answer that says how the object is now."""
        self._doubts += 1

    def begin_reading(self, *, now: float) -> None:
        """A listing is asked for; what is doubted from now on is not settled by it."""
        self._reading = _Reading(now, self._doubts)

    def end_reading(self, listing: Listing | None) -> None:
        """It came; None: it did not."""
        reading, self._reading = self._reading, None
        if listing is None or reading is None:
            return
        self._as_of = int(listing.resource_version)
        self._held = {_key(obj): self._kept(obj) for obj in listing.items}
        for key, held in reading.later:
            self._move_on(key, held)
        self._listed_at, self._settled_doubts = reading.began_at, reading.doubts

    def note(self, obj: JsonObject, *, deleted: bool = False) -> None:
        """An object as it is now, or as it was when it was deleted; older news is none."""
        key, held = _key(obj), self._kept(obj)
        if deleted or not self._is_ours(obj):
            held = _Held(held.version, None)
        if self._reading is not None:
            self._reading.later.append((key, held))
        self._move_on(key, held)

    def get(self, kind: str, namespace: str, name: str) -> JsonObject:
        """A copy of the object.

        Raises:
            NotFoundError: It does not exist.
        """
        held = self._held.get((namespace, name))
        if held is None or held.obj is None:
            raise NotFoundError(f"{kind} {namespace}/{name} does not exist")
        return copied(held.obj)

    def select(self, namespace: str, labels: Mapping[str, str | None]) -> Listing:
        """Copies of the objects that carry `labels`, in order of namespace and name."""
        found = [
            copied(held.obj)
            for key, held in sorted(self._held.items())
            if held.obj is not None and namespace in ("", key[0]) and carries(held.obj, labels)
        ]
        return Listing(found, str(self._as_of))

    def _is_ours(self, obj: JsonObject) -> bool:
        return not self._label or carries(obj, {self._label: None})

    def _kept(self, obj: JsonObject) -> _Held:
        return _Held(int(obj["metadata"]["resourceVersion"]), copied(self._shape(obj)))

    def _move_on(self, key: _Key, held: _Held) -> None:
        before = self._held.get(key)
        if held.version > (self._as_of if before is None else max(before.version, self._as_of)):
            self._held[key] = held


def _key(obj: JsonObject) -> _Key:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
