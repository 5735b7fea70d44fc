"""What a sync server says to a peer, in short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spes_proto.v1 import sync_pb2
from spes_sync.client.learner import StepResult

ME, OTHER = "uni-a.0", "uni-b.0"


def plan(
    owners: Mapping[int, tuple[str, int]], *, epoch: int = 1, peers: Sequence[str] = (ME, OTHER)
) -> sync_pb2.ServerEvent:
    """Owners as expert -> (peer, epoch in which it was granted)."""
    rows = [
        sync_pb2.Owner(expert=expert, peer=peer, granted_epoch=granted)
        for expert, (peer, granted) in owners.items()
    ]
    return sync_pb2.ServerEvent(plan=sync_pb2.Plan(epoch=epoch, owners=rows, peers=peers))


def opened(
    number: int, *, epoch: int = 1, sequences: int = 100, **more: Any
) -> sync_pb2.ServerEvent:
    """Round `number` opens on the version before it."""
    fields: dict[str, Any] = {"global_tokens": 0, "num_expected": 2, **more}
    lease = [sync_pb2.Lease(first=1000 * number, count=sequences)]
    message = sync_pb2.RoundOpen(
        round=number, base_version=number - 1, epoch=epoch, lease=lease, **fields
    )
    return sync_pb2.ServerEvent(round_open=message)


def committed(
    version: int, *included: tuple[str, str], hashes: Mapping[str, str] | None = None
) -> sync_pb2.ServerEvent:
    """A version is served; `included` are (peer, SHA-256 of its push)."""
    return sync_pb2.ServerEvent(
        committed=sync_pb2.Committed(
            version=version,
            round=version,
            included=[sync_pb2.Included(peer=peer, sha256=sha) for peer, sha in included],
            tensor_hashes=[
                sync_pb2.TensorHash(name=name, sha256=sha) for name, sha in (hashes or {}).items()
            ],
        )
    )


def stepped(tokens: int = 8, loss: float = 1.0) -> StepResult:
    """An optimizer step went well."""
    return StepResult(loss=loss, tokens=tokens, routed_tokens=(tokens, 0))


def reply(verdict: str, reason: str = "REASON_UNSPECIFIED", **more: Any) -> sync_pb2.PushReply:
    """An answer to a push."""
    return sync_pb2.PushReply(verdict=verdict, reason=reason, **more)
