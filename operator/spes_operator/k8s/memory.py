"""MemoryApi: an API server in one process, kept in one JSON file. Used by `spes run` and by tests.

Keeps what controllers rely on: resourceVersion and optimistic concurrency, uid, generation, field
owners, watches with a bounded history that answer "gone" beyond it, writes that change nothing and
say nothing, copies in and out. Leaves out what they do not use: admission, finalizers, garbage
collection by owner reference.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from spes_api.private_files import write_private

from spes_operator.clock import Clock, SystemClock, to_text
from spes_operator.errors import (
    AlreadyExistsError,
    ConfigError,
    ConflictError,
    GoneError,
    NotFoundError,
)
from spes_operator.k8s.api import JsonObject, Listing, WatchEvent
from spes_operator.k8s.fields import Owners, apply_owners, carries, copied, merge, replace_owners

# Changes kept for watches; a watch that lags further behind lists again.
HISTORY = 1024
# Events kept per API server, oldest dropped first; a real one drops them after an hour.
MAX_EVENTS = 2000
_FORMAT = 1


@dataclass(slots=True, kw_only=True)
class _Stored:
    obj: JsonObject
    owners: Owners = field(default_factory=dict)


_Key = tuple[str, str, str]


class MemoryApi:
    """The in-memory API server."""

    def __init__(self, clock: Clock | None = None, *, history: int = HISTORY) -> None:
        """An API server without objects."""
        self._clock = clock or SystemClock()
        self._objects: dict[_Key, _Stored] = {}
        self._version = 0
        self._history: deque[tuple[int, _Key, WatchEvent]] = deque(maxlen=history)
        self._forgotten = 0  # the last change that no watch can see any more
        self._changed = asyncio.Event()

    async def get(self, kind: str, namespace: str, name: str) -> JsonObject:
        """A copy of the object."""
        return copied(self._find(kind, namespace, name).obj)

    async def list(
        self, kind: str, namespace: str = "", labels: Mapping[str, str | None] | None = None
    ) -> Listing:
        """Copies of the objects of a kind, in order of namespace and name."""
        wanted = labels or {}
        items = [
            copied(stored.obj)
            for key, stored in sorted(self._objects.items())
            if key[0] == kind and namespace in ("", key[1]) and carries(stored.obj, wanted)
        ]
        return Listing(items, str(self._version))

    async def watch(
        self, kind: str, namespace: str = "", *, from_version: str
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes after `from_version`, as they come."""
        seen = int(from_version)
        while True:
            if seen < self._forgotten:
                raise GoneError(f"changes after version {seen} are no longer kept; list again")
            changed = self._changed
            for version, key, event in tuple(self._history):
                if version > seen:
                    seen = version
                    if key[0] == kind and namespace in ("", key[1]):
                        yield WatchEvent(type=event.type, object=copied(event.object))
            if changed is self._changed:
                await changed.wait()

    async def create(self, owner: str, obj: JsonObject) -> JsonObject:
        """Store a new object."""
        key = _key_of(obj)
        if key in self._objects:
            raise AlreadyExistsError(f"{_say(key)} exists already")
        metadata = {
            name: value
            for name, value in obj["metadata"].items()
            if name not in ("resourceVersion", "generation")
        }
        stored = _Stored(
            obj={
                **copied({k: v for k, v in obj.items() if k != "status"}),
                "metadata": copied(metadata)
                | {
                    "uid": str(uuid.uuid4()),
                    "generation": 1,
                    "creationTimestamp": to_text(self._clock.now()),
                },
            },
            owners=replace_owners({}, owner, {}, obj),
        )
        self._objects[key] = stored
        self._record(key, "ADDED")
        if key[0] == "Event":
            self._drop_old_events()
        return copied(stored.obj)

    async def apply(self, owner: str, obj: JsonObject) -> JsonObject:
        """Merge what `owner` says into the object."""
        key = _key_of(obj)
        if key not in self._objects:
            await self.create(owner, obj)
            self._objects[key].owners = apply_owners({}, owner, obj)
        stored = self._objects[key]
        merged, stored.owners = merge(stored.obj, stored.owners, owner, obj)
        return self._store(key, merged)

    async def replace(self, owner: str, obj: JsonObject) -> JsonObject:
        """Put the object in the place of the one with its resourceVersion."""
        key = _key_of(obj)
        expected, stored = obj["metadata"]["resourceVersion"], self._objects.get(key)
        if stored is None:
            raise ConflictError(f"{_say(key)} is gone (expected version {expected})")
        old = stored.obj
        if expected != old["metadata"]["resourceVersion"]:
            raise ConflictError(
                f"{_say(key)} changed (got version {expected}, is "
                f"{old['metadata']['resourceVersion']}); read it again"
            )
        kept = ("uid", "resourceVersion", "generation", "creationTimestamp")
        new = copied({name: value for name, value in obj.items() if name != "status"})
        new["metadata"] |= {name: old["metadata"][name] for name in kept}
        if "status" in old:
            new["status"] = old["status"]
        stored.owners = replace_owners(stored.owners, owner, old, new)
        return self._store(key, new)

    async def patch_status(
        self, kind: str, namespace: str, name: str, status: JsonObject, *, uid: str = ""
    ) -> JsonObject:
        """Replace the object's status."""
        stored = self._find(kind, namespace, name)
        _check_uid((kind, namespace, name), stored.obj, uid)
        if stored.obj.get("status") != status:
            stored.obj = {**stored.obj, "status": copied(status)}
            self._record((kind, namespace, name), "MODIFIED")
        return copied(stored.obj)

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> None:
        """Forget the object."""
        key = (kind, namespace, name)
        if key in self._objects:
            _check_uid(key, self._objects[key].obj, uid)
            self._record(key, "DELETED")
            del self._objects[key]

    def save(self, path: Path) -> None:
        """Write every object to `path`, whole or not at all, readable by the owner alone."""
        write_snapshot(self.snapshot(), path)

    def snapshot(self) -> JsonObject:
        """Every object as it is now, for `write_snapshot`; what happens later changes nothing."""
        return {
            "format": _FORMAT,
            "resourceVersion": self._version,
            "objects": [
                {
                    "object": stored.obj,
                    "owners": {
                        owner: sorted(map(list, fields)) for owner, fields in stored.owners.items()
                    },
                }
                for stored in self._objects.values()
            ],
        }

    @classmethod
    def load(cls, path: Path, clock: Clock | None = None) -> Self:
        """The API server that `save` wrote.

        Raises:
            ConfigError: The file is not what `save` writes.
        """
        api = cls(clock)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["format"] != _FORMAT:
                raise ConfigError(f"{path}: unknown format (got {document['format']!r:.40})")
            api._version = api._forgotten = int(document["resourceVersion"])
            for entry in document["objects"]:
                owners = {
                    owner: frozenset(map(tuple, fields))
                    for owner, fields in entry["owners"].items()
                }
                api._objects[_key_of(entry["object"])] = _Stored(obj=entry["object"], owners=owners)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{path} is not a saved cluster ({error!r:.120}); remove it to go on without its "
                "history"
            ) from error
        return api

    def _find(self, kind: str, namespace: str, name: str) -> _Stored:
        stored = self._objects.get((kind, namespace, name))
        if stored is None:
            raise NotFoundError(f"{_say((kind, namespace, name))} does not exist")
        return stored

    def _store(self, key: _Key, obj: JsonObject) -> JsonObject:
        """Keep a changed object, and say so; a copy of it."""
        stored = self._objects[key]
        if obj != stored.obj:
            if _body(obj) != _body(stored.obj):
                obj["metadata"]["generation"] += 1
            stored.obj = obj
            self._record(key, "MODIFIED")
        return copied(stored.obj)

    def _record(self, key: _Key, change: str) -> None:
        self._version += 1
        stored = self._objects[key]
        stored.obj = {
            **stored.obj,
            "metadata": {**stored.obj["metadata"], "resourceVersion": str(self._version)},
        }
        if len(self._history) == self._history.maxlen:
            self._forgotten = self._history[0][0]
        event = WatchEvent(type=change, object=copied(stored.obj))  # type: ignore[arg-type]  # one of three
        self._history.append((self._version, key, event))
        self._changed.set()
        self._changed = asyncio.Event()

    def _drop_old_events(self) -> None:
        events = [key for key in self._objects if key[0] == "Event"]
        for key in events[: max(0, len(events) - MAX_EVENTS)]:
            del self._objects[key]


def write_snapshot(snapshot: JsonObject, path: Path) -> None:
    """Write what `MemoryApi.load` reads; blocks until it is on the disk."""
    write_private(path, json.dumps(snapshot, indent=1).encode())


def _check_uid(key: _Key, obj: JsonObject, uid: str) -> None:
    if uid not in ("", obj["metadata"]["uid"]):
        raise ConflictError(f"{_say(key)} is another one than that of uid {uid}")


def _key_of(obj: JsonObject) -> _Key:
    metadata = obj["metadata"]
    return str(obj["kind"]), str(metadata.get("namespace", "")), str(metadata["name"])


def _body(obj: JsonObject) -> JsonObject:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def _say(key: _Key) -> str:
    kind, namespace, name = key
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
