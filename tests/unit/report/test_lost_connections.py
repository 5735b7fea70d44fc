"""Which ends of connections are worth a warning in the story."""

from __future__ import annotations

import json

import pytest
from spes_operator.report.cluster import Cluster
from spes_operator.report.journal import read_journal
from spes_operator.report.record import Baselines, RunRecord
from spes_operator.report.story import tell


def read(*entries: tuple[str, dict[str, object]]) -> list[str]:
    """Sentences of a journal with these events, a second apart."""
    lines = [
        json.dumps({"time": f"2026-01-01T00:00:{second:02}+00:00", "event": event, **fields})
        for second, (event, fields) in enumerate(entries)
    ]
    record = RunRecord(
        name="job",
        job=None,
        journal=read_journal(lines),
        cluster=Cluster(),
        baselines=Baselines(),
        members=(),
        sample="",
        exported=True,
        gaps=(),
    )
    return [moment.text for moment in tell(record)]


LOST = "a.0 lost its connection."
JOINED, GONE = ("joined", {"peer": "a.0"}), ("disconnected", {"peer": "a.0"})


@pytest.mark.parametrize(
    "before",
    [
        [("complete", {"version": 1})],
        [("stop", {"peers": [], "reason": "STOPPED"})],
        [("stop", {"peers": ["a.0"], "reason": "DRAINED"})],
        [("leaving", {"peer": "a.0", "reason": "interrupted"})],
    ],
    ids=["complete", "stopped", "drained", "leaving"],
)
def test_a_connection_that_ends_with_its_peers_part_is_not_lost(before):
    assert LOST not in read(JOINED, *before, GONE)


@pytest.mark.parametrize(
    "before",
    [
        [],
        [("stop", {"peers": ["b.0"], "reason": "DRAINED"})],
        [("leaving", {"peer": "a.0", "reason": "interrupted"}), JOINED],
        [("stop", {"peers": [], "reason": "STOPPED"}), JOINED],
    ],
    ids=["without a word", "another is drained", "it came back", "the job went on"],
)
def test_any_other_connection_that_ends_is_lost(before):
    assert LOST in read(JOINED, *before, GONE)


def test_a_server_restarted_after_the_end_tells_nothing_anew():
    told = read(("complete", {"version": 1}), ("complete", {"version": 1}))
    assert told == ["The job is complete."]
