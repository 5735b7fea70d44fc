"""Answering a pull: the next version's delta, the latest model in full, or an expert's moments.

What is sent is read from files that are already final, so a pull never waits for a commit nor holds
one up, and a file that is open stays readable though retention removes it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from spes_proto.v1 import sync_pb2

from spes_sync.entropy import Huffman
from spes_sync.errors import ProtocolError, ServerUnavailableError
from spes_sync.frames import iter_chunks
from spes_sync.hashes import PayloadHash, root_sha256
from spes_sync.manifest import Manifest, TensorSpec
from spes_sync.payloads import ALL_FP32, Codecs, codec_of, payload_bytes
from spes_sync.quantize import Codec
from spes_sync.server.admission import Caller
from spes_sync.server.engine import Engine
from spes_sync.tensorfile import TensorReader
from spes_sync.versions import DELTA, MODEL, CommitRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A payload ready to be sent; `buffers` yields its bytes once."""

    header: sync_pb2.PullHeader
    sha256: str
    """The root of the hashes that its tensors had when they were made or came in."""
    buffers: Iterator[memoryview]
    files: tuple[TensorReader, ...] = field(default=())


class Pulls:
    """Answers pulls from the volume."""

    def __init__(self, engine: Engine) -> None:
        """Read the engine's volume."""
        self._engine = engine

    async def answer(
        self, caller: Caller, request: sync_pb2.PullRequest
    ) -> AsyncIterator[sync_pb2.PullPart]:
        """The parts of the answer, from the byte on that the caller lacks.

        Raises:
            ProtocolError: a version that there is not.
            ServerUnavailableError: the model is not seeded yet.
        """
        run = self._engine.run
        if run is None or run.manifest is None or run.state.version < 0:
            raise ServerUnavailableError("the model is not seeded yet")
        threads, account = self._engine.threads, self._engine.accounts.of(caller.peer)
        answer = await threads.run(self._open, caller, request, run.manifest, run.state.version)
        try:
            yield sync_pb2.PullPart(header=answer.header)
            coder = Huffman() if run.settings.codes_entropy else None
            parts = iter_chunks(
                sync_pb2.PullPart, answer.buffers, offset=request.offset, coder=coder
            )
            while (part := await threads.run(next, parts, None)) is not None:
                account.bytes_down += len(part.chunk.data)
                yield part
            yield sync_pb2.PullPart(end=sync_pb2.End(sha256=answer.sha256))
        finally:
            for file in answer.files:
                file.close()

    def _open(
        self, caller: Caller, request: sync_pb2.PullRequest, manifest: Manifest, latest: int
    ) -> Answer:
        if request.moments_of:
            return self._moments(request, manifest, latest)
        have, want = request.have_version, request.want_version or latest
        if not 0 <= want <= latest or have < -1:
            raise ProtocolError(
                sync_pb2.OLD_BASE, f"versions {have} to {want} (the latest is {latest})"
            )
        return (
            self._nothing(have)
            if have == want
            else self._delta(caller, have, want, manifest) or self._full(want, latest, manifest)
        )

    def _nothing(self, version: int) -> Answer:
        header = sync_pb2.PullHeader(version=version, base_version=version, codec=sync_pb2.FP32)
        return Answer(header=header, sha256=root_sha256(()), buffers=iter(()))

    def _delta(self, caller: Caller, have: int, want: int, manifest: Manifest) -> Answer | None:
        """The step from `have` to the version after it, while that is kept."""
        versions = self._engine.volume.versions
        record = versions.record(have + 1) if 0 <= have < want else None
        if record is None:
            return None
        changed = _changed(record, manifest)
        own, codecs = _own_experts(record, caller), _codecs(record, changed)
        sent = tuple(tensor for tensor in changed if tensor.expert not in own)
        path, hashes = versions.path(have + 1) / DELTA, versions.frame_hashes(have + 1)
        try:
            reader = TensorReader.of_safetensors(path, changed, codecs=codecs)
        except FileNotFoundError:
            return None
        return Answer(
            header=_header(have + 1, have, sent, codecs),
            sha256=root_sha256(hashes[tensor.name] for tensor in sent),
            buffers=reader.buffers(sent),
            files=(reader,),
        )

    def _full(self, want: int, latest: int, manifest: Manifest) -> Answer:
        versions = self._engine.volume.versions
        for version in (want, latest):
            record = versions.record(version)
            if record is None:
                continue
            try:
                reader = TensorReader.of_safetensors(
                    versions.path(version) / MODEL, manifest.tensors
                )
            except FileNotFoundError:
                continue
            return Answer(
                header=_header(version, -1, manifest.tensors),
                sha256=record.model_sha256,
                buffers=reader.buffers(manifest.tensors),
                files=(reader,),
            )
        raise ServerUnavailableError(f"version {latest} is being replaced")

    def _moments(self, request: sync_pb2.PullRequest, manifest: Manifest, latest: int) -> Answer:
        known = set(manifest.experts)
        experts = [expert for expert in request.moments_of if expert in known]
        moments = self._engine.volume.moments
        held = moments.held(manifest, experts)
        digest = PayloadHash(held, ALL_FP32)
        for data in moments.buffers(manifest, held):
            digest.update(data)
        return Answer(
            header=_header(latest, -1, held),
            sha256=digest.hexdigest(),
            buffers=moments.buffers(manifest, held),
        )


def _changed(record: CommitRecord, manifest: Manifest) -> tuple[TensorSpec, ...]:
    """The tensors of a version's delta: what somebody pushed, and what was merged."""
    experts = {expert for each in record.contributions for expert in each.experts}
    experts.update(record.coded)
    shared = any(each.weight > 0 for each in record.contributions)
    return tuple(t for t in manifest if (shared if t.expert < 0 else t.expert in experts))


def _own_experts(record: CommitRecord, caller: Caller) -> frozenset[int]:
    """What this very process pushed and others get unchanged: it computes the same bits itself."""
    return frozenset(
        expert
        for each in record.contributions
        if each.peer == caller.peer and each.session == caller.session
        for expert in each.experts
        if expert not in record.coded
    )


def _codecs(record: CommitRecord, changed: tuple[TensorSpec, ...]) -> Codecs:
    """How each tensor of a version's delta is coded."""
    relayed = {expert: each.codec for each in record.contributions for expert in each.experts}
    for expert in record.coded:
        relayed.pop(expert, None)
    return {tensor.name: relayed.get(tensor.expert, record.downlink) for tensor in changed}


def _header(
    version: int,
    base_version: int,
    tensors: tuple[TensorSpec, ...],
    codecs: Codecs = ALL_FP32,
) -> sync_pb2.PullHeader:
    each = [codec_of(tensor, codecs) for tensor in tensors] or [Codec.FP32]
    return sync_pb2.PullHeader(
        version=version,
        base_version=base_version,
        codec=each[0].wire,
        total_bytes=payload_bytes(tensors, codecs),
        tensors=[tensor.to_proto() for tensor in tensors],
        codecs=[codec.wire for codec in each] if len(set(each)) > 1 else [],
    )
