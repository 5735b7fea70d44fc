"""Pushes on disk: received into a spool, verified, kept until the round's commit.

    open/000018/  round.json           what the round was opened with
                  uni-a.0.push         payload, then a trailer that says what it is
                  uni-a.0.experts.push  a push in parts
                  .uni-a.0.3.part      still being received

A spool takes its final name only when every check has passed, and says everything about itself, so
a restarted server finds the round as it was. It is not fsynced: should the machine lose power, the
peer offers the push again.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from spes_proto.v1 import sync_pb2

from spes_sync.disk import Disk, reports_full
from spes_sync.errors import ProtocolError
from spes_sync.frames import PayloadWriter
from spes_sync.hashes import PayloadHash
from spes_sync.manifest import Manifest, TensorSpec
from spes_sync.payloads import FiniteCheck, all_in, payload_bytes
from spes_sync.plan import PeerId
from spes_sync.quantize import Codec
from spes_sync.rounds import Push

_SUFFIXES = {sync_pb2.ALL: "", sync_pb2.EXPERTS: ".experts", sync_pb2.SHARED: ".shared"}
_TRAILER = struct.Struct("<Q8s")  # length of the JSON before it, magic
_MAGIC = b"SPESPUSH"
_HASH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Spool:
    """A verified push on disk."""

    path: Path
    peer: PeerId
    session: str
    push: Push
    tensors: tuple[TensorSpec, ...]
    hashes: Mapping[str, str]
    """SHA-256 of each tensor's bytes."""
    codec: Codec = Codec.FP32


class Receiver:
    """Takes one payload in, chunk by chunk, and checks it on the way."""

    def __init__(
        self, path: Path, tensors: tuple[TensorSpec, ...], codec: Codec = Codec.FP32
    ) -> None:
        """Receive the payload of these tensors into a new file, made with the first chunk."""
        self.path = path
        codecs = all_in(codec, tensors)
        self._total_bytes = payload_bytes(tensors, codecs)
        self._check = FiniteCheck(tensors, codecs)
        self._hash = PayloadHash(tensors, codecs)
        self._file: BinaryIO | None = None
        self._writer: PayloadWriter | None = None

    @property
    def received(self) -> int:
        """Bytes taken in so far."""
        return self._writer.received if self._writer else 0

    @property
    def received_coded(self) -> int:
        """Bytes that came over the wire for them."""
        return self._writer.received_coded if self._writer else 0

    @property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of each tensor that is complete."""
        return self._hash.by_tensor

    @property
    def has_file(self) -> bool:
        """Whether there is a file that has not got its final name."""
        return self._file is not None

    def write(self, chunk: sync_pb2.Chunk) -> None:
        """Check and keep one chunk.

        Raises:
            ProtocolError: TRUNCATED, TOO_LARGE, BAD_CHECKSUM or NOT_FINITE.
            DiskFullError: no space left.
        """
        writer = self._writer or self._begin()
        self._check.take(writer.write(chunk))

    def finish(self, end: sync_pb2.End) -> str:
        """Check the whole; returns its SHA-256.

        Raises:
            ProtocolError: TRUNCATED or BAD_CHECKSUM.
        """
        if self._writer is None:
            raise ProtocolError(sync_pb2.TRUNCATED, "the payload has no chunk")
        return self._writer.finish(end)

    def complete(self) -> Path:
        """The file with all of the payload in it."""
        assert self._file is not None, "finished"
        with reports_full(self.path, self.received):
            self._file.flush()
        return self.path

    def trail(self, trailer: dict[str, Any], target: Path) -> None:
        """Append what the payload is and give the file its final name."""
        assert self._file is not None, "finished"
        text = json.dumps(trailer, sort_keys=True).encode()
        with reports_full(self.path, len(text)), self._file as file:
            file.write(text + _TRAILER.pack(len(text), _MAGIC))
        self.path.replace(target)
        self._file = None

    def discard(self) -> None:
        """Remove what was received, unless it has its final name."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self.path.unlink(missing_ok=True)

    def _begin(self) -> PayloadWriter:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("wb")
        self._writer = PayloadWriter(self._file, self._total_bytes, self._hash, path=self.path)
        return self._writer


