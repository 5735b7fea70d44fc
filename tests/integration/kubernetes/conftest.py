"""The hub's control plane with the definitions installed, and a namespace for each test."""

import uuid
from pathlib import Path

import pytest
from builders.control_plane import ControlPlane

_CRDS = Path(__file__).parents[3] / "crds"


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
