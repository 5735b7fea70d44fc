"""Moves payloads: a push from a spool to the server, a frame from the server into a spool.

A payload lies on disk before it is sent and after it is received, so memory holds one tensor, a
retransmission sends the same bytes, and nothing is applied before its hash is verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import grpc
from spes_proto.v1 import sync_pb2

from spes_sync.bases import NO_VERSION
from spes_sync.client.connection import Connection, Progress, Unwanted, translate
from spes_sync.client.options import PULL_PROGRESS_TIMEOUT
from spes_sync.codec import Array
from spes_sync.entropy import Huffman
from spes_sync.errors import DivergedError, ProtocolError, ServerUnavailableError
from spes_sync.frames import PayloadWriter, iter_file_chunks
from spes_sync.hashes import PayloadHash
from spes_sync.manifest import Manifest, TensorSpec
from spes_sync.payloads import Codecs, all_in, payload_bytes, read_tensors
from spes_sync.quantize import Codec


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """Bytes ready to be pushed."""

    path: Path
    tensors: tuple[TensorSpec, ...]
    num_bytes: int
    sha256: str
    codec: Codec = Codec.FP32
    codec_error: float = 0.0
    """The norm of what the codec dropped over the norm of what arrives."""

    def read(self) -> Iterator[tuple[TensorSpec, Array]]:
        """Its tensors as the server decodes them, by name."""
        with self.path.open("rb") as file:
            yield from read_tensors(file, self.tensors, all_in(self.codec, self.tensors))


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A verified answer to a Pull."""

    path: Path
    version: int
    absolute: bool  # full values; else deltas against the version that was held
    tensors: tuple[TensorSpec, ...]
    codecs: Codecs = field(default_factory=dict)

    def read(self) -> Iterator[tuple[TensorSpec, Array]]:
        """Its tensors, by name."""
        with self.path.open("rb") as file:
            yield from read_tensors(file, self.tensors, self.codecs)


def spool(
    path: Path,
    tensors: tuple[TensorSpec, ...],
    buffers: Iterable[memoryview | bytearray],
    codec: Codec = Codec.FP32,
) -> Payload:
    """Write what will be pushed: the bytes of these tensors, encoded."""
    codecs = all_in(codec, tensors)
    digest = PayloadHash(tensors, codecs)
    with path.open("wb") as file:
        for data in buffers:
            digest.update(data)
            file.write(data)
    return Payload(
        path=path,
        tensors=tensors,
        num_bytes=payload_bytes(tensors, codecs),
        sha256=digest.hexdigest(),
        codec=codec,
    )


def push_parts(
    header: sync_pb2.PushHeader, payload: Payload, coder: Huffman | None
) -> Iterator[sync_pb2.PushPart]:
    """Yield a push; the header is completed with what is true of the payload."""
    header.codec = payload.codec.wire
    header.total_bytes = payload.num_bytes
    header.codec_error = payload.codec_error
    header.tensors.extend(tensor.to_proto() for tensor in payload.tensors)
    yield sync_pb2.PushPart(header=header)
    yield from iter_file_chunks(sync_pb2.PushPart, payload.path, coder=coder)
    yield sync_pb2.PushPart(end=sync_pb2.End(sha256=payload.sha256))


