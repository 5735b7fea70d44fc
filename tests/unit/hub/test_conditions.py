"""Every reason of a SpesJob, from what the hub sees when it appears."""

from datetime import UTC, datetime, timedelta

import pytest
from builders.hub_world import MEMORY, job_document
from spes_api.job import SpesJob
from spes_api.kinds import (
    DatasetOffer,
    MemberCluster,
    MemberClusterSpec,
    MemberReport,
    MemberReportStatus,
    SlotOffer,
    SyncTarget,
    TrainerAssignment,
    TrainerAssignmentSpec,
    TrainerAssignmentStatus,
    TrainerTemplate,
)
from spes_api.schema_base import Condition, Metadata
from spes_operator.hub.ownership import Cause, Move, Ownership
from spes_operator.hub.reconcile import reconcile_job
from spes_operator.hub.sync_state import PeerState, Phase, SyncState
from spes_operator.hub.view import HubView, MemberSeen, ServerSeen
from spes_operator.names import ANNOTATION_DRAIN

NOW = datetime(2026, 1, 1, tzinfo=UTC)
A, B = "uni-a.0", "uni-b.0"
SECONDS = timedelta(seconds=1)


def member(name, *, room=8, accepted=True, silent=0, datasets=()):
    """One that lends a slot with memory for `room` experts."""
    slot = SlotOffer(name="0", memory_bytes=MEMORY[room], activation_bytes=16 * 2**20)
    return MemberSeen(
        cluster=MemberCluster(
            metadata=Metadata(name=name), spec=MemberClusterSpec(accepted=accepted)
        ),
        report=MemberReport(
            metadata=Metadata(name="report", namespace=f"spes-member-{name}"),
            status=MemberReportStatus(
                slots=[slot], datasets=[DatasetOffer(name=one) for one in datasets]
            ),
        ),
        silent_for=silent * SECONDS,
    )


def assignment(peer, *told):
    """That of a peer; `told`: conditions as (type, status, reason, message)."""
    name, _, slot = peer.partition(".")
    return TrainerAssignment(
        metadata=Metadata(
            name="moe-0", namespace=f"spes-member-{name}", creation_timestamp="2025-12-31T23:59:55Z"
        ),
        spec=TrainerAssignmentSpec(
            job_uid="uid",
            slot=slot,
            template=TrainerTemplate(),
            template_hash="h",
            join_secret="moe-0-join",
            sync=SyncTarget(endpoint="hub:7443", ca_bundle=""),
        ),
        status=TrainerAssignmentStatus(
            conditions=[
                Condition(type=kind, status=status, reason=reason, message=message)
                for kind, status, reason, message in told
            ]
        ),
    )


def session(peer, **changes):
    return PeerState(**({"peer": peer, "connected": True, "caught_up": True} | changes))


def sync(*sessions, **changes):
    state = {"job_uid": "uid", "incarnation": 1, "phase": Phase.OPEN, "version": 3}
    return SyncState(**(state | {"peers": {one.peer: one for one in sessions}} | changes))


def owned(*peers, epoch=1, **changes):
    owners = {expert: peers[expert % len(peers)] for expert in range(8)}
    fixed = {"granted": dict.fromkeys(owners, epoch), "changed_at": NOW, "changed_in_version": 3}
    return Ownership(**(fixed | {"epoch": epoch, "peers": peers, "owners": owners} | changes))


def view(*, job=None, annotations=None, **changes):
    document = job_document(**(job or {}))
    document["metadata"] |= {"uid": "uid", "annotations": annotations or {}}
    return HubView(
        **{
            "job": SpesJob.model_validate(document),
            "ownership": None,
            "members": (member("uni-a"), member("uni-b")),
            "assignments": (assignment(A), assignment(B)),
            "server": ServerSeen(ready=True, endpoint="hub:7443"),
            "sync": sync(phase=Phase.SEEDING, version=-1),
            "hub_age": timedelta(hours=1),
        }
        | changes
    )


def condition(seen, kind):
    conditions = reconcile_job(seen, now=NOW).status.conditions
    return next(one for one in conditions if one.type == kind)


def training(**changes):
    """Both peers train; `changes` say what is otherwise."""
    state = {"ownership": owned(A, B), "sync": sync(session(A), session(B), active_epoch=1)}
    return view(**(state | changes))


