"""Handing over within a grace period: own experts, then the shared part, then moments.

Each part is a push of its own, so one that does not arrive costs nothing of the others. A part that
the measured rate says will not fit is not begun: half a push is worth nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from spes_proto.v1 import sync_pb2

from spes_sync.client.actions import Leave, Push
from spes_sync.client.holdings import Holdings
from spes_sync.client.learner import Learner
from spes_sync.client.uploads import Shipment, Uploads
from spes_sync.client.work import Work
from spes_sync.codec import encoded_bytes
from spes_sync.errors import SyncError
from spes_sync.manifest import SHARED, TensorSpec

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


class Leaving:
    """One hand-over of one peer."""

    def __init__(self, learner: Learner, holdings: Holdings, uploads: Uploads) -> None:
        """Nothing happens before `hand_over`."""
        self._learner = learner
        self._holdings = holdings
        self._uploads = uploads

    def hand_over(self, handover: Handover) -> None:
        """Push what fits; what does not is logged, never raised."""
        deadline = time.monotonic() + handover.leave.grace_seconds * _USABLE_SHARE
        for shipment, tensors in self._parts(handover):
            left = deadline - time.monotonic()
            needed = self._uploads.seconds_for(encoded_bytes(tensors))
            name = f"{sync_pb2.Part.Name(shipment.part)}/{shipment.expert}"
            if left <= 0 or needed > left:
                logger.warning(
                    "part does not fit the grace part=%s needs_s=%.1f left_s=%.1f",
                    name,
                    needed,
                    left,
                )
                continue
            try:
                reply = self._ship(shipment, tensors, timedelta(seconds=left))
            except SyncError as error:
                logger.warning("part not handed over part=%s reason=%s", name, error)
            else:
                verdict = sync_pb2.Verdict.Name(reply.verdict)
                logger.info("part handed over part=%s verdict=%s", name, verdict)

    def _parts(self, handover: Handover) -> Iterator[tuple[Shipment, tuple[TensorSpec, ...]]]:
        manifest, push = self._learner.manifest, handover.leave.push
        if push is not None and handover.leave.whole:
            yield self._final(handover, push, sync_pb2.ALL), manifest.trained_by(handover.owned)
            push = None
        experts = tuple(t for t in manifest.trained_by(handover.owned) if t.expert != SHARED)
        if push is not None and experts:
            yield self._final(handover, push, sync_pb2.EXPERTS), experts
        if push is not None:
            yield self._final(handover, push, sync_pb2.SHARED), manifest.shared()
        key = Push(round=handover.version, base_version=handover.version, epoch=handover.epoch)
        for expert in handover.owned:
            shipment = Shipment(push=key, kind=sync_pb2.FINAL, part=sync_pb2.MOMENTS, expert=expert)
            yield shipment, manifest.moments_of(expert).tensors

    def _final(self, handover: Handover, push: Push, part: sync_pb2.Part) -> Shipment:
        return Shipment(push=push, kind=sync_pb2.FINAL, part=part, work=handover.work)

    def _ship(
        self, shipment: Shipment, tensors: tuple[TensorSpec, ...], deadline: timedelta
    ) -> sync_pb2.PushReply:
        values = self._holdings.progress(tensors)
        if shipment.part == sync_pb2.MOMENTS:
            moments = self._learner.moments(shipment.expert)
            tensors = tuple(tensor for tensor in tensors if tensor.name in moments)
            if not tensors:
                return sync_pb2.PushReply()
            values = ((tensor.name, moments[tensor.name]) for tensor in tensors)
        payload = self._uploads.spool(tensors, values)
        return self._uploads.send(shipment, payload, deadline=deadline)
