"""Agents between two real API servers."""

from pathlib import Path

import pytest
from builders.agent_world import AgentWorld
from builders.rights import install_hub_rights

_CRDS = Path(__file__).parents[3] / "crds"


@pytest.fixture(scope="session")
def planes(control_planes_of):
    """The hub's, with definitions and rights, and one member's."""
    hub, member = control_planes_of("hub", "member")
    hub.kubectl("apply", "--server-side", "-f", str(_CRDS))
    hub.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=20s")
    install_hub_rights(hub)
    return hub, member


@pytest.fixture
def world(planes, tmp_path):
    """A member that is invited, and not accepted yet."""
    with AgentWorld(*planes, tmp_path) as made:
        yield made


@pytest.fixture
def member(world):
    """A member that is accepted, with its agent at work."""
    world.accept()
    world.agent.start()
    return world


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """With a failure, show what the agent wrote."""
    report = yield
    world = getattr(item, "funcargs", {}).get("world")
    if report.failed and world is not None:
        report.sections.append(("agent", world.agent.log()[-20_000:]))
    return report
