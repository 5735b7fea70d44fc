"""Ownership: which peer trains which expert, under which epoch. Pure.

Its ConfigMap is the one commit point. Written by the hub alone, by compare-and-swap on
`resource_version`; read also by reports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from spes_operator.clock import from_text, to_text
from spes_operator.errors import ConfigError
from spes_operator.k8s.api import JsonObject
from spes_operator.names import (
    LABEL_JOB,
    LABEL_JOB_UID,
    ExpertId,
    ObjectKey,
    PeerId,
    ownership_name,
)

# Moves kept in the ConfigMap, newest last; about 200 bytes each, and a ConfigMap holds 1 MiB.
MAX_MOVES = 2048
_DATA_KEY = "ownership.json"


class Cause(Enum):
    """Why experts moved."""

    START = "Start"
    DEPARTURE = "Departure"
    """A peer was drained, removed, or its slot taken away."""
    SILENCE = "Silence"
    BALANCE = "Balance"
    """A peer joined, or a limit changed."""
    PARKING = "Parking"
    """Memory does not suffice for all experts; they take turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One expert changed its owner."""

    epoch: int
    time: datetime
    round: int
    expert: ExpertId
    source: PeerId | None
    """None: it had no owner."""
    target: PeerId | None
    """None: it is parked."""
    cause: Cause
    reason: str
    """One sentence."""
    lower_bound: int
    """The fewest moves that this change of ownership could have taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """One epoch of ownership, and how it came about."""

    epoch: int
    incarnation: int = 1
    """Counts how often the model was seeded; raised when the sync server's volume is lost."""
    replicated: bool = False
    """Every placed peer trains every expert: there are no owners, and nothing moves."""
    peers: tuple[PeerId, ...] = ()
    """The placed peers, sorted; some may own nothing."""
    owners: Mapping[ExpertId, PeerId] = field(default_factory=dict)
    granted: Mapping[ExpertId, int] = field(default_factory=dict)
    """The epoch in which each expert's owner got it."""
    parked: tuple[ExpertId, ...] = ()
    moves: tuple[Move, ...] = ()
    changed_at: datetime
    changed_in_version: int = -1
    released: str = ""
    """The last value of the reassign annotation that was acted upon."""
    resource_version: str = ""
    """Empty: not stored yet."""

    def owned_by(self, peer: PeerId) -> tuple[ExpertId, ...]:
        """The experts of a peer, in order."""
        return tuple(sorted(expert for expert, owner in self.owners.items() if owner == peer))

    def trained(self, *, num_experts: int) -> dict[PeerId, tuple[ExpertId, ...]]:
        """The experts that each peer trains, in order."""
        if self.replicated:
            everything = tuple(map(ExpertId, range(num_experts)))
            return dict.fromkeys(self.peers, everything)
        found: dict[PeerId, list[ExpertId]] = {peer: [] for peer in self.peers}
        for expert in sorted(self.owners):
            found.setdefault(self.owners[expert], []).append(expert)
        return {peer: tuple(experts) for peer, experts in found.items()}

    def trained_by(self, peer: PeerId, *, num_experts: int) -> tuple[ExpertId, ...]:
        """The experts that a peer trains, in order: its own, or all of them."""
        if not self.replicated:
            return self.owned_by(peer)
        return tuple(map(ExpertId, range(num_experts))) if peer in self.peers else ()

    def moves_after(self, epoch: int) -> tuple[Move, ...]:
        """The moves of later epochs."""
        return tuple(move for move in self.moves if move.epoch > epoch)

    def to_config_map(self, job: ObjectKey, job_uid: str) -> JsonObject:
        """The ConfigMap; carries the resourceVersion that must still be the stored one."""
        metadata: JsonObject = {
            "namespace": job.namespace,
            "name": ownership_name(job.name),
            "labels": {LABEL_JOB: job.name, LABEL_JOB_UID: job_uid},
        }
        if self.resource_version:
            metadata["resourceVersion"] = self.resource_version
        text = json.dumps(_to_document(self), separators=(",", ":"))
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {_DATA_KEY: text},
        }

    @classmethod
    def from_config_map(cls, obj: JsonObject) -> Ownership:
        """The ownership that `to_config_map` wrote.

        Raises:
            ConfigError: Somebody else wrote it.
        """
        try:
            return _from_document(
                json.loads(obj["data"][_DATA_KEY]), obj["metadata"]["resourceVersion"]
            )
        except (KeyError, ValueError, TypeError) as error:
            name = obj.get("metadata", {}).get("name")
            raise ConfigError(
                f"ConfigMap {name} is not an ownership ({error!r:.120}); delete it, and the "
                "hub goes on from the sync server's epoch"
            ) from error


def _to_document(ownership: Ownership) -> dict[str, Any]:
    return {
        "epoch": ownership.epoch,
        "incarnation": ownership.incarnation,
        "replicated": ownership.replicated,
        "peers": list(ownership.peers),
        "owners": {str(expert): peer for expert, peer in sorted(ownership.owners.items())},
        "granted": {str(expert): epoch for expert, epoch in sorted(ownership.granted.items())},
        "parked": list(ownership.parked),
        "changedAt": to_text(ownership.changed_at),
        "changedInVersion": ownership.changed_in_version,
        "released": ownership.released,
        "moves": [
            {
                "epoch": move.epoch,
                "time": to_text(move.time),
                "round": move.round,
                "expert": move.expert,
                "from": move.source,
                "to": move.target,
                "cause": move.cause.value,
                "reason": move.reason,
                "lowerBound": move.lower_bound,
            }
            for move in ownership.moves[-MAX_MOVES:]
        ],
    }


def _from_document(document: dict[str, Any], resource_version: str) -> Ownership:
    return Ownership(
        epoch=int(document["epoch"]),
        incarnation=int(document["incarnation"]),
        replicated=bool(document.get("replicated")),
        peers=tuple(PeerId(peer) for peer in document["peers"]),
        owners={ExpertId(int(e)): PeerId(peer) for e, peer in document["owners"].items()},
        granted={ExpertId(int(e)): int(epoch) for e, epoch in document["granted"].items()},
        parked=tuple(ExpertId(e) for e in document["parked"]),
        changed_at=from_text(document["changedAt"]),
        changed_in_version=int(document["changedInVersion"]),
        released=str(document["released"]),
        resource_version=resource_version,
        moves=tuple(
            Move(
                epoch=int(move["epoch"]),
                time=from_text(move["time"]),
                round=int(move["round"]),
                expert=ExpertId(int(move["expert"])),
                source=None if move["from"] is None else PeerId(move["from"]),
                target=None if move["to"] is None else PeerId(move["to"]),
                cause=Cause(move["cause"]),
                reason=str(move["reason"]),
                lower_bound=int(move["lowerBound"]),
            )
            for move in document["moves"]
        ),
    )
