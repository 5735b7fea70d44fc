"""What lossy pushes still owe: the residual e of each trained tensor, beside the checkpoints.

A push sends m = decode(encode(delta + e)), and once it counts e becomes delta + e - m. Until then
both are kept, under the push's base and hash, written before the push is sent; `Committed` decides
which is true, also for a process that has been relaunched meanwhile.

    residuals/3/                           of the server's third life; 1 and 2 are void
        residual.safetensors               e before any push that is undecided
        000016-ALL-<sha256>.safetensors    e if that push on base 16 counts

Several pushes on one base can be undecided: each process of a peer offers its own. A tensor that is
not in a file owes nothing. One tensor is in memory at a time.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import numpy as np
from spes_proto.v1 import sync_pb2

from spes_sync.codec import Array, encode
from spes_sync.disk import Disk
from spes_sync.dropped import Dropped
from spes_sync.errors import DivergedError
from spes_sync.manifest import SHARED, Manifest, TensorSpec
from spes_sync.minmax import Span
from spes_sync.payloads import pieces
from spes_sync.quantize import Codec, encode_with_residual, encoded_bytes
from spes_sync.tensorfile import TensorReader, TensorWriter, tensors_in

_OFFER = re.compile(r"(\d{6,})-(ALL|EXPERTS|SHARED)-([0-9a-f]{64})\.safetensors")


class Residuals:
    """The residuals of one peer in one life of the server."""

    def __init__(
        self, directory: Path, manifest: Manifest, incarnation: int, disk: Disk | None = None
    ) -> None:
        """Look below a peer's directory; what belongs to a former life of the server goes."""
        self._directory = directory / "residuals" / str(incarnation)
        self._current = self._directory / "residual.safetensors"
        self._new = self._directory / "new"
        self._manifest = manifest
        self._disk = disk or Disk()
        self._new.unlink(missing_ok=True)  # of a push that never was
        self.dropped = Dropped()
        """What the codec dropped of what was encoded last."""
        for life in (directory / "residuals").glob("*"):
            if life != self._directory:
                shutil.rmtree(life)

    def span(self, values: Iterable[tuple[str, Array]]) -> Span:
        """The least and the largest of deltas, each with what is owed of it added.

        Raises:
            DivergedError: a value is not finite, or too large.
        """
        with _Owed(self._current, self._manifest) as owed:
            span = Span.over(
                _finite(name, value + owed.of(self._manifest[name])) for name, value in values
            )
        if span is None:
            raise DivergedError("a delta is too large to be sent; lower the learning rate")
        return span

    def encoded(
        self,
        values: Iterable[tuple[str, Array]],
        tensors: tuple[TensorSpec, ...],
        codec: Codec,
        span: Span | None = None,
    ) -> Iterator[memoryview | bytearray]:
        """Yield the bytes of deltas, each with what is owed of it added.

        What the codec drops is written down; it counts from `offer` on.

        Args:
            values: The deltas by name.
            tensors: Theirs, in this order.
            codec: How.
            span: Of all of them, for a codec that has one; absent: each piece has its own.

        Raises:
            DivergedError: a value is not finite, or too large for the codec.
        """
        self.dropped = Dropped()
        if codec is Codec.FP32 and not self._current.exists():
            yield from (encode(_finite(name, value)) for name, value in values)
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        kept = tensors if codec is not Codec.FP32 else ()
        with (
            _Owed(self._current, self._manifest) as owed,
            TensorWriter(self._new, kept, self._disk) as writer,
        ):
            for name, value in values:
                before = owed.of(self._manifest[name])
                data = bytearray(encoded_bytes(codec, value.size))
                sent = encode_with_residual(codec, _finite(name, value), before, data, span)
                self.dropped.add(sent)
                if kept:
                    writer.write(encode(sent.residual))
                yield data
            writer.close("residual-written")

    def offer(self, base: int, part: sync_pb2.Part, sha256: str) -> None:
        """What was last encoded is about to be pushed on `base`."""
        if self._new.exists():
            name = f"{base:06d}-{sync_pb2.Part.Name(part)}-{sha256}.safetensors"
            self._new.replace(self._directory / name)
            self._disk.sync_directory(self._directory)
            self._disk.reached("residual-offered")

    @property
    def undecided(self) -> int | None:
        """The newest base on which a push may or may not count."""
        return max((base for _, base, _, _ in self._offers()), default=None)

    def reach(self, version: int, counted: Iterable[tuple[int, Collection[str]]]) -> None:
        """This peer has come to a version; what was offered on earlier ones is decided.

        Args:
            version: The one that it holds now.
            counted: The hashes of this peer's pushes in each version up to it, as far as known.
        """
        for reached, hashes in counted:
            for path, base, part, sha256 in self._offers():
                if base == reached - 1 and sha256 in hashes:
                    self._adopt(path, part)
        for path, base, _, _ in self._offers():
            if base < version:
                path.unlink()

    def drop(self, tensors: Iterable[TensorSpec]) -> None:
        """Owe nothing of these, whatever becomes of what was offered."""
        names = {tensor.name for tensor in tensors}
        for path in (self._current, *(offer[0] for offer in self._offers())):
            with _Owed(path, self._manifest) as owed:
                kept = [(t, owed) for t in self._manifest if t in owed and t.name not in names]
                if len(kept) < len(owed.tensors):
                    self._write(path, kept)

    def clear(self) -> None:
        """Owe nothing at all."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def _adopt(self, offer: Path, part: str) -> None:
        if part == "ALL":
            offer.replace(self._current)
        else:
            with _Owed(self._current, self._manifest) as rest, _Owed(offer, self._manifest) as new:
                shared = part == "SHARED"
                sources = [
                    (tensor, new if (tensor.expert == SHARED) == shared else rest)
                    for tensor in self._manifest
                ]
                self._write(self._current, [(t, source) for t, source in sources if t in source])
            offer.unlink()
        self._disk.sync_directory(self._directory)
        self._disk.reached("residual-adopted")

    def _write(self, path: Path, owed: list[tuple[TensorSpec, _Owed]]) -> None:
        """Replace a file."""
        target = self._directory / "rewritten"
        with TensorWriter(target, tuple(tensor for tensor, _ in owed), self._disk) as writer:
            for tensor, source in owed:
                writer.write(encode(source.of(tensor)))
            writer.close("residual-rewritten")
        target.replace(path)

    def _offers(self) -> list[tuple[Path, int, str, str]]:
        found = ((path, _OFFER.fullmatch(path.name)) for path in self._directory.glob("*"))
        offers = [(path, int(m[1]), m[2], m[3]) for path, m in found if m]
        return sorted(offers)


class _Owed:
    """The tensors of one file of residuals; none if there is no file."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.tensors = tensors_in(path, manifest) if path.exists() else ()
        self._reader = TensorReader.of_safetensors(path, self.tensors) if self.tensors else None

    def __contains__(self, tensor: object) -> bool:
        return tensor in self.tensors

    def of(self, tensor: TensorSpec) -> Array:
        """What is owed of a tensor, zero if nothing."""
        flat = np.zeros(tensor.num_elements, np.float32)
        if self._reader is not None and tensor.name in self._reader:
            for start, size in pieces(tensor):
                self._reader.read(tensor, start, flat[start : start + size])
        return flat.reshape(tensor.shape)

    def __enter__(self) -> _Owed:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._reader is not None:
            self._reader.close()


def _finite(name: str, value: Array) -> Array:
    if not np.isfinite(value).all():
        raise DivergedError(f"{name} is not finite; lower the learning rate or the clip norm")
    return value
