"""How precisely a peer's pushes are sent: by the rate that its link has shown.

An upload may take a twentieth of the time from one synchronisation to the next. The first of FP32,
BF16 and UINT8 that fits is right for the link; UINT8 if none does. A better one is taken only if it
would leave a fifth of that time unused, so a rate near a limit does not flip from push to push, and
the precision moves by one at a time. Before the first measurement it is the middle one.

The rate is smoothed. UINT8 is expected to shrink as much as it did last time, if it is
Huffman-coded.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from spes_sync.quantize import Codec

logger = logging.getLogger(__name__)

# From the most precise to the least.
_RUNGS = (Codec.FP32, Codec.BF16, Codec.UINT8)
_VALUE_BYTES = {Codec.FP32: 4, Codec.BF16: 2, Codec.UINT8: 1}
_BUDGET = 0.05
_HEADROOM = 0.8
# Weight of the newest rate.
_NEWEST = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """One push that was timed."""

    num_bytes: int
    """On the wire."""
    seconds: float
    ratio: float
    """Bytes on the wire over bytes of the payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What is known of a link, and how the last push went. Pure."""

    codec: Codec = Codec.BF16
    bytes_per_second: float | None = None
    ratio: float = 1.0
    """Of UINT8 on the wire to its payload."""

    def after(self, upload: Upload) -> Link:
        """With one more measurement, of a push in this codec."""
        newest, known = upload.num_bytes / upload.seconds, self.bytes_per_second
        rate = newest if known is None else _NEWEST * newest + (1 - _NEWEST) * known
        ratio = upload.ratio if self.codec is Codec.UINT8 else self.ratio
        return replace(self, bytes_per_second=rate, ratio=ratio)

    def seconds(self, codec: Codec, num_values: int) -> float:
        """How long so many values would take; 0 if no rate is known."""
        if self.bytes_per_second is None:
            return 0.0
        shrunk = self.ratio if codec is Codec.UINT8 else 1.0
        return num_values * _VALUE_BYTES[codec] * shrunk / self.bytes_per_second

    def fitting(self, num_values: int, interval: float) -> Codec:
        """The most precise codec that fits; the least precise if none does."""
        fits = (c for c in _RUNGS if self.seconds(c, num_values) <= _BUDGET * interval)
        return next(fits, _RUNGS[-1])

    def next_codec(self, num_values: int, interval: float) -> Codec:
        """The codec of the next push.

        Args:
            num_values: In it.
            interval: Seconds from one synchronisation to the next.
        """
        if self.bytes_per_second is None:
            return self.codec
        now, wanted = _RUNGS.index(self.codec), _RUNGS.index(self.fitting(num_values, interval))
        if wanted > now:
            return _RUNGS[now + 1]
        if wanted < now:
            better = _RUNGS[now - 1]
            if self.seconds(better, num_values) < _HEADROOM * _BUDGET * interval:
                return better
        return self.codec


class Precision:
    """The codec of one peer's pushes: a fixed one, or what its link allows."""

    def __init__(self, uplink: str) -> None:
        """`uplink` is the job's setting, the name of a codec or Auto."""
        self._link = Link() if uplink == "Auto" else None
        self._fixed = None if uplink == "Auto" else Codec(uplink)
        self._predicted = 0.0

    @property
    def codec(self) -> Codec:
        """Of the push that is due."""
        if self._link is not None:
            return self._link.codec
        assert self._fixed is not None, "one of both"
        return self._fixed

    def choose(self, num_values: int, interval: float) -> None:
        """Look at the link before a push of so many values."""
        if self._link is not None:
            codec = self._link.next_codec(num_values, interval)
            self._link = replace(self._link, codec=codec)
            self._predicted = self._link.seconds(codec, num_values)

    def sent(self, upload: Upload) -> None:
        """The push has arrived."""
        if self._link is None:
            return
        self._link = self._link.after(upload)
        logger.info(
            "precision codec=%s rate_mb_s=%.1f predicted_s=%.2f took_s=%.2f",
            self._link.codec,
            (self._link.bytes_per_second or 0) / 1e6,
            self._predicted,
            upload.seconds,
        )
