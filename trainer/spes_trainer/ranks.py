"""The processes of one peer, as the code that runs in each of them sees the others.

Most peers are one process. `parallel.group` has the form for several; the model, the step and the
checkpoints only know what is here.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Ranks(Protocol):
    """This process and its equals. Every method but the properties is called by all of them."""

    @property
    def rank(self) -> int:
        """Of this process; 0 speaks for the peer."""

    @property
    def size(self) -> int:
        """How many there are."""

    def count(self, number: int) -> int:
        """The sum of a number over all ranks."""

    def total(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all ranks; may change it in place."""

    def norm(self, mine: Tensor) -> Tensor:
        """The 2-norm of everything, of which `mine` is that of this rank's rows."""

    def share(self, tensor: Tensor) -> None:
        """Give a tensor of rank 0 to all, in place."""

    def collect(self, rows: Tensor, num_rows: int) -> Tensor:
        """All rows of a tensor, in host memory of rank 0; the others get no rows."""

    def spread(self, whole: Tensor | None, into: Tensor, num_rows: int) -> None:
        """Copy to every rank its rows of what rank 0 has whole; the others bring None."""


class Alone:
    """The only process of its peer."""

    rank = 0
    size = 1

    def count(self, number: int) -> int:
        """Itself."""
        return number

    def total(self, tensor: Tensor) -> Tensor:
        """Itself."""
        return tensor

    def norm(self, mine: Tensor) -> Tensor:
        """Itself."""
        return mine

    def share(self, tensor: Tensor) -> None:
        """Nobody else wants it."""

    def collect(self, rows: Tensor, num_rows: int) -> Tensor:  # noqa: ARG002 - all are here
        """All rows; on a CPU the same memory."""
        return rows.cpu()

    def spread(self, whole: Tensor | None, into: Tensor, num_rows: int) -> None:  # noqa: ARG002
        """Copy all rows."""
        if whole is not None:
            into.copy_(whole)


ALONE = Alone()
