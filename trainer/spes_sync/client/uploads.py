"""Pushes of one peer: spooled once, sent until answered, timed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from spes_proto.v1 import sync_pb2

from spes_sync.client.actions import RETRANSMIT, Push
from spes_sync.client.connection import Connection, Unwanted, never
from spes_sync.client.learner import JobTerms
from spes_sync.client.precision import Upload
from spes_sync.client.transfer import Payload, push_parts, spool
from spes_sync.client.work import Work
from spes_sync.entropy import Huffman
from spes_sync.errors import ServerUnavailableError
from spes_sync.manifest import TensorSpec
from spes_sync.quantize import Codec

# Smaller uploads say more about latency than about the link.
_MIN_TIMED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """What one push is about; the tensors come apart from it."""

    push: Push
    kind: sync_pb2.Kind
    part: sync_pb2.Part
    work: Work = field(default_factory=Work)
    expert: int = 0  # of a MOMENTS part


class Uploads:
    """Sends payloads under this process's keys."""

    def __init__(
        self,
        connection: Connection,
        terms: JobTerms,
        directory: Path,
        *,
        codes_entropy: bool = False,
    ) -> None:
        """Spool below `directory`; chunks are Huffman-coded on their way, or not."""
        self._codes_entropy = codes_entropy
        self._connection = connection
        self._terms = terms
        self._path = directory / "push.spool"
        self.samples = 0  # sequences of this peer's data, told with every push
        self.last: Upload | None = None  # if it was large enough to be timed
        self.bytes_per_second: float | None = None  # of the last upload that was large enough

    def spool(
        self,
        tensors: tuple[TensorSpec, ...],
        buffers: Iterable[memoryview | bytearray],
        codec: Codec = Codec.FP32,
    ) -> Payload:
        """Write what will be sent; replaces what was spooled before."""
        return spool(self._path, tensors, buffers, codec)

    def send(
        self,
        shipment: Shipment,
        payload: Payload,
        *,
        deadline: timedelta | None = None,
        unwanted: Unwanted = never,
    ) -> sync_pb2.PushReply:
        """Send a payload once, unless it becomes unwanted meanwhile.

        Raises:
            ServerUnavailableError: the stream broke, or the server could not keep what it got:
                the same bytes are worth another attempt.
        """
        self.last, started = None, time.monotonic()
        coder = Huffman() if self._codes_entropy else None
        parts = push_parts(self._header(shipment), payload, coder)
        reply = self._connection.push(parts, deadline=deadline, unwanted=unwanted)
        if reply.verdict == sync_pb2.REFUSED and reply.reason in RETRANSMIT:
            reason = sync_pb2.Reason.Name(reply.reason)
            raise ServerUnavailableError(f"push not kept ({reason}: {reply.detail})")
        seconds = time.monotonic() - started
        num_bytes = payload.num_bytes - (coder.saved_bytes if coder is not None else 0)
        if num_bytes >= _MIN_TIMED_BYTES and seconds > 0:
            self.bytes_per_second = num_bytes / seconds
            ratio = num_bytes / payload.num_bytes
            self.last = Upload(num_bytes=num_bytes, seconds=seconds, ratio=ratio)
        return reply

    def seconds_for(self, num_bytes: int) -> float:
        """How long an upload of this size would take; 0 if no rate is known."""
        return num_bytes / self.bytes_per_second if self.bytes_per_second else 0.0

    def _header(self, shipment: Shipment) -> sync_pb2.PushHeader:
        push, work = shipment.push, shipment.work
        key = sync_pb2.PushKey(
            job_uid=self._terms.job_uid,
            incarnation=self._terms.incarnation,
            peer=self._terms.peer,
            round=push.round,
            base_version=push.base_version,
            epoch=push.epoch,
            part=shipment.part,
            expert=shipment.expert,
        )
        return sync_pb2.PushHeader(
            key=key,
            kind=shipment.kind,
            steps=work.steps,
            tokens=work.tokens,
            loss=work.loss,
            routed_tokens=work.routed_tokens,
            samples=self.samples,
            staleness=work.missed,
        )
