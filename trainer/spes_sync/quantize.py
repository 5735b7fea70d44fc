"""Codecs for deltas, with error feedback. Pure arithmetic in numpy.

    FP32    4 bytes a value, lossless: m is fl(delta + e), and nothing is left over
    BF16    2 bytes a value: float32 rounded to the nearest bfloat16, ties to even
    INT8    blocks of 4,096 values, the last one shorter: a float32 scale, then one int8 a value;
            value = int8 x scale, scale = absmax / 127, error at most absmax / 254, but for float32
            rounding of a tie
    UINT8, INT16, UINT8Paper, INT16Paper
            whole steps between the least and the largest of many values: see `minmax`

What a codec drops is not lost: the sender keeps it as a residual e and adds it to its next delta,

    m = decode(encode(delta + e)),    e' = delta + e - m,

so over any number of rounds the sum of what arrived is the sum of the deltas less the last e.

The scale of INT8 is rounded down to 17 significant bits. Then int8 x scale is exact in float32:
decoding has one result on every machine, encoding a decoded tensor gives the same bytes, and e' is
exact too. Values are handled in pieces of 1 MiB, which stay in a core's cache; since a piece is
whole blocks, encoding a tensor piece by piece gives the bytes of encoding it at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from spes_proto.v1 import sync_pb2

from spes_sync.codec import Array
from spes_sync.errors import DivergedError, ProtocolError
from spes_sync.minmax import SPAN_BYTES, Bytes, MinMax, Span

_T = TypeVar("_T", bound=np.generic)

# Values that share one scale: small enough that an outlier hurts few, 0.1 % of overhead.
BLOCK_ELEMENTS = 4096
# Values handled at once.
PIECE_ELEMENTS = 1 << 18

_LEVELS = 127
_SCALE_BYTES = 4
# Clears the low 7 of a float32's 24 significant bits: 17 are left, and an int8 adds 7.
_SCALE_BITS = np.uint32(0xFFFF_FF80)
_SMALLEST_SCALE = np.finfo(np.float32).tiny
# 128 times a larger scale is infinite.
_LARGEST_SCALE = np.finfo(np.float32).max / 128
# Bits without the sign order the magnitudes of floats; NaN comes above infinity.
_FLOAT32_MAGNITUDE, _BF16_MAGNITUDE = np.uint32(0x7FFF_FFFF), np.uint16(0x7FFF)
# The smallest float32 that rounds to infinity in bfloat16, and bfloat16's infinity.
_BF16_OVERFLOW, _BF16_INFINITY = 0x7F7F_8000, 0x7F80


class Codec(StrEnum):
    """How the values of one tensor become bytes."""

    FP32 = "FP32"
    BF16 = "BF16"
    INT8 = "INT8"
    UINT8 = "UINT8"
    INT16 = "INT16"
    UINT8_PAPER = "UINT8Paper"
    INT16_PAPER = "INT16Paper"

    @property
    def wire(self) -> sync_pb2.Codec:
        """Its number on the wire."""
        return cast("sync_pb2.Codec", sync_pb2.Codec.Value(self.name))

    @property
    def has_span(self) -> bool:
        """Whether values are counted from the least to the largest of them."""
        return self in _MIN_MAX

    @classmethod
    def of_wire(cls, number: int) -> Codec:
        """The codec of a number from the wire.

        Raises:
            ProtocolError: there is none of that number.
        """
        for codec in cls:
            if codec.wire == number:
                return codec
        known = ", ".join(codec.value for codec in cls)
        raise ProtocolError(sync_pb2.PROTOCOL, f"codec (got {number}, expected {known})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What became of a delta and a residual."""

    decoded: Array
    """m: what the other side will hold of it, bit for bit."""
    residual: Array
    """e': what is still owed."""


