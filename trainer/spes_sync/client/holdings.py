"""A learner's weights and the bases beside them: every change of either is here.

The shared tensors are trained by every peer, so their bases are held from the first version on;
an expert's from its adoption until it is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from spes_sync.bases import NO_VERSION, Bases, Fate
from spes_sync.client.learner import Weights
from spes_sync.client.transfer import Frame
from spes_sync.codec import Array, tensor_sha256
from spes_sync.manifest import Manifest, TensorSpec


class Holdings:
    """Live weights and the served values they started from."""

    def __init__(self, weights: Weights, *, version: int, owned: Iterable[int]) -> None:
        """The live weights are those of `version` (NO_VERSION: of none)."""
        self._weights = weights
        self._manifest = weights.manifest
        self._bases = Bases()
        if version != NO_VERSION:
            self.start(version)
            for expert in owned:
                self.gain(expert)

    @property
    def manifest(self) -> Manifest:
        """All tensors of the model."""
        return self._manifest

    def start(self, version: int) -> None:
        """The live weights are the served model of `version`."""
        self._bases.version = version
        self._hold(self._manifest.shared())

    def gain(self, expert: int) -> None:
        """Train an expert from its served value on."""
        self._hold(self._manifest.of_expert(expert))

    def lose(self, expert: int) -> None:
        """Return an expert to its served value and stop training it."""
        names = [tensor.name for tensor in self._manifest.of_expert(expert)]
        self._weights.write((name, self._bases[name]) for name in names if name in self._bases)
        self._bases.release(names)

    def reset(self) -> None:
        """Return everything trained to its served value."""
        self._weights.write((name, self._bases[name]) for name in self._bases.names)

    def progress(self, tensors: Iterable[TensorSpec]) -> Iterator[tuple[str, Array]]:
        """What a push of these tensors sends, by name."""
        names = [tensor.name for tensor in tensors]
        for name, weight in self._weights.read(names):
            yield name, self._bases.progress(name, weight)

    def everything(self) -> Iterator[tuple[str, Array]]:
        """All live weights, by name."""
        return self._weights.read(self._manifest.names)

    def match(self, sha256: dict[str, str]) -> bool:
        """Whether the live weights are, bit for bit, those of the hashes."""
        return all(tensor_sha256(value) == sha256.get(name) for name, value in self.everything())

    def rebase(
        self, frame: Frame, fate: Fate, sent: Iterable[tuple[TensorSpec, Array]] = ()
    ) -> None:
        """Move weights and bases to the frame's version; `sent` is what a counted push contained.

        Raises:
            DivergedError: the result is not the server's; only an absolute frame helps then.
        """
        received = {tensor.name for tensor in frame.tensors}
        names = sorted(received.union(self._bases.names))
        live = ((self._manifest[name], value) for name, value in self._weights.read(names))
        self._weights.write(self._bases.rebase(live, frame.read(), iter(sent), fate))
        if self._bases.version == NO_VERSION:
            self.start(frame.version)
        self._bases.version = frame.version

    @contextmanager
    def served(self) -> Iterator[None]:
        """Show the served model in the live weights while the block runs."""
        names = self._bases.names
        live = [(name, np.array(value)) for name, value in self._weights.read(names)]
        self.reset()
        try:
            yield
        finally:
            self._weights.write(live)

    def _hold(self, tensors: Iterable[TensorSpec]) -> None:
        self._bases.hold(self._weights.read([tensor.name for tensor in tensors]))
