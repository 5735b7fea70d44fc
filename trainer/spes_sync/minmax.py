"""UINT8 and INT16: values as whole steps between the least and the largest. Pure arithmetic.

With a span from `low` to `high`, 255 or 65,535 levels, and all arithmetic in float64,

    step = (high - low) / levels
    the paper's form   q = rint((x - low) / step)                     value = low + q step
    zero-exact         z = -rint(low / step)
                       q = clip(rint(x / step) + z, 0, levels)        value = (q - z) step

The error is at most half a step in both. In the paper's form a zero comes back as up to half a
step, so what nobody touched drifts from round to round; zero-exact keeps it. Where no value can be
zero, for all are of one sign, both are the paper's form. Equal values have step 0 and are exact.

One outlier widens the step of all that share its span, which the blocks of INT8 avoid: here the
span is the sender's choice, and a peer's push has one for all of its tensors, as the paper has it.

Values travel in groups, each after its span, so a group is understood by itself:

    low, high    float32
    UINT8        q, one byte a value
    INT16        q - 32,768 in two planes: all high bytes, then all low ones; an entropy coder finds
                 much to save in the first and nothing in the second
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spes_sync.codec import Array

Bytes = NDArray[np.uint8]

_SPAN = struct.Struct("<ff")
SPAN_BYTES = _SPAN.size
# Half of what float32 holds: half a step beyond it, and any difference, still is a float32.
_LARGEST = float(np.finfo(np.float32).max) / 2
_INT16_BIAS = 32_768


class Span(NamedTuple):
    """The least and the largest of some values."""

    low: float
    high: float

    @classmethod
    def over(cls, parts: Iterable[Array]) -> Span | None:
        """The span of all of these; None if there are none, or one cannot be sent."""
        spans = [(float(part.min()), float(part.max())) for part in parts if part.size]
        if not spans:
            return None
        lows, highs = np.array(spans).T
        span = cls(float(lows.min()) + 0.0, float(highs.max()) + 0.0)  # no -0.0; NaN stays NaN
        return span if span.is_usable else None

    @property
    def is_usable(self) -> bool:
        """Whether all that lies between can be coded, and is finite when decoded."""
        return -_LARGEST <= self.low <= self.high <= _LARGEST


@dataclass(frozen=True, slots=True, kw_only=True)
class MinMax:
    """One of the codecs."""

    levels: int
    keeps_zero: bool

    @property
    def value_bytes(self) -> int:
        """Of one value."""
        return 1 if self.levels < 1 << 8 else 2

    def encode(self, values: Array, out: Bytes, span: Span | None = None) -> bool:
        """Write one group; whether all of it can be sent.

        Args:
            values: One-dimensional.
            out: The span, then the levels.
            span: That holds all values; absent: their own.
        """
        span = span or Span.over([values])
        if span is None:
            return False
        out[:SPAN_BYTES] = np.frombuffer(_SPAN.pack(*span), np.uint8)
        levels = self._levels(values, span)
        body = out[SPAN_BYTES:]
        if self.value_bytes == 1:
            np.copyto(body, levels, casting="unsafe")
            return True
        words = np.empty(levels.size, np.int32)
        np.subtract(levels, _INT16_BIAS, out=words, casting="unsafe")
        np.copyto(body[: words.size], words >> 8, casting="unsafe")
        np.copyto(body[words.size :], words & 0xFF, casting="unsafe")
        return True

    def decode(self, data: Bytes, out: Array) -> bool:
        """Read one group; whether its span is usable, else `out` is untouched."""
        span = _span_of(data)
        if not span.is_usable:
            return False
        body = data[SPAN_BYTES:]
        if self.value_bytes == 1:
            levels = body
        else:
            # The sign is the top bit: flipping it adds the bias.
            levels = (body[: out.size] ^ 0x80).astype(np.uint16)
            levels <<= 8
            levels |= body[out.size :]
        np.take(_values(self, span), levels, out=out, mode="clip")
        return True

    def is_usable(self, data: Bytes) -> bool:
        """Whether a group decodes to finite values."""
        return _span_of(data).is_usable

    def grid(self, span: Span) -> tuple[float, float | None]:
        """The step, and the level of zero; None: the paper's form."""
        step = (span.high - span.low) / self.levels
        if not self.keeps_zero or step == 0 or not span.low <= 0 <= span.high:
            return step, None
        return step, -float(np.rint(span.low / step))

    def _levels(self, values: Array, span: Span) -> NDArray[np.float64]:
        step, zero = self.grid(span)
        if step == 0:
            return np.zeros(values.size)
        if zero is None:
            levels = np.subtract(values, span.low, dtype=np.float64)
            levels /= step
            np.rint(levels, out=levels)
        else:
            levels = np.divide(values, step, dtype=np.float64)
            np.rint(levels, out=levels)
            levels += zero
        return np.clip(levels, 0, self.levels, out=levels)


@lru_cache(maxsize=4)
def _values(form: MinMax, span: Span) -> Array:
    """What each level stands for."""
    step, zero = form.grid(span)
    levels = np.arange(form.levels + 1, dtype=np.float64)
    values = levels * step + span.low if zero is None else (levels - zero) * step
    if zero is None:
        values[-1] = span.high if step else span.low
    decoded: Array = values.astype(np.float32)
    decoded.flags.writeable = False
    return decoded


def _span_of(data: Bytes) -> Span:
    return Span(*_SPAN.unpack(data[:SPAN_BYTES].tobytes()))
