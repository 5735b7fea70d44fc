"""From what hub, sync server and this run know to the `RunView` that a person sees. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from spes_api.job import SpesJob
from spes_api.members import MembersFile

from spes_operator.clock import from_text
from spes_operator.display import EventLine, PeerView, RunView
from spes_operator.hub.ownership import Ownership
from spes_operator.hub.sync_state import PeerState, Phase, SyncState
from spes_operator.k8s.api import JsonObject
from spes_operator.local.journal_tail import Past, Total
from spes_operator.names import PeerId
from spes_operator.reasons import READY

# More than fit on any screen.
_MAX_EVENTS = 50
_PHASES = {
    Phase.SEEDING: "making the first version",
    Phase.WAITING: "waiting for peers",
    Phase.OPEN: "training",
    Phase.HELD: "round held",
    Phase.CLOSING: "committing",
    Phase.COMPLETE: "finished",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Everything that is known at one moment."""

    job: SpesJob
    """With the status that the hub wrote."""
    members: MembersFile
    absent: frozenset[str]
    """Members whose agent does not run."""
    preempted: frozenset[str]
    """Members whose nodes were taken away."""
    elapsed: timedelta
    phase: str = ""
    """Overrides the sync server's, while it starts or the run ends."""
    sync: SyncState | None
    """None: the sync server is not reached."""
    ownership: Ownership | None
    past: Past
    events: Sequence[JsonObject]
    """Kubernetes Events, oldest first."""

    @property
    def version(self) -> int:
        """The last committed version that is known; -1: none."""
        return self.sync.version if self.sync else -1


def picture(moment: Moment) -> RunView:
    """What the screen shows of `moment`."""
    spec, sync = moment.job.spec, moment.sync or SyncState()
    peers = tuple(
        _peer(moment, PeerId(peer), member.name)
        for member in moment.members.members
        for peer, _ in member.peers
    )
    rates = [peer.tokens_per_second for peer in peers if peer.tokens_per_second is not None]
    problem = sync.problem or (waiting(moment) if moment.version >= 0 else "")
    return RunView(
        job=moment.job.metadata.name,
        phase=moment.phase or _PHASES[sync.phase],
        num_experts=spec.model.resolve().num_experts,
        max_tokens=spec.training.max_tokens,
        elapsed=moment.elapsed,
        peers=peers,
        round=sync.version if sync.phase is Phase.COMPLETE else sync.round,
        version=sync.version,
        tokens=sync.global_tokens,
        tokens_per_second=sum(rates) if rates else None,
        held_out=moment.past.held_out,
        epoch=sync.active_epoch,
        deadline_in=sync.left_of_round if sync.phase in (Phase.OPEN, Phase.HELD) else None,
        events=tuple(_line(event) for event in moment.events[-_MAX_EVENTS:]),
        problem=problem,
    )


def _peer(moment: Moment, peer: PeerId, member: str) -> PeerView:
    sync, spec = moment.sync or SyncState(), moment.job.spec
    state = sync.peers.get(peer)
    num_experts, ownership = spec.model.resolve().num_experts, moment.ownership
    experts = ownership.trained_by(peer, num_experts=num_experts) if ownership else ()
    before = moment.past.totals.get(peer, Total())
    if state is None:
        return PeerView(
            peer=peer,
            state=_presence(moment, member) or "starting",
            experts=experts,
            bytes_up=before.bytes_up,
            bytes_down=before.bytes_down,
            waited=before.waited,
        )
    pushed = peer in sync.pushed
    return PeerView(
        peer=peer,
        state=_presence(moment, member) or _activity(state, sync, placed=bool(experts)),
        experts=experts,
        tokens_per_second=state.tokens_per_second if state.connected else None,
        loss=state.loss or None,
        step=state.steps if peer in sync.expected else 0,
        steps_per_round=spec.sync.every_steps,
        pushed=pushed,
        # The server counts anew when it or the peer has been away.
        bytes_up=max(before.bytes_up, state.bytes_up),
        bytes_down=max(before.bytes_down, state.bytes_down),
        waited=max(before.waited, state.waited),
        problem=f"{state.refusals} pushes refused" if state.refusals else "",
    )


def _presence(moment: Moment, member: str) -> str:
    if member in moment.absent:
        return "absent"
    return "preempted" if member in moment.preempted else ""


def _activity(state: PeerState, sync: SyncState, *, placed: bool) -> str:
    if state.left:
        return "left"
    if sync.phase is Phase.COMPLETE:
        return "done"
    if not state.connected:
        return "lost" if placed else "starting"
    if state.peer in sync.pushed:
        return "pushed"
    if state.peer in sync.expected:
        return "training"
    return "ready" if state.caught_up else "catching up"


def waiting(moment: Moment) -> str:
    """Why the job is not ready, as the hub says; empty: it is."""
    for condition in moment.job.status.conditions:
        if condition.type == READY and condition.status == "False":
            return condition.message
    return ""


def _line(event: JsonObject) -> EventLine:
    return EventLine(
        time=from_text(event["eventTime"]),
        text=event["message"],
        warning=event["type"] == "Warning",
    )
