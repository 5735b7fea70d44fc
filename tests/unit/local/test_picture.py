"""What the screen shows, from what hub, sync server and run know."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from spes_api.loading import load_job, load_members
from spes_operator.display import HeldOut
from spes_operator.hub.ownership import Ownership
from spes_operator.hub.sync_state import PeerState, Phase, SyncState
from spes_operator.k8s.events import Event
from spes_operator.local.journal_tail import JournalTail, Past, Total
from spes_operator.local.picture import Moment, picture

EXAMPLES = Path(__file__).parents[3] / "examples"
TIME = datetime(2026, 1, 1, tzinfo=UTC)
OWNERSHIP = Ownership(
    epoch=1,
    peers=("uni-a.0", "uni-b.0"),
    owners={0: "uni-a.0", 1: "uni-a.0", 2: "uni-b.0"},
    changed_at=TIME,
)


def state(peer, **changes):
    return PeerState(**{"peer": peer, "connected": True, "caught_up": True, **changes})


def moment(*peers, **changes):
    sync = SyncState(
        phase=Phase.OPEN,
        round=3,
        version=2,
        expected=("uni-a.0", "uni-b.0"),
        pushed=("uni-b.0",),
        left_of_round=timedelta(seconds=9),
        global_tokens=5000,
        active_epoch=1,
        peers={peer.peer: peer for peer in peers},
    )
    given = {
        "job": load_job(EXAMPLES / "moe-tiny.yaml"),
        "members": load_members(EXAMPLES / "members.yaml"),
        "absent": frozenset({"uni-d"}),
        "preempted": frozenset(),
        "elapsed": timedelta(seconds=7),
        "sync": sync,
        "ownership": OWNERSHIP,
        "past": Past(),
        "events": (),
    }
    return Moment(**{**given, **changes})


def states(view):
    return {peer.peer: peer.state for peer in view.peers}


def test_every_member_of_the_file_is_there_in_its_order():
    view = picture(moment(state("uni-a.0"), state("uni-b.0"), state("uni-c.0", caught_up=False)))
    assert states(view) == {
        "uni-a.0": "training",
        "uni-b.0": "pushed",
        "uni-c.0": "catching up",
        "uni-d.0": "absent",
    }


@pytest.mark.parametrize(
    ("peer", "word"),
    [
        pytest.param(state("uni-a.0", left="SIGTERM"), "left", id="left"),
        pytest.param(state("uni-a.0", connected=False), "lost", id="owner without a session"),
        pytest.param(state("uni-c.0", connected=False), "starting", id="candidate without one"),
        pytest.param(state("uni-c.0"), "ready", id="candidate that is caught up"),
    ],
)
def test_each_state_has_its_word(peer, word):
    assert states(picture(moment(peer)))[peer.peer] == word


def test_a_preempted_member_is_shown_as_such():
    view = picture(moment(state("uni-a.0"), preempted=frozenset({"uni-a"})))
    assert states(view)["uni-a.0"] == "preempted"


def test_numbers_come_from_the_sync_server():
    first = state("uni-a.0", steps=4, tokens_per_second=700.0, loss=2.5, bytes_up=10, refusals=1)
    view = picture(moment(first, state("uni-b.0", tokens_per_second=300.0)))
    assert (view.round, view.version, view.tokens, view.epoch) == (3, 2, 5000, 1)
    assert (view.tokens_per_second, view.deadline_in) == (1000.0, timedelta(seconds=9))
    peer = view.peers[0]
    assert (peer.experts, peer.step, peer.steps_per_round, peer.loss) == ((0, 1), 4, 10, 2.5)
    assert peer.problem == "1 pushes refused"
    assert view.peers[1].pushed


def test_at_the_end_peers_are_done_and_the_last_round_is_named():
    gone = [state(peer, connected=False) for peer in ("uni-a.0", "uni-c.0")]
    given = moment(*gone)
    view = picture(replace(given, sync=replace(given.sync, phase=Phase.COMPLETE)))
    assert (view.phase, view.round) == ("finished", 2)
    assert (states(view)["uni-a.0"], states(view)["uni-c.0"]) == ("done", "done")


def test_before_the_sync_server_answers_the_phase_is_that_of_the_run():
    view = picture(moment(sync=None, ownership=None, phase="starting the sync server"))
    assert (view.phase, view.version, view.deadline_in) == ("starting the sync server", -1, None)
    assert states(view)["uni-a.0"] == "starting"


def test_a_held_round_says_why():
    held = replace(moment().sync, phase=Phase.HELD, problem="uni-a.0 is missing")
    view = picture(moment(sync=held))
    assert (view.phase, view.problem) == ("round held", "uni-a.0 is missing")


def test_events_are_lines():
    event = Event(
        reason="ExpertsMoved",
        message="2 moved",
        kind="SpesJob",
        namespace="research",
        name="moe-tiny",
        time=TIME,
        type="Warning",
    )
    (line,) = picture(moment(events=[event.to_json()])).events
    assert (line.time, line.text, line.warning) == (TIME, "2 moved", True)


def evaluated(version, loss):
    return json.dumps(
        {
            "time": TIME.isoformat(),
            "event": "evaluated",
            "version": version,
            "loss": loss,
            "tokens": 64,
            "peer": "uni-a.0",
        }
    )


def test_a_peer_that_is_gone_keeps_its_totals():
    past = Past(totals={"uni-c.0": Total(bytes_up=70, bytes_down=40, waited=timedelta(seconds=3))})
    for peers in ((), (state("uni-c.0", bytes_up=5, bytes_down=50),)):  # gone, and back again
        view = picture(moment(*peers, past=past, preempted=frozenset({"uni-c"})))
        (seen,) = [peer for peer in view.peers if peer.peer == "uni-c.0"]
        assert (seen.state, seen.bytes_up, seen.waited) == ("preempted", 70, timedelta(seconds=3))
    assert seen.bytes_down == 50


def test_the_journal_adds_up_what_a_peer_has_cost(tmp_path):
    path = tmp_path / "journal.jsonl"
    tail = JournalTail(path)
    for version in (1, 2):
        with path.open("a") as file:
            file.write(f"{committed(version, bytesUp=30, bytesDown=20, waitSeconds=1.5)}\n")
        totals = tail.look().totals
    assert totals == {
        "uni-a.0": Total(bytes_up=60, bytes_down=40, waited=timedelta(seconds=3)),
    }


def committed(version, **part):
    peer = {
        "peer": "uni-a.0",
        "experts": "0-3",
        "tokens": 1000,
        "loss": 3.0,
        "tokensPerSecond": 100.0,
    }
    return json.dumps(
        {
            "time": TIME.isoformat(),
            "event": "committed",
            "round": version,
            "version": version,
            "epoch": 1,
            "seconds": 1.0,
            "globalTokens": 1000 * version,
            "modelSha256": "00",
            "peers": [peer | part],
        }
    )


def test_the_journal_is_followed_line_by_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    tail = JournalTail(path)
    assert tail.look() == Past()
    whole, torn = evaluated(0, 5.5), evaluated(1, 3.0)
    path.write_text(f"{whole}\n{torn[:20]}")
    assert tail.look().held_out == (HeldOut(version=0, tokens=0, loss=5.5),)
    path.write_text(f"{whole}\n{torn}\n")
    assert [seen.loss for seen in tail.look().held_out] == [5.5, 3.0]
