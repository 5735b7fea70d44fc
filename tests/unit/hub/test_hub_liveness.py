"""When a hub's process counts as stuck: if its passes do not end, not if they are refused."""

import asyncio
import contextlib
from datetime import timedelta

import pytest
from builders.clock import FakeClock
from builders.played_hub import PlayedHost
from spes_operator.daemon.hub import _STUCK_AFTER
from spes_operator.errors import UnavailableError
from spes_operator.hub.controller import HubController
from spes_operator.hub.settings import HubSettings
from spes_operator.k8s.memory import MemoryApi

DEADLINE_SECONDS = 30


class Api(MemoryApi):
    """Answers, refuses or hangs."""

    def __init__(self):
        super().__init__()
        self.mood, self.asked = "answers", 0

    async def list(self, kind, namespace="", labels=None):
        self.asked += 1
        if self.mood == "refuses":
            raise UnavailableError("the API server is away")
        if self.mood == "hangs":
            await asyncio.Event().wait()
        return await super().list(kind, namespace, labels)


async def until(holds):
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("mood", "alive"), [("answers", True), ("refuses", True), ("hangs", False)]
)
def test_only_a_pass_that_does_not_end_makes_it_stuck(mood, alive):
    async def scenario():
        api, clock = Api(), FakeClock()
        hub = HubController(api, HubSettings(host=PlayedHost(), connect=None, clock=clock))
        running = asyncio.create_task(hub.run())
        await until(lambda: hub.is_in_touch)
        api.mood, asked = mood, api.asked
        clock.advance(2 * _STUCK_AFTER.total_seconds())
        member = {"apiVersion": "spes.dev/v1alpha1", "kind": "MemberCluster"}
        await api.create("admin", member | {"metadata": {"name": "uni-a"}, "spec": {}})
        if alive:
            await until(lambda: hub.idle_for == timedelta())
        else:
            await until(lambda: api.asked > asked)
        assert (hub.idle_for < _STUCK_AFTER) is alive
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(scenario())
