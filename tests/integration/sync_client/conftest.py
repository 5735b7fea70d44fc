from __future__ import annotations

import pytest
from builders.sync_server import SkippingClock, running_server


@pytest.fixture
def clock():
    """The server's clock, which a test can put forward."""
    return SkippingClock()


@pytest.fixture
def server(tmp_path, clock):
    """A real server on an empty volume, on free ports."""
    with running_server(tmp_path / "sync", clock=clock) as running:
        yield running
