"""The story in sentences, and the boxes of the ownership map."""

from __future__ import annotations

import json

import pytest
from builders.finished_run import DEMO, Stage, write_run
from hypothesis import given
from hypothesis import strategies as st
from spes_operator.report.cluster import Moved
from spes_operator.report.plots import draw_plots
from spes_operator.report.record import load_record
from spes_operator.report.stays import stays
from spes_operator.report.story import moves_sentence, tell


@pytest.fixture
def told(tmp_path) -> list[str]:
    moments = tell(load_record(write_run(tmp_path / "run")))
    assert [moment.time for moment in moments] == sorted(moment.time for moment in moments)
    return [f"{moment.round}: {moment.text}" for moment in moments]


@pytest.mark.parametrize(
    "sentence",
    [
        "1: Round 1 opens: uni-a.0 trains experts 0-2, uni-b.0 trains experts 3-5, "
        "uni-c.0 trains experts 6-7.",
        "8: uni-c.0 left round 8: SIGTERM.",
        "8: uni-c.0 was preempted: the node is taken away.",
        "9: Round 9 opens under epoch 2: uni-a.0 trains experts 0-2,6, "
        "uni-b.0 trains experts 3-5,7.",
        "19: A push of uni-b.0 was refused: BAD_CHECKSUM. chunk at byte 1048576 has another "
        "CRC than it says; sent again",
        "23: Round 23 is held: 2 of 3 needed, 1 has pushed; missing: uni-b.0, uni-d.0.",
        "32: The job is complete.",
    ],
)
def test_the_story_tells(told, sentence):
    assert sentence in told


def record_of(folder, *, stages=DEMO, more=()):
    """The record of a run with further lines in its journal."""
    run = write_run(folder, rounds=3, stages=stages)
    with (run / "sync/journal.jsonl").open("a") as journal:
        journal.writelines(json.dumps({"time": "2026-03-01T15:00:00+00:00"} | e) for e in more)
    return load_record(run)


def test_the_story_tells_of_a_merge(tmp_path):
    merged = {"event": "merged", "round": 3, "alpha": 0.09760000000000001}
    texts = [moment.text for moment in tell(record_of(tmp_path / "run", more=[merged]))]
    assert "Round 3 merged the experts: alpha 0.0976." in texts


def test_where_all_train_everything_there_is_no_map_of_owners(tmp_path):
    everyone = Stage(first=1, epoch=1, owners={"uni-a.0": "", "uni-b.0": ""})
    record = record_of(tmp_path / "run", stages=(everyone,))
    assert "Round 1 opens: every peer trains all experts." in [m.text for m in tell(record)]
    titles = [plot.title for plot in draw_plots(record)]
    assert "Loss" in titles
    assert "Who owns which expert" not in titles


def move(expert: int, *, bound: int | None = None) -> Moved:
    return Moved(
        round=1, epoch=2, expert=expert, source="a", target="b", reason="", lower_bound=bound
    )


def test_moves_are_told_by_route():
    assert moves_sentence([move(1, bound=2), move(2, bound=2)]) == (
        "experts 1-2 from a to b (2 moves, the fewest possible)"
    )


def test_more_moves_than_needed_are_not_praised():
    assert moves_sentence([move(1, bound=1), move(2, bound=1)]) == (
        "experts 1-2 from a to b (2 moves, at least 1 were needed)"
    )


def test_unknown_bound_is_not_claimed():
    assert moves_sentence([move(1)]) == "expert 1 from a to b"


owner_maps = st.dictionaries(
    st.integers(1, 30),
    st.dictionaries(st.integers(0, 5), st.sampled_from("abc")),
    min_size=1,
)


@given(owner_maps)
def test_stays_cover_what_every_round_says(ownership):
    boxes = stays(ownership)
    for number, owners in ownership.items():
        covering = {box.expert: box.peer for box in boxes if box.first <= number <= box.last}
        assert covering == owners


@given(owner_maps)
def test_stays_of_an_expert_never_overlap(ownership):
    spans = [
        (box.expert, number)
        for box in stays(ownership)
        for number in range(box.first, box.last + 1)
    ]
    assert len(spans) == len(set(spans))


def test_ownership_that_changes_all_the_time_is_drawn_coarsely():
    ownership = {n: {e: "ab"[(n + e) % 2] for e in range(64)} for n in range(500)}
    assert len(stays(ownership)) <= 4000
