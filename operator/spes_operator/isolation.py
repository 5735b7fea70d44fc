"""Work on many objects of which one may be refused: the others are not to wait for it. No I/O."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from spes_operator.errors import InvalidError, SpesError, UnavailableError

logger = logging.getLogger(__name__)


class Isolation:
    """Remembers the first refusal; the rest of the work goes on."""

    def __init__(self) -> None:
        """Nothing was refused yet."""
        self.refusal: SpesError | None = None

    @contextmanager
    def each(self) -> Iterator[None]:
        """Around the work on one object.

        Raises:
            UnavailableError: The other side is away: each further call would wait for its deadline.
        """
        try:
            yield
        except UnavailableError:
            raise
        except SpesError as error:
            self._note(error)
        except (ValueError, ArithmeticError) as error:  # what is said of it makes no sense
            self._note(InvalidError(str(error)))

    def _note(self, error: SpesError) -> None:
        logger.info("refused, the rest goes on error=%s", error)
        self.refusal = self.refusal or error

    def check(self) -> None:
        """Raise the first refusal, if there was one."""
        if self.refusal is not None:
            raise self.refusal
