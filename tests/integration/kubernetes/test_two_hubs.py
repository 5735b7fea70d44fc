"""Two hubs by accident, for example while one is replaced: each object is written as by one."""

from collections import Counter, deque

import pytest
from builders.hub_life import HubLife
from builders.live_objects import is_true
from builders.rights import install_hub_rights
from spes_operator.hub.ownership import Ownership

pytestmark = pytest.mark.timeout(600)
# So many looks in a row find nothing written.
LOOKS = 20
# Told by each hub as training goes on.
PROGRESS = "/spesjobs/tiny/status"


@pytest.fixture
def life(hub_control_plane, tmp_path):
    install_hub_rights(hub_control_plane)
    with HubLife(hub_control_plane, tmp_path / "life") as life:
        yield life


@pytest.fixture
def second(life, tmp_path):
    hub = life.another_hub(tmp_path)
    hub.program.start()
    yield hub
    assert hub.program.stop() == 0, hub.program.log()


def settle(life):
    """Wait until nothing is written any more but how far training is."""
    looks = deque(maxlen=LOOKS)

    def is_quiet():
        looks.append(sum(not write.path.endswith(PROGRESS) for write in life.gate.writes))
        return len(looks) == LOOKS and looks[0] == looks[-1]

    life.wait(is_quiet)


def test_two_hubs_lead_a_job_as_one_does(life, second):
    life.train()
    life.wait(lambda: second.passes("job") > 1)
    settle(life)
    life.cordon("uni-b")
    life.wait(lambda: life.owned_by("uni-a") and not life.assignments("uni-b"))
    settle(life)
    stored = life.objects.get("ConfigMap", life.namespace, "tiny-ownership")
    assert Ownership.from_config_map(stored).epoch == 2
    assert is_true(life.job(), "Ready")
    created = Counter(
        (write.path, write.body["metadata"]["name"])
        for write in life.gate.writes
        if write.method == "POST" and not write.path.endswith("/events")
    )
    assert set(created.values()) == {1}
    life.journal.check_owners()
