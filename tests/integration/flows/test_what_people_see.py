"""What the commands say of a job while it trains over two clusters."""

import json

import pytest
from builders.live_objects import until

pytestmark = pytest.mark.timeout(900)


def test_status_tells_who_owns_what_and_that_all_is_well(federation):
    asked = ("status", "tiny", "-n", federation.namespace)
    told = {}

    def all_train():
        told.update(json.loads(federation.spes(*asked, "-o", "json")))
        return {peer["state"] for peer in told["peers"]} == {"training"}

    until(all_train, lambda: f"{told}")
    job, peers = told["job"], {peer["peer"]: peer["experts"] for peer in told["peers"]}
    assert (job["ready"], job["reason"], job["peersReady"]) == ("True", "Training", 2)
    assert job["round"] > 0
    assert peers.keys() == {federation.peer(site) for site in ("uni-a", "uni-b")}
    assert sorted(expert for experts in peers.values() for expert in experts) == [0, 1, 2, 3]
    members = {member["name"]: member["state"] for member in told["members"]}
    assert {members[federation.member(site)] for site in ("uni-a", "uni-b")} == {"ready"}
    assert any("experts placed" in event["text"] for event in told["events"])
    assert told["notes"] == []
    screen = federation.spes(*asked)
    for peer in peers:
        assert peer in screen
    assert f"ownership epoch {job['ownershipEpoch']}" in screen
    everything = federation.spes("status")
    assert f"{federation.namespace}/tiny" in everything
    assert federation.member("uni-b") in everything


def test_explain_tells_how_that_came(federation):
    asked = ("explain", "sj/tiny", "-n", federation.namespace)
    told = json.loads(federation.spes(*asked, "-o", "json"))
    assert told["waitsFor"] == ""
    assert {peer["peer"] for peer in told["peers"]} == {
        federation.peer(site) for site in ("uni-a", "uni-b")
    }
    shown = federation.spes(*asked)
    epoch = federation.job()["status"]["ownershipEpoch"]
    assert f"owns 2 of 4 experts in epoch {epoch}" in shown
    assert "not ready" not in shown