VETO = ("Applied", "False", "VetoedByMember", "image registry/x is not allowed")
QUOTA = ("Applied", "False", "QuotaExceeded", "exceeded quota: gpus, used 8, limited 8")
IMAGE = ("PodReady", "False", "ImagePullFailed", "ErrImagePull: no such tag")
FULL = ("PodReady", "False", "Unschedulable", "0/3 nodes are available")
FAILED = ("Finished", "True", "TrainerFailed", "exit code 3 after 6 restarts")
ONE = {"members": {"min": 1}}
TEXT = {"data": {"sources": [{"dataset": {"name": "c4"}}], "sequenceTokens": 256}}


@pytest.mark.parametrize(
    ("seen", "reason", "words"),
    [
        (view(job={"suspend": True}), "SuspendRequested", "spec.suspend"),
        (view(server=ServerSeen(message="volume is pending")), "WaitingForPods", "volume"),
        (training(sync=None), "SyncServerUnreachable", "does not answer"),
        (training(sync=sync(session(A), phase=Phase.HELD, problem="disk")), "RoundHeld", "disk"),
        (view(members=(), assignments=()), "NotEnoughMembers", "spes invite"),
        (
            view(members=(member("uni-a"), member("uni-b", accepted=False)), assignments=()),
            "NotEnoughMembers",
            "0 of at least 2 peers are ready; member uni-b is not accepted",
        ),
        (
            view(members=(member("uni-a", room=2), member("uni-b", room=4))),
            "NoGPUCapacity",
            "8 experts need an owner, but the peers have memory for 6",
        ),
        (
            view(
                job={"trainer": {"activationBytes": 2**25}},
                members=(member("uni-a", room=0), member("uni-b")),
            ),
            "NoGPUCapacity",
            "1 of 2 peers have memory for the model even without an expert of their own",
        ),
        (view(job=TEXT), "DatasetMissing", "member uni-a has no dataset c4"),
        (view(assignments=(assignment(A, VETO), assignment(B))), "VetoedByMember", f"{A}: image"),
        (view(assignments=(assignment(A, QUOTA), assignment(B))), "QuotaExceeded", "used 8"),
        (view(assignments=(assignment(A, IMAGE), assignment(B))), "ImagePullFailed", "no such tag"),
        (view(assignments=(assignment(A), assignment(B, FULL))), "Unschedulable", "0/3 nodes"),
        (view(), "WaitingForPods", "2 trainers are starting"),
        (view(sync=sync(session(A), phase=Phase.SEEDING)), "Seeding", "first version"),
        (view(sync=sync(session(A), phase=Phase.WAITING)), "WaitingForPods", "1 of at least 2"),
        (training(), "Training", "2 peers train"),
        (training(sync=sync(session(A))), "NotEnoughMembers", "1 of at least 2 peers are ready"),
        (
            training(sync=sync(session(A)), assignments=(assignment(A), assignment(B, IMAGE))),
            "ImagePullFailed",
            B,
        ),
        (training(sync=sync(phase=Phase.COMPLETE, global_tokens=9)), "MaxTokensReached", "9 tok"),
        (
            view(job=ONE, assignments=(assignment(A, FAILED), assignment(B, FAILED))),
            "TrainerFailed",
            f"{A}: exit code 3",
        ),
        (
            view(job=ONE, assignments=(assignment(A, VETO), assignment(B, VETO))),
            "VetoedByMember",
            f"{B}: image",
        ),
    ],
)
def test_ready_says_what_explains_the_rest(seen, reason, words):
    ready = condition(seen, "Ready")
    assert (ready.reason, words in ready.message) == (reason, True), ready.message


def moved(cause, source="uni-c.0"):
    return Move(
        epoch=2,
        time=NOW,
        round=3,
        expert=0,
        source=source,
        target=A,
        cause=cause,
        reason="because",
        lower_bound=1,
    )


AWAY = sync(session(A), session(B, connected=False, silent_for=6 * SECONDS), active_epoch=1)
GONE = sync(session(A), session(B, connected=False, silent_for=60 * SECONDS))
LATER = owned(A, B, epoch=2, moves=(moved(Cause.SILENCE),))


