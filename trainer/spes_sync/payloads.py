"""Payloads: tensors one after another in name order, each in its codec. Both sides use this.

Sizes follow from the tensors and their codecs, so what a header announces is checked before any
memory or disk is used for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO

import numpy as np
from spes_proto.v1 import sync_pb2

from spes_sync.codec import Array
from spes_sync.errors import ProtocolError
from spes_sync.manifest import TensorSpec
from spes_sync.quantize import PIECE_ELEMENTS, Codec, decode, encoded_bytes, holds_finite

# Codecs by tensor name; FP32 where a name is missing.
Codecs = Mapping[str, Codec]
ALL_FP32: Codecs = {}


def all_in(codec: Codec, tensors: Iterable[TensorSpec]) -> Codecs:
    """One codec for all of a payload."""
    return {} if codec is Codec.FP32 else {tensor.name: codec for tensor in tensors}


def codec_of(tensor: TensorSpec, codecs: Codecs) -> Codec:
    """The codec of one tensor."""
    return codecs.get(tensor.name, Codec.FP32)


def tensor_bytes(tensor: TensorSpec, codecs: Codecs) -> int:
    """Size of one tensor in a payload."""
    return encoded_bytes(codec_of(tensor, codecs), tensor.num_elements)


def payload_bytes(tensors: Iterable[TensorSpec], codecs: Codecs = ALL_FP32) -> int:
    """Size of a payload."""
    return sum(tensor_bytes(tensor, codecs) for tensor in tensors)


def pieces(tensor: TensorSpec) -> Iterator[tuple[int, int]]:
    """Start and number of values of each piece of a tensor that is handled at once."""
    for start in range(0, tensor.num_elements, PIECE_ELEMENTS):
        yield start, min(PIECE_ELEMENTS, tensor.num_elements - start)


def read_tensors(
    file: BinaryIO, tensors: Iterable[TensorSpec], codecs: Codecs = ALL_FP32
) -> Iterator[tuple[TensorSpec, Array]]:
    """Decode a payload tensor by tensor, holding one in memory.

    Raises:
        ProtocolError: WRONG_SHAPE, it ends early; NOT_FINITE, it holds NaN or infinity.
    """
    for tensor in tensors:
        values = np.empty(tensor.shape, np.float32)
        decode(codec_of(tensor, codecs), file.read(tensor_bytes(tensor, codecs)), values)
        yield tensor, values


class FiniteCheck:
    """Looks at a payload as it arrives, in pieces of any size: every value must be finite."""

    def __init__(self, tensors: Iterable[TensorSpec], codecs: Codecs) -> None:
        """Expect these tensors."""
        self._pieces = (
            (tensor, codec_of(tensor, codecs), encoded_bytes(codec_of(tensor, codecs), size))
            for tensor in tensors
            for _, size in pieces(tensor)
        )
        self._piece = next(self._pieces, None)
        self._pending = bytearray()

    def take(self, data: bytes) -> None:
        """Look at the next bytes.

        Raises:
            ProtocolError: NOT_FINITE, naming the tensor.
        """
        rest = memoryview(data)
        while self._piece is not None and rest:
            tensor, codec, size = self._piece
            taken = rest[: size - len(self._pending)]
            rest = rest[len(taken) :]
            if len(taken) < size:
                self._pending += taken
                if len(self._pending) < size:
                    return
            if not holds_finite(codec, self._pending or taken):
                raise ProtocolError(sync_pb2.NOT_FINITE, f"{tensor.name} is not finite")
            self._pending = bytearray()
            self._piece = next(self._pieces, None)
