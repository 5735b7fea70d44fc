"""`spes run` over real processes: members come and go, parts are killed, the user interrupts."""

from itertools import groupby

import pytest
from builders.local_run import MANY_ROUNDS, ROUND_TOKENS, Folder, make_job

pytestmark = [pytest.mark.run, pytest.mark.timeout(600)]


def test_members_come_and_go(tmp_path):
    folder = Folder(tmp_path)
    folder.write(make_job(rounds=MANY_ROUNDS, peers=3, min=3), "uni-a", "uni-b", "uni-c", "uni-d")
    with folder.start("run", "uni-d joins @ round 2", "uni-c preempted @ round 3") as run:
        assert run.finish() == 0, run.output.read_text()
    owners = run.owners()
    assert sorted(owners[1]) == ["uni-a.0", "uni-b.0", "uni-c.0"]
    assert sorted(owners[max(owners)]) == ["uni-a.0", "uni-b.0", "uni-d.0"]
    for _, group in groupby(run.summary["moves"], lambda move: move["reason"]):
        batch = list(group)
        assert {move["lowerBound"] for move in batch} == {len(batch)}
    assert run.summary["tokens"] >= MANY_ROUNDS * 3 * ROUND_TOKENS
    assert run.summary["heldOutLoss"]["last"] < run.summary["heldOutLoss"]["first"] - 1
    assert run.summary["unigramLoss"] > 0
    assert (run.directory / "sample.txt").read_text()
    assert (run.directory / "report.html").exists()
    assert any((run.directory / "export").glob("*.safetensors"))


def test_a_crash_is_replaced_and_a_killed_member_loses_its_experts(tmp_path):
    folder = Folder(tmp_path)
    folder.write(make_job(rounds=MANY_ROUNDS, peers=2, min=1), "uni-a", "uni-b")
    with folder.start("run", "uni-a crashes @ round 2", "uni-b killed @ round 4") as run:
        assert run.finish() == 0, run.output.read_text()
    joined = [entry["peer"] for entry in run.journal("joined")]
    assert joined.count("uni-a.0") == 2
    assert joined.count("uni-b.0") == 1
    owners = run.owners()
    assert owners[max(owners)] == {"uni-a.0": "0-3"}


def test_killing_the_sync_server_changes_no_weight(tmp_path):
    folder = Folder(tmp_path)
    job = make_job(rounds=MANY_ROUNDS, peers=2)
    # No peer is given up on a busy machine: equal bits need every push.
    job["spec"]["reassignment"] |= {"unreachableAfterSeconds": 30, "reassignAfterSeconds": 60}
    folder.write(job, "uni-a", "uni-b")
    hashes = []
    for name, events in {"calm": (), "rough": ("sync-server killed @ round 3",)}.items():
        with folder.start(name, *events) as run:
            assert run.finish() == 0, run.output.read_text()
        hashes.append([entry["modelSha256"] for entry in run.journal("committed")])
    assert len(hashes[0]) == MANY_ROUNDS
    assert hashes[0] == hashes[1]
    assert len(run.journal("recovered")) == 1


def test_an_interrupted_run_goes_on_where_it_was(tmp_path):
    folder = Folder(tmp_path)
    folder.write(make_job(rounds=MANY_ROUNDS, peers=2), "uni-a", "uni-b")
    with folder.start("run") as run:
        run.until_round(2)
        with folder.start("run") as second:
            assert second.exit_code() == 2
        assert f"in use by another `spes run` (process {run.process.pid})" in run.output.read_text()
        run.interrupt()
        assert run.finish() == 130
    before = run.journal("committed")
    assert "spes run --resume" in run.output.read_text()
    with folder.resume("run") as run:
        assert run.finish() == 0, run.output.read_text()
    after = run.journal("committed")
    assert after[: len(before)] == before
    assert [entry["version"] for entry in after] == list(range(1, len(after) + 1))
    assert run.summary["tokens"] >= MANY_ROUNDS * 2 * ROUND_TOKENS


def test_a_second_interrupt_ends_at_once_and_the_run_still_goes_on(tmp_path):
    folder = Folder(tmp_path)
    folder.write(make_job(rounds=MANY_ROUNDS, peers=2), "uni-a", "uni-b")
    with folder.start("run") as run:
        run.until_round(1)
        run.interrupt()
        run.interrupt()
        assert run.finish() == 130
    with folder.resume("run") as run:
        assert run.finish() == 0, run.output.read_text()


def test_nothing_outlives_a_killed_run_and_it_still_goes_on(tmp_path):
    folder = Folder(tmp_path)
    folder.write(make_job(rounds=MANY_ROUNDS, peers=2), "uni-a", "uni-b")
    with folder.start("run") as run:
        run.until_round(1)
        assert len(run.processes()) == 3
        run.kill()
    with folder.resume("run") as run:
        assert run.finish() == 0, run.output.read_text()
