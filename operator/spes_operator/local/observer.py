"""Gathers what is known of a run at one moment, for the screen and for whoever must decide."""

from __future__ import annotations

from datetime import timedelta

from spes_api.job import SpesJob

from spes_operator.hub.observe import read_ownership
from spes_operator.k8s.memory import MemoryApi
from spes_operator.k8s.typed import get_model
from spes_operator.local.journal_tail import JournalTail
from spes_operator.local.picture import Moment
from spes_operator.local.prepare import Prepared
from spes_operator.local.world import World


class Observer:
    """Looks at one run."""

    def __init__(self, prepared: Prepared, api: MemoryApi, world: World) -> None:
        """Prepare; nothing is read yet."""
        self._members = prepared.members
        self._api = api
        self._world = world
        self._tail = JournalTail(prepared.folder.sync / "journal.jsonl")

    async def look(self, elapsed: timedelta, phase: str = "") -> Moment:
        """Everything as it is now; `phase` overrides what the sync server says of itself."""
        sync = self._world.hub.sync_state(self._world.job)
        job = await get_model(self._api, SpesJob, *self._world.job)
        assert job is not None  # applied when the world opened, deleted by nobody
        events = (await self._api.list("Event")).items
        return Moment(
            job=job,
            members=self._members,
            absent=self._world.absent,
            preempted=self._world.preempted,
            elapsed=elapsed,
            phase=phase or ("starting the sync server" if sync is None else ""),
            sync=sync,
            ownership=await read_ownership(self._api, job),
            past=self._tail.look(),
            events=sorted(events, key=lambda event: str(event["eventTime"])),
        )
