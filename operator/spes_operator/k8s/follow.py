"""Follow a kind for ever: list, watch, list again when history is gone, wait for an absent API."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import timedelta

from spes_operator.errors import GoneError, UnavailableError
from spes_operator.k8s.api import JsonObject, KubeApi

logger = logging.getLogger(__name__)

# First and longest wait after the API could not be reached.
_FIRST_WAIT = timedelta(seconds=1)
_LONGEST_WAIT = timedelta(seconds=30)


async def follow(
    api: KubeApi, kind: str, namespace: str, on_object: Callable[[JsonObject], None]
) -> None:
    """Call `on_object` for every object there is and at each change, until cancelled.

    Changes may be seen twice or merged, never missed for good: act on what is, not on what
    happened.
    """
    wait = _FIRST_WAIT
    while True:
        try:
            listing = await api.list(kind, namespace)
            for obj in listing.items:
                on_object(obj)
            wait = _FIRST_WAIT
            async for event in api.watch(kind, namespace, from_version=listing.resource_version):
                on_object(event.object)
        except GoneError:
            logger.info("watch restarts kind=%s", kind)
        except UnavailableError as error:
            logger.warning("watch waits kind=%s error=%s", kind, error)
            await asyncio.sleep(wait.total_seconds() * random.uniform(0.5, 1))  # noqa: S311 - no secret
            wait = min(2 * wait, _LONGEST_WAIT)
