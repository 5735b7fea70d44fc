"""A copy of all objects of some kinds, kept up to date by watches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterable

from spes_operator.errors import GoneError, UnavailableError
from spes_operator.k8s.api import KubeApi

from kubelet.pod_spec import Json

logger = logging.getLogger(__name__)

_WAIT_SECONDS = 1.0


class Mirror:
    """What the API server holds, as last seen."""

    def __init__(self, api: KubeApi, kinds: Iterable[str], changed: Callable[[], None]) -> None:
        """Empty until `follow`; `changed` is called after every change."""
        self._api = api
        self._changed = changed
        self._objects: dict[str, dict[tuple[str, str], Json]] = {kind: {} for kind in kinds}
        self._unread = set(self._objects)

    @property
    def complete(self) -> bool:
        """Every kind has been read once."""
        return not self._unread

    def all(self, kind: str) -> list[Json]:
        """Every object of a kind."""
        return list(self._objects[kind].values())

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """One object, or None."""
        return self._objects[kind].get((namespace, name))

    async def follow(self) -> None:
        """Keep up, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for kind in self._objects:
                tasks.create_task(self._follow(kind))

    async def _follow(self, kind: str) -> None:
        while True:
            try:
                await self._follow_once(kind)
            except GoneError:
                continue
            except UnavailableError as error:
                logger.warning("watch waits kind=%s error=%s", kind, error)
                await asyncio.sleep(_WAIT_SECONDS * random.uniform(0.5, 1))  # noqa: S311 - no secret

    async def _follow_once(self, kind: str) -> None:
        listing = await self._api.list(kind)
        self._objects[kind] = {_key(obj): obj for obj in listing.items}
        self._unread.discard(kind)
        self._changed()
        watch = self._api.watch(kind, from_version=listing.resource_version)
        async with contextlib.aclosing(watch):
            async for event in watch:
                if event.type == "DELETED":
                    self._objects[kind].pop(_key(event.object), None)
                else:
                    self._objects[kind][_key(event.object)] = event.object
                self._changed()


def _key(obj: Json) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
