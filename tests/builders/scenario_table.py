"""What was played on a bed and how long each step took, as a table for people."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Row:
    """One step."""

    scenario: str
    step: str
    seconds: float
    note: str


@dataclass(kw_only=True)
class ScenarioTable:
    """Filled while tests run."""

    rows: list[Row] = field(default_factory=list)

    @contextmanager
    def step(self, scenario: str, step: str) -> Iterator[list[str]]:
        """Time what is done inside; words put into the list stand beside it."""
        began = time.monotonic()
        words: list[str] = []
        failed = True
        try:
            yield words
            failed = False
        finally:
            if failed:
                words.insert(0, "FAILED")
            took = time.monotonic() - began
            self.rows.append(Row(scenario=scenario, step=step, seconds=took, note=" ".join(words)))

    def note(self, scenario: str, step: str, text: str) -> None:
        """A figure that is no time."""
        self.rows.append(Row(scenario=scenario, step=step, seconds=0.0, note=text))

    def lines(self) -> list[str]:
        """The table, a line each."""
        wide = max((len(row.step) for row in self.rows), default=0)
        scenarios = max((len(row.scenario) for row in self.rows), default=0)
        return [
            f"{row.scenario:{scenarios}}  {row.step:{wide}}  "
            f"{f'{row.seconds:.0f} s' if row.seconds else '':>6}  {row.note}".rstrip()
            for row in self.rows
        ]