@pytest.mark.parametrize(
    ("seen", "reason", "words"),
    [
        (training(), "AsExpected", ""),
        (
            training(sync=AWAY, members=(member("uni-a"), member("uni-b", silent=7))),
            "MemberUnreachable",
            "member uni-b is silent; its experts move 10 s after",
        ),
        (
            training(
                sync=GONE,
                job={"reassignment": {"mode": "Manual"}},
                members=(member("uni-a"), member("uni-b", silent=60)),
            ),
            "ReassignmentHeld",
            "its experts stay: reassignment.mode is Manual",
        ),
        (
            training(
                sync=GONE,
                members=(member("uni-a"), member("uni-b", silent=60)),
                hub_age=3 * SECONDS,
            ),
            "ReassignmentHeld",
            "its experts stay, for at most 2 s: the hub started a moment ago",
        ),
        (training(ownership=LATER), "Reassigning", "experts of uni-c.0 move when the next round"),
        (
            training(ownership=LATER, sync=sync(session(A), session(B), active_epoch=2)),
            "AsExpected",
            "",
        ),
        (training(ownership=LATER, annotations={ANNOTATION_DRAIN: "uni-c"}), "AsExpected", ""),
        (
            training(ownership=owned(A, B, epoch=2, moves=(moved(Cause.BALANCE, B),))),
            "AsExpected",
            "",
        ),
        (
            training(sync=sync(session(A), active_epoch=1), assignments=(assignment(A),)),
            "PodPreempted",
            B,
        ),
        (
            training(
                sync=sync(session(A), active_epoch=1),
                assignments=(assignment(A), assignment(B, QUOTA)),
            ),
            "QuotaExceeded",
            f"{B}: exceeded quota",
        ),
        (
            training(
                job={"members": {"min": 1}},
                ownership=owned(A),
                sync=sync(session(A), active_epoch=1),
                assignments=(assignment(A), assignment(B, VETO)),
            ),
            "VetoedByMember",
            B,
        ),
        (
            training(
                members=(member("uni-a", room=4), member("uni-b", room=2)),
                ownership=owned(
                    A, B, owners=dict.fromkeys(range(4), A) | {4: B, 5: B}, parked=(6, 7)
                ),
            ),
            "ExpertsParked",
            "for 2 experts",
        ),
        (
            training(server=ServerSeen(ready=True, endpoint="hub:1", problem="no such class")),
            "WriteRefused",
            "no such class",
        ),
    ],
)
def test_degraded_says_what_is_missing_while_the_rest_goes_on(seen, reason, words):
    degraded = condition(seen, "Degraded")
    assert (degraded.reason, words in degraded.message) == (reason, True), degraded.message
    assert degraded.status == ("False" if reason == "AsExpected" else "True")


def test_what_a_silent_member_said_last_explains_nothing():
    seen = training(
        sync=AWAY,
        members=(member("uni-a"), member("uni-b", silent=7)),
        assignments=(assignment(A), assignment(B, IMAGE)),
    )
    assert condition(seen, "Degraded").reason == "MemberUnreachable"
    assert condition(seen, "Ready").reason == "NotEnoughMembers"


def test_a_hindered_peer_that_is_not_needed_delays_nothing():
    seen = view(job=ONE, assignments=(assignment(A, IMAGE), assignment(B)))
    assert condition(seen, "Ready").message == "2 trainers are starting"
    assert condition(seen, "Degraded").reason == "ImagePullFailed"


def test_failed_when_no_trainer_is_left():
    seen = view(assignments=(assignment(A, FAILED), assignment(B, VETO)))
    failed = condition(seen, "Failed")
    assert (failed.status, failed.reason) == ("True", "TrainerFailed")
    assert "exit code 3" in failed.message
    assert "is not allowed" in failed.message


@pytest.mark.parametrize(
    ("seen", "status", "reason"),
    [
        (training(), "True", "AsExpected"),
        (training(sync=sync(session(A))), "False", "NotEnoughMembers"),
    ],
)
def test_quorum_is_the_least_number_of_peers(seen, status, reason):
    quorum = condition(seen, "QuorumReached")
    assert (quorum.status, quorum.reason) == (status, reason)
