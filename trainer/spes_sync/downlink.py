"""What goes down to the peers: a version's model, its frame, and what a lossy downlink still owes.

S is the model that everybody holds, theta = S + rho the one that a lossless downlink would serve.
Each tensor reaches the next version in one of three ways:

    kept      S' = S                  nothing is sent
    relayed   S' = fl(S + m)          an expert: the owner's own bytes are sent on, never coded
                                      twice; m is what they decode to, rho stays
    coded     u = theta' - S          what is averaged, merged or moved by an outer step: coded once
              m = decode(Q(u))        for all peers; what the codec drops stays owed
              S' = fl(S + m)
              rho' = theta' - S'

The owner of a relayed expert computes fl(B + m) by itself. FP32 is lossless: rho' is 0 and is not
kept. Memory is a few pieces of a tensor, not a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Self

import numpy as np

from spes_sync.codec import Array, encode
from spes_sync.disk import Disk
from spes_sync.dropped import Coding, Dropped, compression
from spes_sync.errors import DivergedError
from spes_sync.hashes import ModelHashes, root_sha256
from spes_sync.manifest import Manifest, TensorSpec
from spes_sync.merge import MergeStep
from spes_sync.outer import OuterStep
from spes_sync.payloads import Codecs, pieces
from spes_sync.quantize import PIECE_ELEMENTS, Codec, encode_with_residual, encoded_bytes
from spes_sync.tensorfile import PlainWriter, TensorReader, TensorWriter, tensors_in
from spes_sync.versions import DELTA, MODEL, RESIDUAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """Which version is made from which, and how it goes down."""

    base: Path
    target: Path
    manifest: Manifest
    disk: Disk
    downlink: Codec = Codec.FP32
    merge: MergeStep | None = None
    """Of the experts, once they are as their owners leave them; None: not in this version."""
    outer: OuterStep | None = None
    """Along the average; None: the average is the next version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFiles:
    """What was written."""

    model_sha256: str
    """The root of its tensors."""
    tensor_hashes: Mapping[str, str]
    """SHA-256 by name."""
    files: Mapping[str, str]
    frame_hashes: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each tensor of the frame as coded, by name."""
    frame: Coding = field(default_factory=Coding)


class Theta:
    """A version as a lossless downlink would serve it: S, and rho where a codec owes something."""

    def __init__(self, making: Making, files: ExitStack) -> None:
        """Open the base version's files."""
        manifest, path = making.manifest, making.base / RESIDUAL
        self.served = files.enter_context(
            TensorReader.of_safetensors(making.base / MODEL, manifest.tensors)
        )
        self.owing = tensors_in(path, manifest) if path.exists() else ()
        self._owed = (
            files.enter_context(TensorReader.of_safetensors(path, self.owing))
            if self.owing
            else None
        )
        self._piece = np.empty(PIECE_ELEMENTS, np.float32)

    def owed(self, tensor: TensorSpec, start: int, size: int) -> Array | None:
        """A piece of rho, valid until the next; None: nothing is owed."""
        if self._owed is None or tensor.name not in self._owed:
            return None
        piece = self._piece[:size]
        self._owed.read(tensor, start, piece)
        return piece

    def read(self, tensor: TensorSpec, start: int, out: Array) -> None:
        """Fill `out` with a piece of S + rho."""
        self.served.read(tensor, start, out)
        owed = self.owed(tensor, start, out.size)
        if owed is not None:
            out += owed


