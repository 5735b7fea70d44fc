"""Real control planes for the tests that need them: one for the hub, one for each member."""

import os
from collections.abc import Callable, Iterator

import pytest
from builders.control_plane import ControlPlane, find_binaries
from builders.control_planes import ControlPlanes


@pytest.fixture(scope="session")
def control_planes_of(tmp_path_factory) -> Iterator[ControlPlanes]:
    """Names -> their control planes, started side by side when first asked for."""
    binaries = find_binaries()
    if binaries is None:
        message = "no control plane binaries; build them once with: make controlplane"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    with ControlPlanes(binaries, tmp_path_factory.mktemp("clusters")) as planes:
        yield planes


@pytest.fixture(scope="session")
def control_plane_of(control_planes_of) -> Callable[[str], ControlPlane]:
    """Name -> its control plane, started when first asked for and stopped at the end."""

    def of(name: str) -> ControlPlane:
        (plane,) = control_planes_of(name)
        return plane

    return of