class Spools:
    """The `open/` directory: one round's pushes, and payloads on their way in."""

    def __init__(self, root: Path, disk: Disk) -> None:
        """Look at a volume's directory."""
        self._open = root / "open"
        self._disk = disk
        self._serial = itertools.count()

    def receiver(
        self, peer: PeerId, tensors: tuple[TensorSpec, ...], codec: Codec = Codec.FP32
    ) -> Receiver:
        """Begin to take a payload of this peer in."""
        return Receiver(self._open / f".{peer}.{next(self._serial)}.part", tensors, codec)

    def keep(self, round_number: int, receiver: Receiver, spool: Spool) -> Spool:
        """Make a received payload a verified push of the round."""
        path = self._round(round_number) / f"{spool.peer}{_SUFFIXES[spool.push.part]}.push"
        trailer = {
            "peer": spool.peer,
            "session": spool.session,
            "push": asdict(spool.push),
            "tensors": [tensor.name for tensor in spool.tensors],
            "codec": spool.codec,
        }
        receiver.trail(trailer, path)
        self._disk.reached("spool")
        return replace(spool, path=path)

    def save_round(self, round_number: int, value: dict[str, Any]) -> None:
        """Make what a round was opened with durable: from then on it is open."""
        path = self._round(round_number)
        path.mkdir(parents=True, exist_ok=True)
        self._disk.sync_directory(self._open)
        self._disk.write_json(path / "round.json", value, "round")

    def load_round(self, round_number: int) -> dict[str, Any] | None:
        """What `save_round` wrote; None if the round is not open, or the file is damaged."""
        try:
            value: dict[str, Any] = json.loads(
                (self._round(round_number) / "round.json").read_bytes()
            )
        except (FileNotFoundError, ValueError):
            return None
        is_whole = isinstance(value, dict) and isinstance(value.get("expected"), list)
        return value if is_whole else None

    def verified(self, round_number: int, manifest: Manifest) -> Iterator[Spool]:
        """The round's complete pushes, each hashed again; damaged ones are removed."""
        for path in sorted(self._round(round_number).glob("*.push")):
            spool = _read(path, manifest)
            if spool is None:
                path.unlink()
            else:
                yield spool

    def remove(self, round_number: int) -> None:
        """Remove a round that is over."""
        shutil.rmtree(self._round(round_number), ignore_errors=True)

    def clean(self, round_number: int | None) -> None:
        """Remove every round but this one, and payloads that were on their way in."""
        kept = None if round_number is None else self._round(round_number)
        for path in sorted(self._open.glob("*")):
            if path == kept:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def _round(self, round_number: int) -> Path:
        return self._open / f"{round_number:06d}"


def _read(path: Path, manifest: Manifest) -> Spool | None:
    try:
        with path.open("rb") as file:
            file.seek(-_TRAILER.size, 2)
            length, magic = _TRAILER.unpack(file.read())
            file.seek(-_TRAILER.size - length, 2)
            payload_size = file.tell()
            trailer = json.loads(file.read(length))
            tensors = tuple(manifest[name] for name in trailer["tensors"])
            push, codec = trailer["push"], Codec(trailer["codec"])
            file.seek(0)
            digest = PayloadHash(tensors, all_in(codec, tensors))
            _hash(file, payload_size, digest)
            spool = Spool(
                path=path,
                peer=PeerId(trailer["peer"]),
                session=trailer["session"],
                push=Push(
                    **{
                        **push,
                        "experts": tuple(push["experts"]),
                        "routed_tokens": tuple(push["routed_tokens"]),
                    }
                ),
                tensors=tensors,
                hashes=digest.by_tensor,
                codec=codec,
            )
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return None
    complete = magic == _MAGIC and digest.hexdigest() == spool.push.sha256
    if not complete or payload_size != payload_bytes(tensors, all_in(codec, tensors)):
        return None
    return spool


def _hash(file: BinaryIO, num_bytes: int, digest: PayloadHash) -> None:
    while num_bytes > 0 and (data := file.read(min(num_bytes, _HASH_BYTES))):
        digest.update(data)
        num_bytes -= len(data)
