"""Handing over within a grace period: own experts, then the shared part, then moments.

Each part is a push of its own, so one that does not arrive costs nothing of the others. A part that
the measured rate says will not fit is not begun: half a push is worth nothing. Own experts go in
FP32, with all that is still owed of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from spes_proto.v1 import sync_pb2

from spes_sync.client.actions import Leave, Push
from spes_sync.client.exchange import Exchange
from spes_sync.client.learner import Learner
from spes_sync.client.transfer import Payload
from spes_sync.client.uploads import Shipment
from spes_sync.client.work import Work
from spes_sync.codec import encode
from spes_sync.errors import SyncError
from spes_sync.payloads import payload_bytes

logger = logging.getLogger(__name__)

# The rest of the grace is for saying goodbye and for the process to end by itself.
_USABLE_SHARE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What a leaving peer has to give."""

    leave: Leave
    work: Work
    owned: tuple[int, ...]
    version: int
    epoch: int

    @property
    def is_taken(self) -> bool:
        """Whether the server has all progress already, or the open round would take it."""
        return not self.work.steps or self.leave.push is not None or self.leave.whole


class Leaving:
    """One hand-over of one peer."""

    def __init__(self, learner: Learner, exchange: Exchange) -> None:
        """Nothing happens before `hand_over`."""
        self._learner = learner
        self._exchange = exchange
        self._uploads = exchange.uploads

    def hand_over(self, handover: Handover) -> None:
        """Push what fits; what does not is logged, never raised."""
        deadline = time.monotonic() + handover.leave.grace_seconds * _USABLE_SHARE
        dropped = [] if handover.is_taken else ["ALL"]
        for shipment in self._parts(handover):
            taken = self._hand_over_part(shipment, deadline)
            if not taken and shipment.part != sync_pb2.MOMENTS:
                dropped.append(sync_pb2.Part.Name(shipment.part))
        if dropped:
            logger.warning(
                "progress dropped steps=%d tokens=%d parts=%s reason=%s",
                handover.work.steps,
                handover.work.tokens,
                ",".join(dropped),
                handover.leave.reason,
            )

    def _hand_over_part(self, shipment: Shipment, deadline: float) -> bool:
        """Whether the server has taken the part."""
        left = deadline - time.monotonic()
        needed = self._uploads.seconds_for(self._num_bytes(shipment))
        name = f"{sync_pb2.Part.Name(shipment.part)}/{shipment.expert}"
        if left <= 0 or needed > left:
            logger.warning(
                "part does not fit the grace part=%s needs_s=%.1f left_s=%.1f", name, needed, left
            )
            return False
        try:
            reply = self._ship(shipment, timedelta(seconds=left))
        except SyncError as error:
            logger.warning("part not handed over part=%s reason=%s", name, error)
            return False
        verdict = sync_pb2.Verdict.Name(reply.verdict)
        logger.info("part handed over part=%s verdict=%s", name, verdict)
        return reply.verdict not in (sync_pb2.REBASE, sync_pb2.REFUSED)

    def _parts(self, handover: Handover) -> Iterator[Shipment]:
        push = handover.leave.push
        if push is not None and handover.leave.whole:
            yield self._final(handover, push, sync_pb2.ALL)
            push = None
        if push is not None and handover.owned:
            yield self._final(handover, push, sync_pb2.EXPERTS)
        if push is not None:
            yield self._final(handover, push, sync_pb2.SHARED)
        key = Push(round=handover.version, base_version=handover.version, epoch=handover.epoch)
        for expert in handover.owned:
            yield Shipment(push=key, kind=sync_pb2.FINAL, part=sync_pb2.MOMENTS, expert=expert)

    def _final(self, handover: Handover, push: Push, part: sync_pb2.Part) -> Shipment:
        return Shipment(push=push, kind=sync_pb2.FINAL, part=part, work=handover.work)

    def _num_bytes(self, shipment: Shipment) -> int:
        if shipment.part == sync_pb2.MOMENTS:
            return payload_bytes(self._learner.manifest.moments_of(shipment.expert))
        return self._exchange.num_bytes(shipment.part, lossless=_flushes(shipment))

    def _ship(self, shipment: Shipment, deadline: timedelta) -> sync_pb2.PushReply:
        if shipment.part == sync_pb2.MOMENTS:
            payload = self._moments(shipment.expert)
        else:
            payload = self._exchange.spool(
                shipment.push, shipment.part, lossless=_flushes(shipment)
            )
        if payload is None:
            return sync_pb2.PushReply()
        return self._uploads.send(shipment, payload, deadline=deadline)

    def _moments(self, expert: int) -> Payload | None:
        moments = self._learner.moments(expert)
        manifest = self._learner.manifest.moments_of(expert)
        tensors = tuple(tensor for tensor in manifest if tensor.name in moments)
        buffers = (encode(moments[tensor.name]) for tensor in tensors)
        return self._uploads.spool(tensors, buffers) if tensors else None


def _flushes(shipment: Shipment) -> bool:
    """Whether all that is owed goes along: nobody else can pay what is owed of own experts."""
    return shipment.part == sync_pb2.EXPERTS
