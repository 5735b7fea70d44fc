from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spes_operator.errors import ConfigError
from spes_operator.hub.ownership import MAX_MOVES, Cause, Move, Ownership
from spes_operator.names import ObjectKey

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB = ObjectKey("research", "moe-tiny")
peers = st.sampled_from(["uni-a.0", "uni-b.0", "uni-c.1"])
moves = st.builds(
    Move,
    epoch=st.integers(1, 9),
    time=st.just(NOW),
    round=st.integers(0, 99),
    expert=st.integers(0, 7),
    source=st.none() | peers,
    target=st.none() | peers,
    cause=st.sampled_from(Cause),
    reason=st.text(max_size=20),
    lower_bound=st.integers(0, 8),
)


@given(
    owners=st.dictionaries(st.integers(0, 255), peers),
    parked=st.lists(st.integers(256, 300), unique=True).map(tuple),
    history=st.lists(moves, max_size=5).map(tuple),
    epoch=st.integers(1, 10**6),
)
def test_config_map_tells_the_whole_ownership(owners, parked, history, epoch):
    ownership = Ownership(
        epoch=epoch,
        incarnation=2,
        peers=("uni-a.0", "uni-b.0", "uni-c.1"),
        owners=owners,
        granted=dict.fromkeys(owners, epoch),
        parked=parked,
        moves=history,
        changed_at=NOW,
        changed_in_version=3,
        released="now",
        resource_version="17",
    )
    stored = ownership.to_config_map(JOB, "uid-1")
    assert stored["metadata"]["resourceVersion"] == "17"
    assert Ownership.from_config_map(stored) == ownership


def test_largest_job_fits_a_config_map():
    move = Move(
        epoch=1,
        time=NOW,
        round=1,
        expert=4095,
        source="university-number-one.0",
        target="university-number-two.0",
        cause=Cause.DEPARTURE,
        reason="university-number-one no longer offers slot 0",
        lower_bound=100,
    )
    ownership = Ownership(
        epoch=1,
        owners=dict.fromkeys(range(4096), "university-number-two.0"),
        granted=dict.fromkeys(range(4096), 1000),
        moves=(move,) * (MAX_MOVES + 10),
        changed_at=NOW,
    )
    (text,) = ownership.to_config_map(JOB, "uid-1")["data"].values()
    assert len(text) < 2**20


def test_foreign_config_map_is_refused_with_advice():
    obj = {"metadata": {"name": "x", "resourceVersion": "1"}, "data": {"ownership.json": "[]"}}
    with pytest.raises(ConfigError, match="delete it"):
        Ownership.from_config_map(obj)
