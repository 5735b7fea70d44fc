"""Feed: who brings a controller the objects it must look at.

On one machine that is `follow`, over an API server kopf (`kopf_feed`). A controller only names the
kinds and what to call; it never learns which of the two it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from spes_operator.k8s.api import WatchEvent

# Called with an object as it is now, or as it was last if it is deleted; one that is listed counts
# as added. Quick, never waits; changes nothing in what it gets.
Handler: TypeAlias = Callable[[WatchEvent], None]


class Feed(Protocol):
    """Objects of some kinds, as they are and as they change."""

    async def run(self, handlers: Mapping[str, Handler], namespace: str) -> None:
        """Call a kind's handler for every object there is and at each change, until cancelled.

        Changes may be seen twice or merged, never missed for good: act on what is, not on what
        happened. Namespace "" means all of them.
        """