def encoded_bytes(codec: Codec, num_elements: int) -> int:
    """Return the size of an encoded tensor."""
    layout = _LAYOUTS[codec]
    headers = -(-num_elements // layout.values_a_header) * layout.header_bytes
    return num_elements * layout.value_bytes + headers


def encode(codec: Codec, values: Array, out: bytearray | memoryview) -> None:
    """Write the encoded form of a contiguous tensor to `out`, which has just its size.

    Raises:
        DivergedError: a value is NaN, infinite, or too large for the codec.
    """
    assert len(out) == encoded_bytes(codec, values.size)
    _encode(codec, values.reshape(-1), np.frombuffer(out, np.uint8))


def decode(codec: Codec, data: bytes | bytearray | memoryview, out: Array) -> None:
    """Fill the contiguous array `out` with the decoded values.

    Raises:
        ProtocolError: WRONG_SHAPE, `data` is not of the size of that many values (checked first);
            NOT_FINITE, it holds NaN or infinity, or decodes to such.
    """
    assert out.flags.c_contiguous
    expected = encoded_bytes(codec, out.size)
    if len(data) != expected:
        raise ProtocolError(
            sync_pb2.WRONG_SHAPE,
            f"{out.size:,} values in {codec.value} have {len(data):,} bytes "
            f"(expected {expected:,})",
        )
    _decode(codec, np.frombuffer(data, np.uint8), out.reshape(-1))


def holds_finite(codec: Codec, data: bytes | bytearray | memoryview) -> bool:
    """Whether an encoded piece of a tensor, whole blocks of it, decodes to finite values."""
    encoded = np.frombuffer(data, np.uint8)
    if codec is Codec.FP32:
        return bool(np.isfinite(encoded.view("<f4")).all())
    if codec is Codec.BF16:
        return bool((encoded.view("<u2") & _BF16_MAGNITUDE).max() < _BF16_INFINITY)
    if codec in _MIN_MAX:
        return _MIN_MAX[codec].is_usable(encoded)
    return all(_scales(rows) is not None for rows in _blocks(encoded, _SCALE_BYTES))


def encode_with_residual(
    codec: Codec,
    delta: Array,
    residual: Array,
    out: bytearray | memoryview,
    span: Span | None = None,
) -> Sent:
    """Write the encoded form of delta + residual to `out`; neither input is changed.

    Args:
        codec: How.
        delta: What is to arrive.
        residual: What is owed from before.
        out: Just as long as the encoded form.
        span: Of a larger whole that delta + residual is part of, for a codec that has one. Absent:
            each piece has its own.

    Raises:
        DivergedError: a value is NaN, infinite, or too large for the codec.
    """
    assert len(out) == encoded_bytes(codec, delta.size)
    flat, before = delta.reshape(-1), residual.reshape(-1)
    encoded = np.frombuffer(out, np.uint8)
    owed, decoded = np.empty_like(flat), np.empty_like(flat)
    for values, data in _pieces(codec, flat.size):
        with np.errstate(over="ignore", invalid="ignore"):  # the encoder refuses what comes of it
            np.add(flat[values], before[values], out=owed[values])
        _encode(codec, owed[values], encoded[data], span)
        _decode(codec, encoded[data], decoded[values])
        owed[values] -= decoded[values]
    return Sent(decoded=decoded.reshape(delta.shape), residual=owed.reshape(delta.shape))


def _pieces(codec: Codec, num_elements: int) -> Iterator[tuple[slice, slice]]:
    """Where each piece lies among the values and among the encoded bytes."""
    for start in range(0, num_elements, PIECE_ELEMENTS):
        end = min(start + PIECE_ELEMENTS, num_elements)
        yield slice(start, end), slice(encoded_bytes(codec, start), encoded_bytes(codec, end))


def _encode(codec: Codec, flat: Array, out: Bytes, span: Span | None = None) -> None:
    kernel = _ENCODERS.get(codec) or partial(_MIN_MAX[codec].encode, span=span)
    for values, data in _pieces(codec, flat.size):
        if not kernel(flat[values], out[data]):
            largest = flat[values][np.abs(flat[values]).argmax()]
            raise DivergedError(f"a value cannot be sent in {codec.value} (got {largest})")


def _decode(codec: Codec, data: Bytes, flat: Array) -> None:
    kernel = _DECODERS.get(codec) or _MIN_MAX[codec].decode
    for values, piece in _pieces(codec, flat.size):
        if not kernel(data[piece], flat[values]):
            raise ProtocolError(
                sync_pb2.NOT_FINITE,
                f"a payload in {codec.value} holds values that are not finite",
            )


def _encode_fp32(values: Array, out: Bytes) -> bool:
    """Whether all values are finite."""
    if not np.isfinite(values).all():
        return False
    out.view("<f4")[:] = values
    return True


def _decode_fp32(data: Bytes, out: Array) -> bool:
    """Whether all values are finite."""
    out[:] = data.view("<f4")
    return bool(np.isfinite(out).all())


def _encode_bf16(values: Array, out: Bytes) -> bool:
    """Whether all values could be rounded."""
    bits = values.view(np.uint32)
    scratch = bits & _FLOAT32_MAGNITUDE
    if scratch.max() >= _BF16_OVERFLOW:
        return False
    np.right_shift(bits, 16, out=scratch)
    scratch &= 1  # ties go up only from an odd value
    scratch += 0x7FFF
    scratch += bits
    scratch >>= 16
    out.view("<u2")[:] = scratch
    return True


def _decode_bf16(data: Bytes, out: Array) -> bool:
    """Whether all decoded values are finite."""
    halves, bits = data.view("<u2"), out.view(np.uint32)
    if (halves & _BF16_MAGNITUDE).max() >= _BF16_INFINITY:
        return False
    bits[:] = halves
    bits <<= 16
    return True


def _encode_int8(values: Array, out: Bytes) -> bool:
    """Whether all values are finite."""
    scratch = np.empty_like(values)
    blocks = zip(_blocks(values, 0), _blocks(scratch, 0), _blocks(out, _SCALE_BYTES), strict=True)
    return all(_encode_blocks(*one) for one in blocks)


def _encode_blocks(values: Array, scratch: Array, out: Bytes) -> bool:
    absmax = np.abs(values, out=scratch).max(axis=1)
    if not np.isfinite(absmax).all():
        return False
    scale = absmax / np.float32(_LEVELS)
    scale.view(np.uint32)[:] &= _SCALE_BITS
    scale[scale < _SMALLEST_SCALE] = 0  # would lose its bits; the residual keeps the values
    out[:, :_SCALE_BYTES] = scale.astype("<f4", copy=False)[:, None].view(np.uint8)
    divisor = np.where(scale > 0, scale, np.float32(np.inf))
    np.divide(values, divisor[:, None], out=scratch)
    np.rint(scratch, out=scratch)
    np.copyto(out[:, _SCALE_BYTES:].view(np.int8), scratch, casting="unsafe")
    return True


def _decode_int8(data: Bytes, out: Array) -> bool:
    """Whether no scale can yield a value that is not finite."""
    blocks = zip(_blocks(data, _SCALE_BYTES), _blocks(out, 0), strict=True)
    return all(_decode_blocks(*one) for one in blocks)


def _decode_blocks(data: Bytes, out: Array) -> bool:
    scale = _scales(data)
    if scale is None:
        return False
    out[:] = data[:, _SCALE_BYTES:].view(np.int8)  # twice as fast as multiplying int8 by float32
    out *= scale[:, None]
    return True


def _scales(data: Bytes) -> Array | None:
    """The scales of blocks given as rows; None if one can yield a value that is not finite."""
    scale: Array = np.ascontiguousarray(data[:, :_SCALE_BYTES]).view("<f4")[:, 0]
    return scale if ((scale >= 0) & (scale <= _LARGEST_SCALE)).all() else None


def _blocks(flat: NDArray[_T], header: int) -> Iterator[NDArray[_T]]:
    """The full blocks of a piece as rows, then the short one, if any, as one row."""
    row = header + BLOCK_ELEMENTS
    whole = flat.size // row * row
    for part, width in ((flat[:whole], row), (flat[whole:], flat.size - whole)):
        if part.size:
            yield part.reshape(-1, width)


class _Layout(NamedTuple):
    """What encoded values take, and what every so many of them have before them."""

    value_bytes: int
    values_a_header: int = 1
    header_bytes: int = 0


_MIN_MAX = {
    Codec.UINT8: MinMax(levels=255, keeps_zero=True),
    Codec.INT16: MinMax(levels=65_535, keeps_zero=True),
    Codec.UINT8_PAPER: MinMax(levels=255, keeps_zero=False),
    Codec.INT16_PAPER: MinMax(levels=65_535, keeps_zero=False),
}
_LAYOUTS = {
    Codec.FP32: _Layout(4),
    Codec.BF16: _Layout(2),
    Codec.INT8: _Layout(1, BLOCK_ELEMENTS, _SCALE_BYTES),
    **{
        codec: _Layout(form.value_bytes, PIECE_ELEMENTS, SPAN_BYTES)
        for codec, form in _MIN_MAX.items()
    },
}
_ENCODERS = {Codec.FP32: _encode_fp32, Codec.BF16: _encode_bf16, Codec.INT8: _encode_int8}
_DECODERS = {Codec.FP32: _decode_fp32, Codec.BF16: _decode_bf16, Codec.INT8: _decode_int8}
