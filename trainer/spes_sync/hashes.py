"""Hashes of payloads and versions: SHA-256 of each tensor's bytes, and a root over those.

    root = SHA-256 of the tensors' digests, one after another in payload order

So bytes are hashed once, where they come into being or come in: a relayed expert has in the frame
the hash that its push was verified by, a pull of any selection of tensors has a root without
another look at them, and a model's root follows from the hashes that `Committed` names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from spes_sync.manifest import TensorSpec
from spes_sync.payloads import Codecs, tensor_bytes


def root_sha256(tensor_hashes: Iterable[str], *, header: bytes = b"") -> str:
    """The root of these hashes, in this order; that of a file begins with its header."""
    digest = hashlib.sha256(header)
    for each in tensor_hashes:
        digest.update(bytes.fromhex(each))
    return digest.hexdigest()


class PayloadHash:
    """The root of a payload that comes in pieces of any size, and the hash of each tensor."""

    def __init__(self, tensors: Iterable[TensorSpec], codecs: Codecs) -> None:
        """Expect the bytes of these tensors."""
        self._tensors = iter([(tensor.name, tensor_bytes(tensor, codecs)) for tensor in tensors])
        self._done: dict[str, str] = {}
        self._begin()

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """The next bytes; any beyond the last tensor have no place in the hash."""
        rest = memoryview(data)
        while rest and self._name:
            taken = rest[: self._missing]
            self._digest.update(taken)
            rest = rest[len(taken) :]
            self._missing -= len(taken)
            if not self._missing:
                self._done[self._name] = self._digest.hexdigest()
                self._begin()

    def hexdigest(self) -> str:
        """The root over the tensors that are complete."""
        return root_sha256(self._done.values())

    @property
    def by_tensor(self) -> dict[str, str]:
        """The hash of each tensor that is complete, by name in payload order."""
        return dict(self._done)

    def _begin(self) -> None:
        self._name, self._missing = next(self._tensors, ("", 0))
        self._digest = hashlib.sha256()


class ModelHashes:
    """Hashes of a model's tensors, taken in a thread beside its writing, one piece behind it."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._digest = hashlib.sha256()
        self._tensors: dict[str, str] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spes-hash")
        self._last: Future[None] | None = None

    def update(self, data: memoryview) -> None:
        """The next bytes of the tensor; they must not change before the call after the next."""
        self._wait()
        self._last = self._thread.submit(self._digest.update, data)

    def end(self, name: str) -> None:
        """The tensor of this name ends here."""
        self._wait()
        self._tensors[name] = self._digest.hexdigest()
        self._digest = hashlib.sha256()

    @property
    def by_tensor(self) -> dict[str, str]:
        """The hash of each tensor that has ended, by name in the order of the model."""
        return dict(self._tensors)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """End the thread."""
        self._thread.shutdown()

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()
