"""Settings of all tests: the same examples on every run, no verdict by the clock, Ctrl-C heard."""

import signal

from hypothesis import settings

settings.register_profile("spes", deadline=None, derandomize=True)
settings.load_profile("spes")

# What a shell starts in the background ignores Ctrl-C, and so would the programs that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
