"""A federation over real API servers, with a real sync server and real, tiny trainers."""

import pytest
from builders.bed import Bed
from builders.federation import Federation

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def bed(control_planes_of):
    with Bed(control_planes_of, ["uni-a", "uni-b"]) as running:
        yield running


@pytest.fixture
def federation(bed, tmp_path):
    with Federation(bed, tmp_path) as running:
        yield running


def test_start(federation):
    federation.hub.start()
    federation.invite("uni-a")
    federation.submit()
    federation.wait_owners("uni-a")
    federation.wait_rounds()
