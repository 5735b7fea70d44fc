"""What a peer holds of the served model, and how its progress moves from version to version.

A peer keeps `B`, a bit-exact copy of the served value `S` of each tensor it trains; a frozen tensor
is its own base. It pushes w - B, which reaches the server as m, and on the next version v

    its push counted          B <- S_v    w <- S_v
    it did not, and it holds  B <- S_v    w <- S_v + (w - B)      the peer carries its progress
    it did not, and is lost   B <- S_v    w <- S_v

The server never adds a delta to another version than its base, so nothing counts twice. A peer
idles between its push and the commit, hence w is still what it pushed when the answer comes. What a
lossy codec drops between w - B and m is owed by the next push, and not a matter of the bases.

Own experts are not sent back: the peer computes S_v = fl(B + m) as the server does, and the hash in
the commit says whether both got the same. Pure: arrays in, arrays out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from spes_sync.codec import Array, tensor_sha256
from spes_sync.errors import DivergedError
from spes_sync.manifest import TensorSpec

# The version of a peer that holds nothing yet.
NO_VERSION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of the progress since the base when a peer moves to the next version."""

    included: bool  # the push of this very base is part of the new version
    carried: Collection[int] = frozenset()  # experts, or SHARED, whose progress goes on
    absolute: bool = False  # incoming values are the new ones, not deltas against the base
    sha256: Mapping[str, str] | None = None  # of each tensor of the new version; None: not known


class Bases:
    """The peer's copies of the trained tensors, all of one served version."""

    def __init__(self) -> None:
        """Hold nothing."""
        self.version = NO_VERSION
        self._values: dict[str, Array] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The trained tensors, by name."""
        return tuple(sorted(self._values))

    def __contains__(self, name: object) -> bool:
        """Whether the tensor is trained here."""
        return name in self._values

    def __getitem__(self, name: str) -> Array:
        """The served value of a trained tensor."""
        return self._values[name]

    def hold(self, tensors: Iterable[tuple[str, Array]]) -> None:
        """Start to train these tensors from the values given, which are copied."""
        for name, value in tensors:
            self._values[name] = np.array(value, dtype=np.float32)

    def release(self, names: Iterable[str]) -> None:
        """Stop training these tensors."""
        for name in names:
            self._values.pop(name, None)

    def progress(self, name: str, weight: Array) -> Array:
        """Return fl(w - B), what a push of this tensor is about."""
        return weight - self._values[name]

    def rebase(
        self,
        weights: Iterable[tuple[TensorSpec, Array]],
        incoming: Iterator[tuple[TensorSpec, Array]],
        sent: Iterator[tuple[TensorSpec, Array]],
        fate: Fate,
    ) -> Iterator[tuple[str, Array]]:
        """Yield the new live weights, moving each base as its tensor passes.

        Args:
            weights: Live weights of all tensors that are incoming or trained, by name.
            incoming: What the server sent, by name: deltas, or values if `fate.absolute`.
            sent: m of each tensor that the push contained, by name, if the push counted.
            fate: What becomes of the progress.

        Raises:
            DivergedError: a result is not, bit for bit, what the server holds. The bases are then
                mixed: only a full set of absolute values makes them whole.
        """
        received, pushed = _ByName(incoming), _ByName(sent)
        for tensor, weight in weights:
            name = tensor.name
            base = self._values.get(name, weight)
            served = _served(name, base, received.take(name), pushed.take(name), fate)
            if name in self._values:
                self._values[name] = served
                if tensor.expert in fate.carried:
                    yield name, served + (weight - base)
                    continue
            yield name, served


class _ByName:
    """Tensors in name order, of which some are asked for, in that order too."""

    def __init__(self, tensors: Iterator[tuple[TensorSpec, Array]]) -> None:
        self._tensors = tensors
        self._next = next(tensors, None)

    def take(self, name: str) -> Array | None:
        """The value of that name; None: there is none."""
        while self._next is not None and self._next[0].name < name:
            self._next = next(self._tensors, None)
        return self._next[1] if self._next is not None and self._next[0].name == name else None


def _served(
    name: str, base: Array, received: Array | None, sent: Array | None, fate: Fate
) -> Array:
    if received is not None:
        candidates = [np.array(received) if fate.absolute else base + received]
    elif fate.included and sent is not None:
        # An expert named in dropped_experts keeps its old value although the push counted.
        candidates = [base + sent, base]
    else:
        candidates = [base]
    if fate.sha256 is None:
        return candidates[0]
    expected = fate.sha256.get(name)
    for candidate in candidates:
        if tensor_sha256(candidate) == expected:
            return candidate
    raise DivergedError(f"{name} differs from the server's copy (expected SHA-256 {expected})")
