"""What a peer exchanges with the server: seed, pushes, frames, moments.

Called by the driver alone. Each method carries out one action of the machine and reports what came
of it; a call that the server cannot answer now raises, and may simply be made again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from spes_api.job import SpesJobSpec
from spes_proto.v1 import sync_pb2

from spes_sync.bases import NO_VERSION, Fate
from spes_sync.client import actions as act
from spes_sync.client.connection import Connection, Unwanted
from spes_sync.client.holdings import Holdings
from spes_sync.client.learner import JobTerms
from spes_sync.client.machine import PeerMachine
from spes_sync.client.precision import Precision
from spes_sync.client.residuals import Residuals
from spes_sync.client.transfer import Download, Frame, Payload
from spes_sync.client.uploads import Shipment, Uploads
from spes_sync.codec import Array, encode
from spes_sync.errors import DivergedError, PushRefusedError, StaleSessionError
from spes_sync.manifest import Manifest
from spes_sync.payloads import all_in, payload_bytes
from spes_sync.quantize import Codec

logger = logging.getLogger(__name__)


class Exchange:
    """Moves tensors between the server and a peer's holdings."""

    def __init__(
        self,
        machine: PeerMachine,
        holdings: Holdings,
        connection: Connection,
        job: JobTerms,
        directory: Path,
    ) -> None:
        """Spool below `directory`; deltas as precisely as the job's uplink says."""
        compression = SpesJobSpec.model_validate_json(job.settings_json).sync.compression
        self.uploads = Uploads(
            connection, job, directory, codes_entropy=compression.entropy == "Huffman"
        )
        self._precision = Precision(compression.uplink)
        self._residuals = Residuals(directory, holdings.manifest, job.incarnation)
        self._machine = machine
        self._holdings = holdings
        self._connection = connection
        self._pulled = directory / "pull.spool"
        self._download: Download | None = None
        self._spooled: tuple[act.Push, Payload] | None = None
        self._diverged = False

    def close(self) -> None:
        """Give up a pull in progress."""
        if self._download is not None:
            self._download.close()

    def forget_push(self) -> None:
        """What was spooled is not the progress any more."""
        self._spooled = None

    def seed(self, unwanted: Unwanted) -> None:
        """Push the live weights as version 0.

        Raises:
            PushRefusedError: they are not a model that the server takes.
        """
        manifest = self._holdings.manifest
        weights = (encode(value) for _, value in self._holdings.everything())
        payload = self.uploads.spool(manifest.tensors, weights)
        push = act.Push(round=0, base_version=NO_VERSION, epoch=self._machine.ownership.plan.epoch)
        reply = self.uploads.send(
            Shipment(push=push, kind=sync_pb2.SEED, part=sync_pb2.ALL), payload, unwanted=unwanted
        )
        if reply.verdict == sync_pb2.REFUSED and reply.reason != sync_pb2.NOT_EXPECTED:
            raise PushRefusedError(reply.reason, f"the initial weights are refused: {reply.detail}")
        self._machine.seeded()

    def push(self, action: act.Push, unwanted: Unwanted, *, interval: float) -> None:
        """Push the progress; the same bytes again if the answer to them was lost.

        Args:
            action: Which push.
            unwanted: Breaks it off.
            interval: Seconds from one push to the next, without what the push itself takes.

        Raises:
            DivergedError: a weight is not finite.
            StaleSessionError: the server runs another job, or another life of this one.
        """
        machine = self._machine
        if self._spooled is None or self._spooled[0] != action:
            tensors = self._holdings.manifest.trained_by(machine.ownership.owned)
            self._precision.choose(sum(t.num_elements for t in tensors), interval)
            self._spooled = action, self.spool(action, sync_pb2.ALL)
        payload = self._spooled[1]
        shipment = Shipment(push=action, kind=sync_pb2.DELTA, part=sync_pb2.ALL, work=machine.work)
        machine.offering(action, payload.sha256)
        reply = self.uploads.send(shipment, payload, unwanted=unwanted)
        if self.uploads.last is not None:
            self._precision.sent(self.uploads.last)
        if reply.reason == sync_pb2.WRONG_JOB:
            raise StaleSessionError(f"the server runs another job than at Join: {reply.detail}")
        verdict = sync_pb2.Verdict.Name(reply.verdict)
        logger.info(
            "pushed round=%d verdict=%s bytes=%d steps=%d",
            action.round,
            verdict,
            payload.num_bytes,
            machine.work.steps,
        )
        machine.pushed(action, reply)

    def spool(self, push: act.Push, part: sync_pb2.Part, *, lossless: bool = False) -> Payload:
        """Write what will be pushed, and durably what it will owe.

        Args:
            push: Which one.
            part: Of the trained tensors.
            lossless: Whatever the job's codec, send all, also what is owed from before.

        Raises:
            DivergedError: a weight is not finite.
        """
        machine, manifest = self._machine, self._holdings.manifest
        if machine.was_removed:
            self._residuals.clear()
            machine.was_removed = False
        codec = Codec.FP32 if lossless else self._precision.codec
        tensors = manifest.part(part, machine.ownership.owned)
        span = None
        if codec.has_span:  # costs another look at all weights
            span = self._residuals.span(self._holdings.progress(tensors))
        deltas = self._holdings.progress(tensors)
        payload = self.uploads.spool(
            tensors, self._residuals.encoded(deltas, tensors, codec, span), codec
        )
        self._residuals.offer(push.base_version, part, payload.sha256)
        return replace(payload, codec_error=self._residuals.dropped.relative)

    def num_bytes(self, part: sync_pb2.Part, *, lossless: bool = False) -> int:
        """Size of what `spool` would write."""
        tensors = self._holdings.manifest.part(part, self._machine.ownership.owned)
        codec = Codec.FP32 if lossless else self._precision.codec
        return payload_bytes(tensors, all_in(codec, tensors))

    @property
    def version_to_say(self) -> int:
        """The version that a heartbeat says."""
        return self._machine.served.version_to_say(self._machine.version, self._residuals.undecided)

    def forget_experts(self, experts: Iterable[int]) -> None:
        """Nothing is owed of experts that come or go: only their owner can owe."""
        manifest = self._holdings.manifest
        self._residuals.drop(t for expert in experts for t in manifest.of_expert(expert))

    def rebase(self, action: act.Rebase, unwanted: Unwanted) -> None:
        """Come one frame closer to the latest version.

        A result that is not the server's, bit for bit, costs the progress: the model is then pulled
        in full.

        Raises:
            DivergedError: not even that is what the server says it is.
        """
        machine, hashes = self._machine, self._machine.served.hashes(action.latest)
        if action.have == NO_VERSION and hashes and self._holdings.match(hashes):
            self._holdings.start(action.latest)
            self._residuals.reach(action.latest, machine.served.counted(action.latest))
            machine.rebased(action.latest, Fate(included=False))
            return
        have = NO_VERSION if self._diverged else action.have
        request = sync_pb2.PullRequest(have_version=have, want_version=action.latest)
        try:
            frame = self._pull(request, self._holdings.manifest, unwanted)
            fate = machine.fate(frame.version, absolute=frame.absolute)
            if self._diverged:
                fate = Fate(included=False, absolute=True, sha256=fate.sha256)
            sent = self._spooled[1].read() if fate.included and self._spooled else ()
            self._holdings.rebase(frame, fate, sent)
        except DivergedError as error:
            if self._diverged:
                raise
            logger.warning("%s; progress is dropped, the model pulled anew", error)
            self._diverged = True
            return
        self._diverged = False
        self._spooled = None
        self._residuals.reach(frame.version, machine.served.counted(frame.version))
        machine.rebased(frame.version, fate)
        logger.info("re-based version=%d carried=%d", frame.version, len(fate.carried))

    def _pull(self, request: sync_pb2.PullRequest, manifest: Manifest, unwanted: Unwanted) -> Frame:
        """Receive a frame; a pull that broke before goes on where it broke."""
        download = self._download
        if download is None or not download.answers(request):
            if download is not None:
                download.close()
            download = self._download = Download(request, self._pulled, manifest)
        frame = download.attempt(self._connection, unwanted=unwanted)
        self._download = None
        return frame

    def moments_of(
        self, experts: tuple[int, ...], unwanted: Unwanted
    ) -> dict[int, dict[str, Array]]:
        """The moments of experts that their last owners handed over, as far as there are any."""
        if not experts:
            return {}
        manifest = self._holdings.manifest
        expected = Manifest(tuple(t for e in experts for t in manifest.moments_of(e)))
        version = self._machine.version
        request = sync_pb2.PullRequest(have_version=version, want_version=version)
        request.moments_of.extend(experts)
        moments: dict[int, dict[str, Array]] = {}
        for tensor, value in self._pull(request, expected, unwanted).read():
            moments.setdefault(tensor.expert, {})[tensor.name] = value
        return moments
