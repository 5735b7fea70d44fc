"""What is read from a run's files, whole or broken."""

from __future__ import annotations

import asyncio
import json

import pytest
from builders.finished_run import START, journal, write_run
from hypothesis import given
from hypothesis import strategies as st
from spes_operator.errors import ConfigError
from spes_operator.k8s.events import Event, post
from spes_operator.k8s.memory import MemoryApi
from spes_operator.report.cluster import read_cluster
from spes_operator.report.journal import read_journal
from spes_operator.report.record import load_record


def test_torn_last_line_loses_only_itself():
    lines = [json.dumps(entry) for entry in journal(3)]
    whole, torn = read_journal(lines), read_journal([*lines, lines[-2][: len(lines[-2]) // 2]])
    assert torn.num_unreadable == 1
    assert torn.commits == whole.commits


def test_a_round_told_twice_counts_once():
    lines = [json.dumps(entry) for entry in journal(3)]
    assert len(read_journal([*lines, *lines]).commits) == 3


@given(st.lists(st.text() | st.from_regex(r'\{"event": ?"(opened|committed|push)".*\}')))
def test_no_line_breaks_the_reader(lines):
    assert read_journal(lines).num_unreadable <= len(lines)


def test_an_absurd_range_of_experts_is_refused():
    entry = next(entry for entry in journal(1) if entry["event"] == "opened")
    entry["owners"] = {"uni-a.0": "0-99999999999"}
    assert read_journal([json.dumps(entry)]).num_unreadable == 1


def test_loss_that_is_no_number_is_left_out():
    entry = next(entry for entry in journal(1) if entry["event"] == "committed")
    entry["peers"][0]["loss"] = float("nan")
    assert read_journal([json.dumps(entry)]).commits[0].peers[0].loss is None


def test_events_saved_by_the_in_memory_api_are_read(tmp_path):
    api = MemoryApi()
    event = Event(
        reason="PodPreempted",
        message="uni-c.0 was preempted.",
        kind="SpesJob",
        namespace="research",
        name="moe-tiny",
        time=START,
        type="Warning",
    )
    asyncio.run(post(api, "hub", event))
    api.save(tmp_path / "cluster.json")

    document = json.loads((tmp_path / "cluster.json").read_text())
    (read,) = read_cluster(document, job="moe-tiny").events

    assert (read.time, read.reason, read.warning) == (START, "PodPreempted", True)
    assert read.message == "uni-c.0 was preempted."


def test_a_broken_object_does_not_hide_the_others():
    broken = {"kind": "Event", "metadata": {}, "eventTime": 12}
    document = [broken, {"kind": "ConfigMap", "metadata": {"name": "moe-tiny-ownership"}}]
    assert read_cluster(document, job="moe-tiny").events == ()


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("spesjob.yaml", "spesjob.yaml is missing"),
        ("members.yaml", "members.yaml is missing"),
        ("cluster.json", "cluster.json is missing"),
        ("sync/journal.jsonl", "sync/journal.jsonl cannot be read"),
    ],
)
def test_a_missing_file_is_named_and_the_rest_is_read(tmp_path, file, said):
    run_dir = write_run(tmp_path / "run", rounds=3)
    (run_dir / file).unlink()
    gaps = load_record(run_dir).gaps
    assert any(gap.startswith(said) for gap in gaps)


@pytest.mark.parametrize("file", ["spesjob.yaml", "members.yaml", "cluster.json", "baselines.json"])
@pytest.mark.parametrize("content", [b"", b"\xff\x00{", b"[1, 2]", b"{: :"], ids=repr)
def test_a_file_that_is_not_what_it_says_stops_nothing(tmp_path, file, content):
    run_dir = write_run(tmp_path / "run", rounds=3)
    (run_dir / file).write_bytes(content)
    assert len(load_record(run_dir).journal.commits) == 3


def test_a_killed_run_says_where_it_ended(tmp_path):
    run_dir = write_run(tmp_path / "run", rounds=5)
    path = run_dir / "sync" / "journal.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert "The run did not finish: it ended after round 5." in load_record(run_dir).gaps


def test_moves_follow_from_the_journal_if_the_hub_left_none(tmp_path):
    run_dir = write_run(tmp_path / "run", rounds=14)
    told = load_record(run_dir).moves
    (run_dir / "cluster.json").unlink()
    shown = load_record(run_dir).moves
    assert [(m.round, m.expert, m.source, m.target) for m in shown] == [
        (m.round, m.expert, m.source, m.target) for m in told
    ]


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="is not the folder of a run"):
        load_record(tmp_path)
