from __future__ import annotations

import pytest
from builders.sync_server import running_server


@pytest.fixture
def sync_server(tmp_path):
    """A server on an empty volume, on free ports."""
    with running_server(tmp_path / "sync") as server:
        yield server
