"""A clock that tests turn by hand."""

from datetime import UTC, datetime, timedelta


class FakeClock:
    def __init__(self, start=datetime(2026, 1, 1, tzinfo=UTC)):
        self._start = start
        self.elapsed = 0.0

    def now(self):
        return self._start + timedelta(seconds=self.elapsed)

    def monotonic(self):
        return self.elapsed

    def advance(self, seconds):
        self.elapsed += seconds


class OtherClock:
    """Of another machine: it runs alike, and shows another time."""

    def __init__(self, clock):
        self._clock = clock
        self.ahead = timedelta()

    def now(self):
        return self._clock.now() + self.ahead

    def monotonic(self):
        return self._clock.monotonic()
