"""Follow kinds for ever: list, watch, list again when history is gone, wait for an absent API.

The Feed of one machine, where no kopf is. A refusal ends nothing: a person may mend the rights.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta

from spes_operator.backoff import Backoff
from spes_operator.errors import GoneError, SpesError
from spes_operator.k8s.api import KubeApi, WatchEvent
from spes_operator.k8s.feed import Handler

logger = logging.getLogger(__name__)

# After the API could not be reached, or refused.
_RETRIES = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=30))


class FollowFeed:
    """Feed over the lists and watches of a KubeApi."""

    def __init__(self, api: KubeApi) -> None:
        """Nothing is read before `run`."""
        self._api = api

    async def run(self, handlers: Mapping[str, Handler], namespace: str) -> None:
        """Call a kind's handler for every object and at each change, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for kind, handler in handlers.items():
                tasks.create_task(follow(self._api, kind, namespace, handler))


async def follow(api: KubeApi, kind: str, namespace: str, on_event: Handler) -> None:
    """Call `on_event` for every object there is and at each change, until cancelled."""
    failures = 0
    while True:
        try:
            listing = await api.list(kind, namespace)
            for obj in listing.items:
                on_event(WatchEvent(type="ADDED", object=obj))
            failures = 0
            async for event in api.watch(kind, namespace, from_version=listing.resource_version):
                on_event(event)
        except GoneError:
            logger.info("watch restarts kind=%s", kind)
        except SpesError as error:
            logger.warning("watch waits kind=%s error=%s", kind, error)
            failures += 1
            await asyncio.sleep(_RETRIES.drawn(failures).total_seconds())