class Download:
    """One Pull, resumed where it broke until its hash is verified."""

    def __init__(self, request: sync_pb2.PullRequest, path: Path, manifest: Manifest) -> None:
        """Receive the answer to `request` into `path`; `manifest` bounds what it may hold."""
        self.request = request
        self._path = path
        self._manifest = manifest
        self._file: BinaryIO | None = None
        self._writer: PayloadWriter | None = None
        self._header = sync_pb2.PullHeader()
        self._codecs: Codecs = {}

    def answers(self, request: sync_pb2.PullRequest) -> bool:
        """Whether this is the Pull of that request, whatever has arrived so far."""
        asked, wanted = sync_pb2.PullRequest(), sync_pb2.PullRequest()
        asked.CopyFrom(self.request)
        wanted.CopyFrom(request)
        asked.offset = wanted.offset = 0
        return asked == wanted

    def close(self) -> None:
        """Give up what was received so far."""
        if self._file is not None:
            self._file.close()
        self._file = self._writer = None

    def attempt(self, connection: Connection, *, unwanted: Unwanted) -> Frame:
        """Receive what is missing; `unwanted` breaks it off.

        Raises:
            ServerUnavailableError: it broke; the next attempt goes on from there, or from the start
                if what arrived was not right.
            DivergedError: all arrived as sent, but is not what was committed: the server's file is
                damaged, and another attempt would bring the same.
        """
        self.request.offset = self._writer.received if self._writer else 0
        call = connection.pull(self.request)
        progress = Progress(PULL_PROGRESS_TIMEOUT, unwanted=unwanted)
        try:
            with progress.watching(call):
                for part in call:
                    progress.moved()
                    if self._take(part):
                        return self._frame()
        except grpc.RpcError as error:
            raise translate(error) from error
        except ProtocolError as error:
            self.close()
            raise ServerUnavailableError(f"a pull is not as announced: {error}") from error
        finally:
            call.cancel()
        raise ServerUnavailableError("a pull ended early")

    def _take(self, part: sync_pb2.PullPart) -> bool:
        """Take one part in; True at the verified end."""
        if part.HasField("header"):
            self._begin(part.header)
        elif self._writer is None:
            raise ProtocolError(sync_pb2.PROTOCOL, "data before its header")
        elif part.HasField("chunk"):
            self._writer.write(part.chunk)
        else:
            self._finish(self._writer, part.end)
            return True
        return False

    def _finish(self, writer: PayloadWriter, end: sync_pb2.End) -> None:
        try:
            writer.finish(end)
        except ProtocolError as error:
            if error.reason == sync_pb2.BAD_CHECKSUM:
                self.close()
                raise DivergedError(f"version {self._header.version}: {error}") from error
            raise

    def _begin(self, header: sync_pb2.PullHeader) -> None:
        if self._writer is not None:
            if header != self._header:
                raise ProtocolError(sync_pb2.PROTOCOL, "the answer changed while it was resumed")
            return
        selected = self._manifest.select(header.tensors)
        codecs = _codecs(header, selected)
        num_bytes = payload_bytes(selected, codecs)
        if header.total_bytes != num_bytes:
            raise ProtocolError(
                sync_pb2.TOO_LARGE,
                f"announced {header.total_bytes:,} bytes (expected {num_bytes:,} for its tensors)",
            )
        if header.base_version not in (NO_VERSION, self.request.have_version):
            raise ProtocolError(
                sync_pb2.OLD_BASE,
                f"deltas against version {header.base_version} "
                f"(this peer holds {self.request.have_version})",
            )
        self._header, self._codecs = header, codecs
        self._file = self._path.open("wb")
        digest = PayloadHash(selected, codecs)
        self._writer = PayloadWriter(self._file, header.total_bytes, digest, path=self._path)

    def _frame(self) -> Frame:
        self.close()
        return Frame(
            path=self._path,
            version=self._header.version,
            absolute=self._header.base_version == NO_VERSION,
            tensors=self._manifest.select(self._header.tensors),
            codecs=self._codecs,
        )


def _codecs(header: sync_pb2.PullHeader, tensors: tuple[TensorSpec, ...]) -> Codecs:
    """The codec of each tensor of an answer."""
    numbers = header.codecs or [header.codec] * len(tensors)
    if len(numbers) != len(tensors):
        raise ProtocolError(
            sync_pb2.PROTOCOL, f"{len(numbers)} codecs for {len(tensors)} tensors (one each)"
        )
    return {
        tensor.name: Codec.of_wire(number) for tensor, number in zip(tensors, numbers, strict=True)
    }
