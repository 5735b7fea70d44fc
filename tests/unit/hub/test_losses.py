"""Who is lost, and whether it is acted upon: every rule by itself, and what must hold for all."""

from datetime import UTC, datetime, timedelta

import pytest
from builders.hub_world import job_document
from hypothesis import given
from hypothesis import strategies as st
from spes_api.job import SpesJob
from spes_api.kinds import MemberCluster, MemberClusterSpec, MemberReport, SlotOffer
from spes_api.schema_base import Metadata
from spes_operator.hub.membership import losses
from spes_operator.hub.ownership import Ownership
from spes_operator.hub.peers import Peer
from spes_operator.hub.sync_state import PeerState, SyncState
from spes_operator.hub.view import HubView, MemberSeen, ServerSeen

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
# Of the job: unreachable after 4 s, reassigned after 10 s, held for 5 s after a hub start.
LIMIT = 10


def peer(index, *, silent=0, away=0, unfit="", back=None):
    """A placed peer of a member of its own.

    Args:
        index: Of both.
        silent: Seconds since the member's last heartbeat.
        away: Seconds since the Session's last sign of life; 0: it is live.
        unfit: Why its member must not be used: "drained", "slot taken away" or "not accepted".
        back: Seconds since the member's heartbeat returned.
    """
    name = f"uni-{index}"
    member = MemberSeen(
        cluster=MemberCluster(
            metadata=Metadata(name=name),
            spec=MemberClusterSpec(accepted=unfit != "not accepted"),
        ),
        report=MemberReport(metadata=Metadata(name="report")),
        silent_for=silent * SECOND,
        back_for=None if back is None else back * SECOND,
    )
    session = PeerState(peer=f"{name}.0", connected=away == 0, silent_for=away * SECOND)
    return Peer(
        id=f"{name}.0",
        member=member,
        offer=None if unfit == "slot taken away" else SlotOffer(name="0", memory_bytes=1),
        assignment=None,
        session=session,
        placed=True,
        unfit=unfit,
        age=timedelta(hours=1),
        unreachable_after=4 * SECOND,
    )


def judged(*peers, mode="Automatic", annotations=None, hub_age=3600, released=""):
    document = job_document(reassignment={"mode": mode})
    document["metadata"]["annotations"] = annotations or {}
    seen = HubView(
        job=SpesJob.model_validate(document),
        ownership=Ownership(
            epoch=1, peers=tuple(one.id for one in peers), changed_at=NOW, released=released
        ),
        members=tuple(one.member for one in peers),
        assignments=(),
        server=ServerSeen(ready=True),
        sync=SyncState(),
        hub_age=hub_age * SECOND,
    )
    return losses(seen, peers, peers)


def names(found):
    return [loss.peer for loss in found]


@pytest.mark.parametrize(
    ("silent", "away", "lost"),
    [
        pytest.param(60, 0, False, id="its Session lives"),
        pytest.param(60, 60, True, id="neither heartbeat nor Session"),
        pytest.param(0, 60, True, id="its trainer has no Session for too long"),
        pytest.param(LIMIT, LIMIT, False, id="at the limit"),
        pytest.param(LIMIT + 1, LIMIT + 1, True, id="just beyond it"),
    ],
)
def test_silence_needs_both_signals(silent, away, lost):
    found = judged(peer(0), peer(1), peer(2, silent=silent, away=away))
    assert names(found.now) == (["uni-2.0"] if lost else [])
    assert found.hold is None


def test_a_member_that_is_not_accepted_is_lost_with_a_live_session():
    found = judged(peer(0), peer(1, unfit="not accepted"), mode="Manual")
    assert names(found.now) == ["uni-1.0"]


def test_a_drained_member_is_lost_once_its_trainer_has_gone():
    assert judged(peer(0), peer(1, unfit="drained")).now == ()
    assert names(judged(peer(0), peer(1, unfit="drained", away=1)).now) == ["uni-1.0"]


def test_manual_mode_holds_what_no_person_has_decided():
    taken = peer(1, unfit="slot taken away", away=1)
    assert names(judged(peer(0), taken).now) == ["uni-1.0"]
    held = judged(peer(0), taken, peer(2, unfit="drained", away=1), mode="Manual")
    assert (names(held.now), names(held.held)) == (["uni-2.0"], ["uni-1.0"])
    assert held.hold.manual


def test_one_of_two_is_moved_at_once():
    """Half is not more than half: two members never block each other."""
    found = judged(peer(0), peer(1, silent=20, away=20))
    assert (names(found.now), found.hold) == (["uni-1.0"], None)


def vanished(first=20, second=20, *, others=(0,)):
    return (
        *(peer(index) for index in others),
        peer(8, silent=first, away=first),
        peer(9, silent=second, away=second),
    )


def test_most_members_that_vanish_together_are_held():
    found = judged(*vanished())
    assert found.now == ()
    assert names(found.held) == ["uni-8.0", "uni-9.0"]
    assert "2 of 3 members vanished together" in found.hold.reason
    assert found.hold.ends_in == timedelta(seconds=3 * LIMIT - 20)


@pytest.mark.parametrize(
    "peers",
    [
        pytest.param(vanished(others=(0, 1)), id="half of them"),
        pytest.param(vanished(20, 20 + LIMIT + 1), id="one after the other"),
        pytest.param(vanished(31, 31), id="for three times the limit"),
    ],
)
def test_a_hold_has_an_end(peers):
    assert judged(*peers).hold is None


def test_a_hold_ends_when_one_returns():
    gone = [peer(index, silent=20, away=20) for index in (7, 8, 9)]
    assert judged(peer(0), peer(1), *gone).hold is not None
    assert judged(peer(0, back=2), peer(1), *gone).hold is None


def test_a_hold_without_any_live_session_ends_only_by_a_return_or_a_word():
    gone = [peer(index, silent=99, away=99) for index in range(3)]
    assert judged(*gone).hold.ends_in is None
    word = {"spes.dev/reassign": "now"}
    assert len(judged(*gone, annotations=word).now) == 3
    assert judged(*gone, annotations=word, released="now").hold is not None


def test_a_hub_that_just_started_moves_no_silent_member():
    lost = peer(1, silent=20, away=20)
    held = judged(peer(0), peer(2), lost, hub_age=3)
    assert (held.now, names(held.held), held.hold.ends_in) == ((), ["uni-1.0"], 2 * SECOND)
    assert names(judged(peer(0), peer(2), lost, hub_age=5).now) == ["uni-1.0"]


PEERS = st.builds(
    peer,
    st.integers(0, 11),
    silent=st.integers(0, 60),
    away=st.integers(0, 60),
    unfit=st.sampled_from(["", "drained", "slot taken away", "not accepted"]),
    back=st.none() | st.integers(0, 60),
)


@given(
    peers=st.lists(PEERS, min_size=1, max_size=8, unique_by=lambda one: one.id),
    mode=st.sampled_from(["Automatic", "Manual"]),
    hub_age=st.integers(0, 60),
    word=st.booleans(),
)
def test_every_loss_is_acted_upon_or_held_for_a_reason(peers, mode, hub_age, word):
    annotations = {"spes.dev/reassign": "now"} if word else {}
    found = judged(*peers, mode=mode, hub_age=hub_age, annotations=annotations)
    now, held = set(names(found.now)), set(names(found.held))
    assert not now & held
    assert bool(held) <= (found.hold is not None)
    assert not (word and held)
    for one in peers:
        if one.live and one.member.cluster.spec.accepted:
            assert one.id not in now | held
        if not one.member.cluster.spec.accepted:
            assert one.id in now
    assert all(loss.silent or found.hold.manual for loss in found.held)
