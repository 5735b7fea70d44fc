"""Control planes for the tests of this folder: one for the hub, one for each member, on demand."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders.control_plane import ControlPlane, find_binaries

_CRDS = Path(__file__).parents[3] / "crds"


@pytest.fixture(scope="session")
def control_plane_of(tmp_path_factory) -> Iterator[Callable[[str], ControlPlane]]:
    """Name -> its control plane, started when first asked for and stopped at the end."""
    binaries = find_binaries()
    if binaries is None:
        message = "no control plane binaries; build them once with: make controlplane"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    running: dict[str, ControlPlane] = {}

    def of(name: str) -> ControlPlane:
        if name not in running:
            running[name] = ControlPlane(binaries, tmp_path_factory.mktemp(name))
        return running[name]

    yield of
    for plane in running.values():
        plane.stop()


@pytest.fixture(scope="session")
def hub_control_plane(control_plane_of) -> ControlPlane:
    """The hub's control plane, with the definitions of SPES installed."""
    plane: ControlPlane = control_plane_of("hub")
    plane.kubectl("apply", "--server-side", "-f", str(_CRDS))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=20s")
    return plane


@pytest.fixture
def namespace(hub_control_plane) -> str:
    """A namespace of the test's own on the hub."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    hub_control_plane.kubectl("create", "namespace", name)
    return name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """With a failure, show the end of the control planes' logs."""
    report = yield
    plane = getattr(item, "funcargs", {}).get("hub_control_plane")
    if report.failed and plane is not None:
        report.sections.append((f"control plane, logs in {plane.folder}", plane.logs()))
    return report
