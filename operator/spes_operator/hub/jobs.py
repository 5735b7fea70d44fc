"""Jobs: one pass over one SpesJob, and what only this process knows of each.

What is remembered is lost at a restart without harm. Called by `controller`, which decides when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from pydantic import ValidationError
from spes_api.job import SpesJob
from spes_api.kinds import TrainerAssignment
from spes_api.status import Images

from spes_operator.errors import (
    ConfigError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    RefusedError,
    SpesError,
)
from spes_operator.hub.measures import Measures
from spes_operator.hub.observe import Remembered, observe_job
from spes_operator.hub.reconcile import reconcile_job
from spes_operator.hub.roster import Roster
from spes_operator.hub.settings import HubSettings
from spes_operator.hub.status import differs_in_substance
from spes_operator.hub.sync_link import SyncLink
from spes_operator.hub.sync_state import SyncPlan, SyncState
from spes_operator.hub.troubles import outside, trouble_of, write_invalid, write_trouble
from spes_operator.hub.view import HubPlan, HubView, ServerSeen
from spes_operator.hub.write import status_json, write_plan, write_status
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.k8s.typed import find_object, first_problem
from spes_operator.names import ObjectKey, PeerId

# Progress (round, tokens, loss) reaches a job's status at most this often.
_STATUS_INTERVAL = timedelta(seconds=10)
# A server that is reached is looked at as a workload this often: seldom if all its peers are there
# too, for then nothing can be amiss with it. One that is not reached, at every pass.
_SERVER_INTERVAL = timedelta(seconds=30)
_QUIET_INTERVAL = timedelta(minutes=10)
# A server that is not reached is looked at again after this, and less often the longer it lasts.
_SERVER_POLL = timedelta(seconds=2)
_LONGEST_POLL = timedelta(seconds=15)
# Two that write at the same moment meet now and then, but not so often in a row.
_CONFLICTS = 4


@dataclass(slots=True)
class _Memory:
    key: ObjectKey
    link: SyncLink | None = None
    server: ServerSeen = field(default_factory=ServerSeen)
    server_at: float = float("-inf")
    reached_at: float = float("-inf")
    """When the server was last known to answer, or first missed."""
    generation: int = 0
    """Of the job that the server was last made for."""
    applied: SyncPlan | None = None
    asked_at: dict[PeerId, float] = field(default_factory=dict)
    """When peers were last asked to leave."""
    older: frozenset[str] | None = None
    """UIDs of assignments that were there at the first look; None: there was none yet."""
    known_since: dict[str, float] = field(default_factory=dict)
    """UIDs of assignments that came later -> when each was first seen."""
    startable_since: float | None = None
    status_at: float = float("-inf")
    troubles: int = 0
    """Passes in a row that ended by something a person must mend."""
    closed: frozenset[str] = frozenset()
    """Namespaces of members that were closed in the last pass."""
    refused: SpesError | None = None
    """What the API server did not take in the last pass."""
    told: SpesError | None = None
    """What it did not take in the last two: the first may be of a moment that is over."""

    def known_for(
        self, assignments: Sequence[TrainerAssignment], now: float
    ) -> dict[str, timedelta]:
        """How long ago each came; of those that were there at the first look, nothing is known."""
        uids = {item.metadata.uid for item in assignments}
        if self.older is None:
            self.older = frozenset(uids)
        self.known_since = {uid: self.known_since.get(uid, now) for uid in uids - self.older}
        return {uid: timedelta(seconds=now - at) for uid, at in self.known_since.items()}

    def note_refusal(self, refusal: SpesError | None) -> None:
        """Of the pass that ends."""
        self.told = refusal if self.refused is not None else None
        self.refused = refusal


class Jobs:
    """All jobs of one hub, by UID: a job of a deleted one's name is another."""

    def __init__(
        self,
        api: KubeApi,
        settings: HubSettings,
        roster: Roster,
        wake: Callable[[ObjectKey], None],
    ) -> None:
        """`wake` is called when a job should be looked at again."""
        self._api = api
        self._settings = settings
        self._clock = settings.clock
        self._roster = roster
        self._wake = wake
        self._started_at = self._clock.monotonic()
        self._memories: dict[str, _Memory] = {}
        self.measures = Measures()

    @property
    def keys(self) -> frozenset[ObjectKey]:
        """Of every job that is remembered."""
        return frozenset(memory.key for memory in self._memories.values())

    @property
    def links(self) -> dict[str, tuple[ObjectKey, SyncLink]]:
        """UID -> the job and the link to its sync server, where there is one."""
        return {
            uid: (memory.key, memory.link)
            for uid, memory in self._memories.items()
            if memory.link is not None
        }

    def sync_state(self, job: ObjectKey) -> SyncState | None:
        """The last state of a job's sync server; None while it is not reached."""
        found = [link.state for key, link in self.links.values() if key == job]
        return found[-1] if found else None

    async def close(self) -> None:
        """Give connections back."""
        for _, link in self.links.values():
            await link.close()
        self._memories.clear()

    async def reconcile(self, key: ObjectKey) -> timedelta | None:
        """One pass over one job; answers when it should be looked at again."""
        obj = await find_object(self._api, "SpesJob", *key)
        await self._forget_others(key, obj["metadata"]["uid"] if obj else "")
        if obj is None:
            return None
        if (text := outside(key, self._settings.job_namespaces)) is not None:
            await write_invalid(self._api, obj, text, self._clock)
            return None
        try:
            job = SpesJob.model_validate(obj)
        except ValidationError as error:
            await write_invalid(self._api, obj, first_problem(error), self._clock)
            return None
        memory = self._memories.setdefault(job.metadata.uid, _Memory(key))
        try:
            again_in = await self._pass(job, memory)
        except (ConfigError, ConflictError, ForbiddenError, InvalidError) as error:
            memory.troubles += 1
            if memory.troubles > _patience(error):
                await write_trouble(self._api, obj, trouble_of(error), self._clock)
            raise
        memory.troubles = 0
        return again_in

    async def _pass(self, job: SpesJob, memory: _Memory) -> timedelta:
        if job.status.images != (frozen := self._images(job)):
            status = job.status.model_copy(update={"images": frozen})
            await self._patch_status(memory.key, job.metadata.uid, status_json(status))
            return timedelta()
        now = self._clock.monotonic()
        server = await self._server(job, memory, now)
        known = self._remembered(memory, server, now)
        seen = await observe_job(self._api, job, self._roster, known, now=now)
        seen = replace(seen, known_for=memory.known_for(seen.assignments, now))
        plan = reconcile_job(seen, now=self._clock.now())
        self._note_startable(memory, plan, now)
        control = memory.link.control if memory.link else None
        refusal = await write_plan(self._api, seen, plan, control, self._clock)
        memory.note_refusal(refusal)
        memory.closed = seen.closed_namespaces
        if plan.sync_plan is not None:
            memory.applied = plan.sync_plan
        if plan.drain is not None:
            memory.asked_at |= dict.fromkeys(plan.drain.peers, now)
        if self._status_is_due(memory, seen, plan, now):
            await write_status(self._api, seen, plan)
            memory.status_at = now
        if plan.delete_job:
            await self._api.delete("SpesJob", *memory.key, uid=job.metadata.uid)
        self.measures.note_job(seen, self._clock)
        if plan.ownership is not None or (plan.join_secrets and refusal is None):
            return timedelta()
        return min(plan.again_in, self._poll(memory, now))

    def _poll(self, memory: _Memory, now: float) -> timedelta:
        """How soon to look at a server again that may not be reached."""
        if memory.link is not None and memory.link.state is not None:
            memory.reached_at = now
            return _QUIET_INTERVAL
        if memory.reached_at == float("-inf"):
            memory.reached_at = now
        away = timedelta(seconds=now - memory.reached_at)
        return min(max(_SERVER_POLL, away / 10), _LONGEST_POLL)

    async def _patch_status(self, key: ObjectKey, uid: str, status: JsonObject) -> None:
        await self._api.patch_status("SpesJob", key.namespace, key.name, status, uid=uid)

    async def _forget_others(self, key: ObjectKey, uid: str) -> None:
        """A deleted job's link is kept until its server is gone: it is asked to end through it."""
        gone = [one for one, memory in self._memories.items() if memory.key == key and one != uid]
        if not gone or await self._settings.host.exists(key, gone[0]):
            return
        for one in gone:
            memory = self._memories.pop(one)
            self.measures.forget_job(one)
            if memory.link is not None:
                await memory.link.close()

    def _images(self, job: SpesJob) -> Images:
        """What the chart gave when the job was first seen."""
        return self._settings.images if job.status.images == Images() else job.status.images

    async def _server(self, job: SpesJob, memory: _Memory, now: float) -> ServerSeen:
        """The sync server as a workload, made if need be; where it listens, it is followed."""
        state = memory.link.state if memory.link else None
        if state is not None and memory.generation == job.metadata.generation:
            all_there = all(peer.connected or peer.left for peer in state.peers.values())
            interval = _QUIET_INTERVAL if all_there and memory.server.ready else _SERVER_INTERVAL
            if now - memory.server_at < interval.total_seconds():
                return memory.server
        server = memory.server = await self._settings.host.keep(job)
        memory.server_at, memory.generation = now, job.metadata.generation
        endpoint = server.control_endpoint if server.ready else ""
        if memory.link is not None and endpoint and memory.link.endpoint != endpoint:
            await memory.link.close()
            memory.link = memory.applied = None
        if memory.link is None and endpoint:
            control = self._settings.connect(server)
            memory.link = SyncLink(endpoint, control, self._clock, lambda: self._wake(memory.key))
        return server

    def _remembered(self, memory: _Memory, server: ServerSeen, now: float) -> Remembered:
        since = memory.startable_since
        return Remembered(
            server=server,
            sync=memory.link.state if memory.link else None,
            applied=memory.applied,
            refused=str(memory.told or ""),
            closed=memory.closed,
            asked={peer: timedelta(seconds=now - at) for peer, at in memory.asked_at.items()},
            hub_age=timedelta(seconds=now - self._started_at),
            startable_for=None if since is None else timedelta(seconds=now - since),
        )

    def _note_startable(self, memory: _Memory, plan: HubPlan, now: float) -> None:
        if not plan.startable:
            memory.startable_since = None
        elif memory.startable_since is None:
            memory.startable_since = now

    def _status_is_due(self, memory: _Memory, seen: HubView, plan: HubPlan, now: float) -> bool:
        if seen.ownership is not None and memory.link is not None and memory.link.is_opening:
            return False  # a hub that has just started calls no server away before it has asked
        if plan.events or differs_in_substance(plan.status, seen.job.status):
            return True
        return now - memory.status_at >= _STATUS_INTERVAL.total_seconds()


def _patience(error: SpesError) -> int:
    """After how many passes in a row that end so a person is told: the first may be of a moment."""
    is_race = isinstance(error, ConflictError) and not isinstance(error, RefusedError)
    return _CONFLICTS if is_race else 1