class VersionWriter:
    """Writes a version's model, frame and residual side by side, in name order."""

    def __init__(
        self, making: Making, theta: Theta, *, relayed: Codecs, coded: Collection[str]
    ) -> None:
        """Open the files; `relayed` and `coded` are all tensors that change.

        Args:
            making: Where, and the downlink's codec.
            theta: The base version.
            relayed: Owners' codecs by name.
            coded: Names.
        """
        tensors, lossy = making.manifest.tensors, making.downlink is not Codec.FP32
        codecs = {**dict.fromkeys(coded, making.downlink), **relayed}
        owing = {tensor.name for tensor in theta.owing}
        owing = owing.union(coded) if lossy else owing.difference(coded)
        self._theta, self._codec = theta, making.downlink
        # Two, for the hashes of one piece are taken while the next is made.
        self._pieces = cycle(np.empty((2, PIECE_ELEMENTS), np.float32))
        self._files = ExitStack()
        self._hashes = self._files.enter_context(ModelHashes())
        self._frame_hashes: dict[str, str] = {}
        self._dropped = Dropped()
        target, disk = making.target, making.disk
        self._model = self._files.enter_context(PlainWriter(target / MODEL, tensors, disk))
        changed = tuple(tensor for tensor in tensors if tensor.name in codecs)
        self._frame = self._files.enter_context(
            PlainWriter(target / DELTA, changed, disk, codecs=codecs)
        )
        self._compression = compression(changed, codecs)
        kept = tuple(tensor for tensor in tensors if tensor.name in owing)
        self._residual = (
            self._files.enter_context(TensorWriter(target / RESIDUAL, kept, disk)) if kept else None
        )

    def keep(self, tensor: TensorSpec) -> None:
        """Serve a tensor as before."""
        for start, size in pieces(tensor):
            self._serve(self._old(tensor, start, size))
            self._owe(self._theta.owed(tensor, start, size))
        self._hashes.end(tensor.name)

    def relay(self, tensor: TensorSpec, push: TensorReader, sha256: str) -> None:
        """Send a tensor on as its owner encoded it; its bytes were verified to have this hash.

        Raises:
            DivergedError: a value would not be finite.
        """
        step = np.empty(PIECE_ELEMENTS, np.float32)
        for start, size in pieces(tensor):
            push.read(tensor, start, step[:size])
            lossless = push.codec(tensor) is Codec.FP32
            self._frame.write(
                encode(step[:size]) if lossless else push.encoded(tensor, start, size)
            )
            self._serve(_moved(self._old(tensor, start, size), step[:size], tensor))
            self._owe(self._theta.owed(tensor, start, size))
        self._hashes.end(tensor.name)
        self._frame_hashes[tensor.name] = sha256

    def code(self, tensor: TensorSpec, steps: Iterable[Array]) -> None:
        """Move a tensor by theta' - theta, given piece by piece.

        Raises:
            DivergedError: a value would not be finite, or is too large for the codec.
        """
        digest = hashlib.sha256()
        for (start, size), step in zip(pieces(tensor), steps, strict=True):
            owed = self._theta.owed(tensor, start, size)
            old = self._old(tensor, start, size)
            if self._codec is Codec.FP32:
                sent = step if owed is None else step + owed
                coded: memoryview | bytearray = encode(sent)
                self._serve(_moved(old, sent, tensor))
            else:
                coded = self._code_piece(tensor, old, step, owed)
            self._frame.write(coded)
            digest.update(coded)
        self._hashes.end(tensor.name)
        self._frame_hashes[tensor.name] = digest.hexdigest()

    def close(self) -> VersionFiles:
        """Make the files durable."""
        self._model.finish("version-model")
        self._frame.finish("version-delta")
        model, frame = self._hashes.by_tensor, self._frame_hashes
        files = {
            MODEL: root_sha256(model.values(), header=self._model.header),
            DELTA: root_sha256(frame.values(), header=self._frame.header),
        }
        if self._residual is not None:
            files[RESIDUAL] = self._residual.close("version-residual")
        return VersionFiles(
            model_sha256=root_sha256(model.values()),
            tensor_hashes=model,
            files=files,
            frame_hashes=frame,
            frame=Coding(compression=self._compression, error=self._dropped.relative),
        )

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Release the handles."""
        self._files.close()

    def _old(self, tensor: TensorSpec, start: int, size: int) -> Array:
        piece: Array = next(self._pieces)[:size]
        self._theta.served.read(tensor, start, piece)
        return piece

    def _code_piece(
        self, tensor: TensorSpec, old: Array, step: Array, owed: Array | None
    ) -> bytearray:
        data = bytearray(encoded_bytes(self._codec, step.size))
        owed = np.zeros_like(step) if owed is None else owed
        try:
            sent = encode_with_residual(self._codec, step, owed, data)
        except DivergedError as error:
            raise DivergedError(f"{tensor.name} cannot be served: {error}") from error
        self._dropped.add(sent)
        new = _moved(old.copy(), sent.decoded, tensor)
        # The distance to what is served, its rounding included: nothing is lost on the way.
        self._owe(sent.decoded - (new - old) + sent.residual)
        self._serve(new)
        return data

    def _serve(self, values: Array) -> None:
        data = encode(values)
        self._hashes.update(data)
        self._model.write(data)

    def _owe(self, values: Array | None) -> None:
        if values is not None and self._residual is not None:
            self._residual.write(encode(values))


def _moved(old: Array, step: Array, tensor: TensorSpec) -> Array:
    with np.errstate(over="ignore"):
        old += step
    if not np.isfinite(old).all():
        raise DivergedError(f"{tensor.name} would not be finite; the round's pushes are too large")
    return old
