"""CachedApi: a KubeApi that answers reads of some kinds from memory.

A feed brings the changes of others; each write's answer is noted before the writer gets it, so that
nobody reads an object older than what was written through here. After a write that failed, or whose
answer does not say how the object is now, the next read lists the kind again. So does the first
read after `max_age`: a watch that is broken makes reads late by that much and no more, and an API
server that is away is said to be. Versions are compared as numbers, as Kubernetes lets clients do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from spes_operator.clock import Clock
from spes_operator.k8s.api import JsonObject, KubeApi, Listing, WatchEvent
from spes_operator.k8s.feed import Feed, Handler
from spes_operator.k8s.replica import Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is kept of a kind."""

    max_age: timedelta
    """It is listed again after this at the latest."""
    label: str = ""
    """Only objects that carry it."""
    by_namespace: bool = False
    """Listed in each namespace by itself, where one may not look into all; such a kind is not fed:
    what others write is seen after `max_age`."""
    contents: bool = True
    """False: `list` answers metadata alone, and `get` asks the server."""


class _Place:
    """A replica with the lock that lets one of many readers list for all."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.replica = Replica(kept.label, _whole if kept.contents else _metadata)
        self.lock = asyncio.Lock()
        self.read_at = float("-inf")


class CachedApi:
    """KubeApi over another one."""

    def __init__(self, api: KubeApi, kinds: Mapping[str, Kept], clock: Clock) -> None:
        """Nothing is read yet; kinds that are not named pass through."""
        self._api = api
        self._kinds = kinds
        self._clock = clock
        self._places: dict[tuple[str, str], _Place] = {}

    def fed_by(self, feed: Feed) -> Feed:
        """A feed of the same objects, each noted here before its handler is called."""
        return _NotedFeed(feed, self)

    def note(self, kind: str, event: WatchEvent) -> None:
        """A change that a watch brought."""
        place = self._places.get((kind, ""))
        if place is not None:  # or the first read lists it
            place.replica.note(event.object, deleted=event.type == "DELETED")

    async def get(self, kind: str, namespace: str, name: str) -> JsonObject:
        """A copy of the object."""
        kept = self._kinds.get(kind)
        if kept is None or kept.label or kept.by_namespace or not kept.contents:
            return await self._api.get(kind, namespace, name)
        return (await self._fresh(kind, "", kept)).get(kind, namespace, name)

    async def list(
        self, kind: str, namespace: str = "", labels: Mapping[str, str | None] | None = None
    ) -> Listing:
        """Copies of the objects of a kind that carry `labels`, in order of namespace and name."""
        kept, wanted = self._kinds.get(kind), labels or {}
        if kept is None or (kept.label and kept.label not in wanted):
            return await self._api.list(kind, namespace, labels)
        if kept.by_namespace and not namespace:
            return await self._api.list(kind, namespace, labels)
        replica = await self._fresh(kind, namespace if kept.by_namespace else "", kept)
        return replica.select(namespace, wanted)

    def watch(
        self, kind: str, namespace: str = "", *, from_version: str
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes, from the server itself."""
        return self._api.watch(kind, namespace, from_version=from_version)

    async def create(self, owner: str, obj: JsonObject) -> JsonObject:
        """Make a new object."""
        return await self._noted(obj, self._api.create(owner, obj))

    async def apply(self, owner: str, obj: JsonObject) -> JsonObject:
        """Merge what `owner` says into the object."""
        return await self._noted(obj, self._api.apply(owner, obj))

    async def replace(self, owner: str, obj: JsonObject) -> JsonObject:
        """Compare-and-swap, by the version in `obj`: the server decides."""
        return await self._noted(obj, self._api.replace(owner, obj))

    async def patch_status(
        self, kind: str, namespace: str, name: str, status: JsonObject, *, uid: str = ""
    ) -> JsonObject:
        """Replace the object's status."""
        written = {"kind": kind, "metadata": {"namespace": namespace}}
        writing = self._api.patch_status(kind, namespace, name, status, uid=uid)
        return await self._noted(written, writing)

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> None:
        """Remove the object; whether it is gone at once is for the server to say."""
        try:
            await self._api.delete(kind, namespace, name, uid=uid)
        finally:
            self._doubt(kind, namespace)

    async def _noted(self, obj: JsonObject, writing: Awaitable[JsonObject]) -> JsonObject:
        kind, namespace = obj["kind"], obj["metadata"].get("namespace", "")
        try:
            answer = await writing
        except BaseException:  # also when cancelled: it may have been done
            self._doubt(kind, namespace)
            raise
        for place in self._holding(kind, namespace):
            place.replica.note(answer)
        return answer

    def _doubt(self, kind: str, namespace: str) -> None:
        for place in self._holding(kind, namespace):
            place.replica.doubt()

    def _holding(self, kind: str, namespace: str) -> tuple[_Place, ...]:
        found = (self._places.get((kind, at)) for at in {"", namespace})
        return tuple(place for place in found if place is not None)

    async def _fresh(self, kind: str, namespace: str, kept: Kept) -> Replica:
        place = self._place(kind, namespace, kept)
        replica, max_age = place.replica, kept.max_age.total_seconds()
        async with place.lock:
            now = place.read_at = self._clock.monotonic()
            if not replica.is_fresh(now=now, max_age=max_age):
                replica.begin_reading(now=now)
                listing = None
                try:
                    labels = {kept.label: None} if kept.label else None
                    listing = await self._api.list(kind, namespace, labels)
                finally:
                    replica.end_reading(listing)
        return replica

    def _place(self, kind: str, namespace: str, kept: Kept) -> _Place:
        if (found := self._places.get((kind, namespace))) is not None:
            return found
        self._drop_unread()
        made = self._places[kind, namespace] = _Place(kept)
        made.read_at = self._clock.monotonic()
        return made

    def _drop_unread(self) -> None:
        """Forget namespaces that nobody asks for any more, or members that leave would add up."""
        now = self._clock.monotonic()
        for key, place in list(self._places.items()):
            unread = now - place.read_at > 2 * place.kept.max_age.total_seconds()
            if place.kept.by_namespace and unread and not place.lock.locked():
                del self._places[key]


class _NotedFeed:
    """Feed through a cache."""

    def __init__(self, feed: Feed, cache: CachedApi) -> None:
        self._feed = feed
        self._cache = cache

    async def run(self, handlers: Mapping[str, Handler], namespace: str) -> None:
        """Call a kind's handler for every object and at each change, until cancelled."""
        noting = {kind: self._noting(kind, handler) for kind, handler in handlers.items()}
        await self._feed.run(noting, namespace)

    def _noting(self, kind: str, handler: Handler) -> Handler:
        def noted(event: WatchEvent) -> None:
            self._cache.note(kind, event)
            handler(event)

        return noted


def _whole(obj: JsonObject) -> JsonObject:
    return obj


def _metadata(obj: JsonObject) -> JsonObject:
    return {key: obj[key] for key in ("apiVersion", "kind", "metadata") if key in obj}
