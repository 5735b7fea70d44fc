"""A federation for the acts of one file: a hub, two members, and a job that trains.

It ends with the file: other tests play the hub, or the pods, of the same clusters by hand.
"""

import pytest
from builders.bed import Bed
from builders.federation import Federation


@pytest.fixture(scope="module")
def bed(control_planes_of):
    """Three clusters."""
    with Bed(control_planes_of, ["uni-a", "uni-b"]) as running:
        yield running


@pytest.fixture(scope="module")
def stage(bed, tmp_path_factory):
    """A job in training over the first member; the second one is not there yet."""
    with Federation(bed, tmp_path_factory.mktemp("federation")) as federation:
        federation.hub.start()
        federation.invite("uni-a")
        federation.submit()
        federation.wait_owners("uni-a")
        federation.wait_rounds()
        yield federation


@pytest.fixture
def federation(stage):
    """Both members own experts and rounds go on; so it must be again after each act."""
    if "uni-b" not in stage.agents:
        stage.invite("uni-b")
    if not stage.has_job():
        stage.submit()
    stage.wait_owners("uni-a", "uni-b")
    stage.wait_rounds()
    journal = stage.journal()
    yield stage
    journal.check_owners()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """With a failure, show what the programs said last."""
    report = yield
    stage = getattr(item, "funcargs", {}).get("stage")
    if report.failed and stage is not None:
        for name, program in {"hub": stage.hub, **stage.agents}.items():
            report.sections.append((name, program.log()[-3000:]))
    return report
