"""The member's Lease on the hub, renewed for ever: its sign of life."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import UTC, timedelta

from spes_operator.clock import Clock
from spes_operator.errors import SpesError
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.member.health import MemberHealth
from spes_operator.names import HEARTBEAT_LEASE, LABEL_MEMBER, MEMBER_OWNER, member_namespace

logger = logging.getLogger(__name__)


class Heartbeat:
    """Beats of one member; whether they arrive in time is for the hub to judge."""

    def __init__(
        self,
        name: str,
        hub: KubeApi,
        clock: Clock,
        health: MemberHealth,
        returned: Callable[[], None],
    ) -> None:
        """Nothing is sent yet.

        Args:
            name: The member's at the hub.
            hub: The hub's API.
            clock: For the time in the Lease.
            health: Is told of every beat and answer.
            returned: Called when the hub takes a beat after it did not.
        """
        self._name = name
        self._hub = hub
        self._clock = clock
        self._health = health
        self._returned = returned
        self._trouble = ""

    async def run(self, interval: timedelta) -> None:
        """Beat every `interval`, until cancelled."""
        while True:
            await self.beat()
            jitter = random.uniform(0.9, 1)  # noqa: S311 - no secret
            await asyncio.sleep(interval.total_seconds() * jitter)

    async def beat(self) -> None:
        """Renew the Lease; a failure is logged when it begins, and the next beat tries again."""
        try:
            await self._hub.apply(MEMBER_OWNER, self._lease())
        except SpesError as error:
            trouble = type(error).__name__
            if trouble != self._trouble:
                logger.warning("heartbeat fails member=%s error=%s", self._name, error)
        else:
            trouble = ""
            self._health.heard()
            if self._trouble:
                logger.info("heartbeat arrives again member=%s", self._name)
                self._returned()
        self._trouble = trouble
        self._health.attempted("lease")

    def _lease(self) -> JsonObject:
        renewed = self._clock.now().astimezone(UTC).isoformat(timespec="microseconds")
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "namespace": member_namespace(self._name),
                "name": HEARTBEAT_LEASE,
                "labels": {LABEL_MEMBER: self._name},
            },
            "spec": {"holderIdentity": self._name, "renewTime": renewed},
        }
