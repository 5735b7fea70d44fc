"""What a job will cost before anything runs: on equal peers, or on the members of a file. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spes_api.job import SpesJob, SpesJobSpec
from spes_api.members import MembersFile, SlotEntry

from spes_operator.names import ExpertId, PeerId
from spes_operator.placement.costs import (
    GB,
    PeerCosts,
    RoundCosts,
    peer_costs,
    peer_shares,
    round_costs,
)
from spes_operator.placement.decision import NOTHING_PLACED, Candidate
from spes_operator.placement.explanation import shortage
from spes_operator.placement.placement import place
from spes_operator.placement.slots import Room, slot_activation_bytes, slot_capacity, too_small


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One peer, or several that cost the same."""

    label: str
    num_peers: int
    costs: PeerCosts
    offered_bytes: int | None = None
    """Device memory of its slot; None: the slots are not known."""
    capacity: int | None = None
    """Experts that fit into it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A place for a peer."""

    room: Room
    rate: float | None
    """Speed, in any unit; None: not measured yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The costs of a job."""

    job: SpesJob
    num_peers: int
    rows: tuple[Row, ...]
    round: RoundCosts
    reasons: tuple[str, ...] = ()
    """Why each peer gets its experts."""
    problem: str = ""
    """Why the job cannot start on these members; empty: it can."""


def estimate_equal_peers(job: SpesJob) -> Estimate:
    """The costs on members.max peers of equal memory and speed."""
    spec = job.spec
    activation = slot_activation_bytes(spec, None)
    shares = peer_shares(spec)
    costs = [peer_costs(spec, num_experts=share, activation_bytes=activation) for share in shares]
    rows = []
    for share in sorted(set(shares), reverse=True):
        alike = shares.count(share)
        rows.append(
            Row(
                label=f"each of {alike} peers" if alike > 1 else "1 peer",
                num_peers=alike,
                costs=costs[shares.index(share)],
            )
        )
    return Estimate(
        job=job, num_peers=len(shares), rows=tuple(rows), round=round_costs(spec, costs)
    )


def estimate_members(job: SpesJob, members: MembersFile) -> Estimate:
    """The costs on the slots of a members file, each as fast as its slowdown lets it be.

    A member that only joins later counts as present.
    """
    slots = _selected(job.spec, members)
    return estimate_slots(
        job,
        {
            peer: Slot(room=Room(slot.memory_bytes, slot.activation_bytes), rate=1 / slot.slowdown)
            for peer, slot in slots.items()
        },
    )


def estimate_slots(
    job: SpesJob, slots: Mapping[PeerId, Slot], *, owners: Mapping[ExpertId, PeerId] | None = None
) -> Estimate:
    """The costs on given slots, all of which the job uses.

    Args:
        job: The job.
        slots: By peer.
        owners: Who owns what; None: nobody yet, so that they are placed here.
    """
    spec = job.spec
    candidates = [_candidate(spec, peer, slot) for peer, slot in slots.items()]
    num_experts, everything = spec.model.resolve().num_experts, spec.algorithm.replicated
    placement = (
        NOTHING_PLACED
        if everything or owners is not None
        else place(num_experts, candidates, owners={}, routed_tokens={})
    )
    owned = list((placement.owners if owners is None else owners).values())
    rows = tuple(
        Row(
            label=one.peer,
            num_peers=1,
            costs=peer_costs(
                spec,
                num_experts=num_experts if everything else owned.count(one.peer),
                activation_bytes=slot_activation_bytes(spec, slots[one.peer].room.activation_bytes),
            ),
            offered_bytes=slots[one.peer].room.memory_bytes,
            capacity=one.capacity,
        )
        for one in candidates
    )
    return Estimate(
        job=job,
        num_peers=len(rows),
        rows=rows,
        round=round_costs(spec, [row.costs for row in rows]),
        reasons=placement.reasons[: len(candidates)],
        problem=_problem(spec, slots, rows, candidates),
    )


def _problem(
    spec: SpesJobSpec,
    slots: Mapping[PeerId, Slot],
    rows: Sequence[Row],
    candidates: Sequence[Candidate],
) -> str:
    rooms = {peer: slot.room for peer, slot in slots.items()}
    if spec.algorithm.replicated and (small := too_small(spec, rooms)):
        return small
    return _too_few(spec, rows) or shortage(spec.model.resolve().num_experts, candidates) or ""


def _selected(spec: SpesJobSpec, members: MembersFile) -> Mapping[PeerId, SlotEntry]:
    peers = {
        PeerId(peer): slot
        for member in members.members
        if spec.members.selector.items() <= member.labels.items()
        for peer, slot in member.peers
    }
    return dict(sorted(peers.items())[: spec.members.max])


def _candidate(spec: SpesJobSpec, peer: PeerId, slot: Slot) -> Candidate:
    return Candidate(peer=peer, capacity=slot_capacity(spec, **slot.room._asdict()), rate=slot.rate)


def _too_few(spec: SpesJobSpec, rows: Sequence[Row]) -> str:
    """Why fewer than members.min of these peers can hold the model; empty: enough can."""
    able = [row for row in rows if row.capacity is not None and row.capacity >= 0]
    if len(able) >= spec.members.min:
        return ""
    short = ", ".join(
        f"{row.label} has {row.offered_bytes / GB:.3f} of {row.costs.device_bytes / GB:.3f} GB"
        for row in rows
        if row.offered_bytes is not None and row not in able
    )
    return (
        f"members.min is {spec.members.min}, but {len(able)} of {len(rows)} selected peers have "
        f"memory for the model ({short or 'no more are selected'}); "
        "add members or memory, or lower members.min"
    )
