"""The plan: who is placed, who owns which expert and since which epoch. Pure.

The hub decides plans; the sync server keeps two, the active one (that of the last opened round)
and the newest. The epoch is a fencing token per expert, not per peer: a change for others throws
nobody's work away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

from spes_proto.v1 import sync_pb2

from spes_sync.errors import ProtocolError

# "<member>.<slot>". It becomes a file name, hence the pattern.
PeerId = NewType("PeerId", str)

# Placed peers a plan may name: members.max of a job.
MAX_PEERS = 512

_PEER = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


def peer_id(text: str) -> PeerId:
    """Check a peer's name.

    Raises:
        ProtocolError: it is no name that could also be a file's.
    """
    if not _PEER.fullmatch(text) or ".." in text:
        raise ProtocolError(
            sync_pb2.PROTOCOL,
            f"peer name (got {text[:63]!r}, expected a-z, 0-9, - and . up to 63 characters)",
        )
    return PeerId(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """An expert's owner and the epoch in which it became that."""

    peer: PeerId
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Placed peers and owners under one ownership epoch."""

    epoch: int = 0
    peers: tuple[PeerId, ...] = ()
    owners: Mapping[int, Grant] = field(default_factory=dict)
    parked: tuple[int, ...] = ()
    replicated: bool = False
    """Every peer trains everything: to such a job all tensors are shared, there are no experts."""

    def counts(self, expert: int, *, peer: PeerId, epoch: int) -> bool:
        """Whether `peer`'s work on `expert`, done under `epoch`, counts.

        It does if the peer owns the expert and has owned it since that epoch or before; what it did
        before it lost and regained the expert does not.
        """
        grant = self.owners.get(expert)
        return grant is not None and grant.peer == peer and epoch >= grant.epoch

    def experts_of(self, peer: PeerId) -> tuple[int, ...]:
        """What a peer owns, ascending."""
        return tuple(sorted(e for e, grant in self.owners.items() if grant.peer == peer))

    def to_proto(self) -> sync_pb2.Plan:
        """The wire form."""
        owners = [
            sync_pb2.Owner(expert=expert, peer=grant.peer, granted_epoch=grant.epoch)
            for expert, grant in sorted(self.owners.items())
        ]
        return sync_pb2.Plan(
            epoch=self.epoch,
            replicated=self.replicated,
            owners=owners,
            parked=self.parked,
            peers=list(self.peers),
        )

    @classmethod
    def from_proto(cls, plan: sync_pb2.Plan) -> Plan:
        """Read and check the wire form.

        Raises:
            ProtocolError: a name is no peer's, an expert has two owners, an owner is not placed,
                a grant is younger than the plan, or a replicated plan speaks of experts.
        """
        if plan.replicated and (plan.owners or plan.parked):
            raise _wrong(
                f"plan.replicated has no owners (got {len(plan.owners)}, and "
                f"{len(plan.parked)} parked): every peer trains everything"
            )
        if plan.epoch < 0 or len(plan.peers) > MAX_PEERS:
            raise _wrong(f"plan (got epoch {plan.epoch} and {len(plan.peers)} peers)")
        peers = tuple(sorted({peer_id(peer) for peer in plan.peers}))
        owners = {o.expert: Grant(peer=PeerId(o.peer), epoch=o.granted_epoch) for o in plan.owners}
        if len(owners) != len(plan.owners) or owners.keys() & set(plan.parked):
            raise _wrong("plan.owners names an expert twice, or one that is parked")
        for expert, grant in owners.items():
            if grant.peer not in peers:
                raise _wrong(f"owner of expert {expert} is not placed (got {grant.peer!r})")
            if not 0 <= grant.epoch <= plan.epoch:
                raise _wrong(f"expert {expert} granted in epoch {grant.epoch} of plan {plan.epoch}")
        return cls(
            epoch=plan.epoch,
            peers=peers,
            owners=owners,
            parked=tuple(plan.parked),
            replicated=plan.replicated,
        )


def _wrong(detail: str) -> ProtocolError:
    return ProtocolError(sync_pb2.PROTOCOL, detail)
