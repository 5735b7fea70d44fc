"""Hashes of a version, taken beside its writing: of each tensor, and of the model.

Hashing is most of what a commit costs, and two more hashes of the same bytes go into the files. So
these two are taken in a thread of their own, one piece behind the writer at most.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self


class Hashes:
    """Takes a model in, tensor by tensor, in name order."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._model = hashlib.sha256()
        self._tensor = hashlib.sha256()
        self._tensors: dict[str, str] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spes-hash")
        self._last: Future[None] | None = None

    def update(self, data: memoryview) -> None:
        """The next bytes of the tensor; they must not change before the call after the next."""
        self._wait()
        self._last = self._thread.submit(self._update, data)

    def end(self, name: str) -> None:
        """The tensor of this name ends here."""
        self._wait()
        self._tensors[name] = self._tensor.hexdigest()
        self._tensor = hashlib.sha256()

    def result(self) -> tuple[str, dict[str, str]]:
        """Of the model, and of each tensor by name."""
        self._wait()
        return self._model.hexdigest(), self._tensors

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """End the thread."""
        self._thread.shutdown()

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()

    def _update(self, data: memoryview) -> None:
        self._model.update(data)
        self._tensor.update(data)
