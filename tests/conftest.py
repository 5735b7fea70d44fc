"""Settings of all tests: the same examples on every run, and no verdict by the clock."""

from hypothesis import settings

settings.register_profile("spes", deadline=None, derandomize=True)
settings.load_profile("spes")
