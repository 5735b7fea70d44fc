"""`spes run` of every algorithm, over real processes and torch."""

import pytest
from builders.local_run import MANY_ROUNDS, ROUND_TOKENS, Folder, make_job

pytestmark = [pytest.mark.run, pytest.mark.timeout(600)]


def job_of(*, peers: int = 2, rounds: int = 6, **algorithm):
    members = {"min": peers, "max": peers}
    job = make_job(rounds=rounds, peers=peers, **members)
    job["spec"]["algorithm"] = algorithm
    return job


def trained(folder: Folder, job, *members: str, events=()):
    folder.write(job, *members)
    with folder.start("run", *events) as run:
        assert run.finish() == 0, run.output.read_text()
    loss = run.summary["heldOutLoss"]
    assert loss["last"] < loss["first"] - 0.5
    return run


def test_diloco_goes_on_when_a_peer_is_replaced(tmp_path):
    outer = {"learningRate": 0.7, "momentum": 0.5}
    job = job_of(rounds=MANY_ROUNDS, name="DiLoCo", outer=outer)
    run = trained(Folder(tmp_path), job, "uni-a", "uni-b", events=["uni-b crashes @ round 2"])
    assert {owned for owners in run.owners().values() for owned in owners.values()} == {""}
    assert run.summary["moves"] == []
    newest = max((run.directory / "sync/versions").glob("[0-9]*"))
    assert (newest / "velocity.safetensors").exists()
    assert [entry["peer"] for entry in run.journal("joined")].count("uni-b.0") == 2


def test_one_central_peer_trains_everything(tmp_path):
    run = trained(Folder(tmp_path), job_of(peers=1, name="Centralised"), "uni-a")
    assert run.summary["tokens"] >= 6 * ROUND_TOKENS


def test_spes_merges_its_experts_when_it_is_due(tmp_path):
    job = job_of(name="SPES", merge={"everyRounds": 2, "warmupRounds": 6, "donors": 2})
    run = trained(Folder(tmp_path), job, "uni-a", "uni-b")
    assert [entry["round"] for entry in run.journal("merged")] == [2, 4]
    assert {entry["verdict"] for entry in run.journal("push")} == {"VERIFIED"}


def test_too_little_memory_for_everything_is_said_before_anything_runs(tmp_path):
    folder = Folder(tmp_path)
    job = job_of(name="FedAvg")
    job["spec"]["trainer"]["activationBytes"] = 48 * 2**20
    folder.write(job, "uni-a", "uni-b")
    with folder.start("run") as run:
        assert run.finish() == 2
    said = " ".join(run.output.read_text().split())
    assert "with FedAvg every peer trains all 4 experts, but 0 of 2 peers have memory" in said
