"""The gates before a push counts, on its key and its header."""

from __future__ import annotations

import pytest
from builders.raw_peer import MANIFEST
from builders.sync_rounds import A, B, C, opened, push, waiting
from spes_proto.v1 import sync_pb2
from spes_sync import gates
from spes_sync.errors import ProtocolError
from spes_sync.gates import Allowance, JobId
from spes_sync.manifest import Manifest
from spes_sync.plan import Grant, PeerId, Plan, peer_id
from spes_sync.rounds import events as ev

JOB = JobId(uid="job", incarnation=1)
ALLOWED = Allowance(steps=4, tokens=32)


def header(experts=(), **changes) -> sync_pb2.PushHeader:
    tensors = MANIFEST.trained_by(experts)
    key = {"job_uid": "job", "incarnation": 1, "peer": A, "round": 1, "base_version": 0}
    key |= {"epoch": 1, "part": sync_pb2.ALL}
    given = {"kind": sync_pb2.DELTA, "codec": sync_pb2.FP32, "steps": 2, "tokens": 16}
    given |= {"tensors": [t.to_proto() for t in tensors]}
    given |= {"total_bytes": sum(t.num_bytes for t in tensors)}
    for name, value in changes.items():
        (key if name in key else given)[name] = value
    return sync_pb2.PushHeader(key=sync_pb2.PushKey(**key), **given)


def verdict(machine, sent, *, peer=A):
    reply = gates.judge(machine.state, sent, peer, JOB)
    return None if reply is None else (reply.verdict, reply.reason)


def test_expected_push_on_the_rounds_base_is_taken_in():
    assert verdict(opened(A, B), header()) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"job_uid": "other"}, sync_pb2.WRONG_JOB),
        ({"incarnation": 2}, sync_pb2.WRONG_JOB),
        ({"peer": B}, sync_pb2.PROTOCOL),
        ({"epoch": 2}, sync_pb2.PROTOCOL),
        ({"kind": sync_pb2.KIND_UNSPECIFIED}, sync_pb2.PROTOCOL),
        ({"part": sync_pb2.PART_UNSPECIFIED}, sync_pb2.PROTOCOL),
    ],
)
def test_wrong_key_is_refused(changes, reason):
    assert verdict(opened(A, B), header(**changes)) == (sync_pb2.REFUSED, reason)


def test_another_base_is_rebase_even_for_a_peer_that_is_not_expected():
    rebase = (sync_pb2.REBASE, sync_pb2.OLD_BASE)
    assert verdict(opened(A, B), header(base_version=-1)) == rebase
    assert verdict(opened(B), header(base_version=-1)) == rebase


def test_any_push_is_rebase_while_no_round_takes_pushes():
    machine = opened(A, B).verify(A).verify(B)
    assert verdict(machine, header()) == (sync_pb2.REBASE, sync_pb2.OLD_BASE)
    assert verdict(waiting(A), header()) == (sync_pb2.REBASE, sync_pb2.OLD_BASE)


def test_verified_push_is_had_already_also_under_another_epoch():
    machine = opened(A, B).verify(A)
    assert verdict(machine, header())[0] == sync_pb2.ALREADY_HAVE
    assert verdict(machine, header(epoch=0))[0] == sync_pb2.ALREADY_HAVE


def test_whole_and_parts_never_both_count():
    machine = opened(A, B).verify(A)
    for part in (sync_pb2.EXPERTS, sync_pb2.SHARED):
        assert verdict(machine, header(part=part))[0] == sync_pb2.ALREADY_HAVE
    parts = opened(A, B).verify(A, push(part=sync_pb2.EXPERTS))
    assert verdict(parts, header()) == (sync_pb2.REFUSED, sync_pb2.PROTOCOL)
    assert verdict(parts, header(part=sync_pb2.SHARED)) is None


def test_unexpected_peer_is_refused():
    assert verdict(opened(B), header()) == (sync_pb2.REFUSED, sync_pb2.NOT_EXPECTED)


def test_seed_only_from_the_peer_that_was_asked():
    machine = waiting()
    machine.state = machine.state.__class__(rules=machine.state.rules, seed_peer=A)
    seed = header(kind=sync_pb2.SEED)
    assert verdict(machine, seed) is None
    assert verdict(machine, header(kind=sync_pb2.SEED, peer=B), peer=B) == (
        sync_pb2.REFUSED,
        sync_pb2.NOT_EXPECTED,
    )
    assert verdict(machine.do(ev.Seeded()), seed)[0] == sync_pb2.REBASE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"total_bytes": 8}, sync_pb2.WRONG_SHAPE),
        ({"total_bytes": 1 << 40}, sync_pb2.TOO_LARGE),
        ({"steps": 5}, sync_pb2.TOO_LARGE),
        ({"tokens": 33}, sync_pb2.TOO_LARGE),
        ({"steps": 0}, sync_pb2.TOO_LARGE),
        ({"codec": sync_pb2.CODEC_UNSPECIFIED}, sync_pb2.PROTOCOL),
        ({"codec": 9}, sync_pb2.PROTOCOL),
        ({"codec": sync_pb2.INT8}, sync_pb2.TOO_LARGE),
        ({"tensors": [], "total_bytes": 0}, sync_pb2.WRONG_SHAPE),
        ({"part": sync_pb2.EXPERTS}, sync_pb2.WRONG_SHAPE),
        ({"part": sync_pb2.SHARED}, sync_pb2.WRONG_SHAPE),
    ],
)
def test_wrong_header_is_refused(changes, reason):
    with pytest.raises(ProtocolError) as refused:
        gates.check_header(header(experts=[0], **changes), MANIFEST, ALLOWED)
    assert refused.value.reason == reason


def test_header_without_the_shared_tensors_is_no_whole_push():
    tensors = [tensor.to_proto() for tensor in MANIFEST.of_expert(0)]
    with pytest.raises(ProtocolError, match="part ALL"):
        gates.check_header(header(tensors=tensors, total_bytes=24), MANIFEST, ALLOWED)


def test_experts_under_an_older_grant_are_dropped_alone():
    machine = opened(A, B, C, quorum=1.0)
    tensors = MANIFEST.trained_by([0, 1, 3])
    assert gates.split_experts(machine.state, tensors, A, 1) == ((0,), (1, 3))
    assert gates.split_experts(machine.state, tensors, A, 0) == ((), (0, 1, 3))


def test_lost_and_regained_expert_refuses_the_old_work():
    before = Plan(epoch=1, peers=(A,), owners={0: Grant(peer=A, epoch=1)})
    regained = Plan(epoch=3, peers=(A,), owners={0: Grant(peer=A, epoch=3)})
    assert before.counts(0, peer=A, epoch=1)
    assert not regained.counts(0, peer=A, epoch=1)
    assert regained.counts(0, peer=A, epoch=3)


def test_change_for_others_throws_nobodys_work_away():
    later = Plan(epoch=9, peers=(A, B), owners={0: Grant(peer=A, epoch=1)})
    assert later.counts(0, peer=A, epoch=1)


@pytest.mark.parametrize("name", ["../etc", "A", "", "a..b", "a/b", ".a", "a" * 64])
def test_name_that_could_leave_the_directory_is_no_peer(name):
    with pytest.raises(ProtocolError):
        peer_id(name)


@pytest.mark.parametrize(
    "plan",
    [
        sync_pb2.Plan(epoch=1, owners=[sync_pb2.Owner(expert=0, peer="a.0", granted_epoch=1)]),
        sync_pb2.Plan(epoch=1, peers=["a.0"], owners=[sync_pb2.Owner(peer="a.0", granted_epoch=2)]),
        sync_pb2.Plan(epoch=1, peers=["a.0"], owners=[sync_pb2.Owner(peer="a.0")] * 2),
        sync_pb2.Plan(epoch=1, peers=["a.0"], owners=[sync_pb2.Owner(peer="a.0")], parked=[0]),
        sync_pb2.Plan(epoch=1, peers=["a.0"], owners=[sync_pb2.Owner(peer="a.0")], replicated=True),
        sync_pb2.Plan(epoch=1, peers=["a.0"], parked=[0], replicated=True),
    ],
    ids=[
        "owner not placed",
        "grant from the future",
        "two owners",
        "owned and parked",
        "owners though all train everything",
        "parked though all train everything",
    ],
)
def test_plan_that_cannot_be_is_refused(plan):
    with pytest.raises(ProtocolError):
        Plan.from_proto(plan)


def test_plan_survives_the_wire():
    plan = Plan(epoch=3, peers=(A, B), owners={1: Grant(peer=PeerId("a.0"), epoch=2)}, parked=(0,))
    assert Plan.from_proto(plan.to_proto()) == plan


def test_replicated_plan_survives_the_wire_and_owns_nothing():
    plan = Plan(epoch=1, peers=(A, B), replicated=True)
    assert Plan.from_proto(plan.to_proto()) == plan
    assert plan.experts_of(A) == ()


def test_seed_with_owned_experts_is_refused_where_all_train_everything():
    with pytest.raises(ProtocolError, match="4 experts with owners"):
        gates.check_seed(MANIFEST, replicated=True)
    gates.check_seed(MANIFEST, replicated=False)
    gates.check_seed(Manifest(MANIFEST.shared()), replicated=True)


def test_push_of_experts_alone_awaits_the_shared_part():
    assert not push(part=sync_pb2.EXPERTS).has_shared
    assert push(part=sync_pb2.SHARED).has_shared


@pytest.mark.parametrize(
    "changes", [{"kind": sync_pb2.SEED}, {"part": sync_pb2.MOMENTS}], ids=["seed", "moments"]
)
def test_only_deltas_may_be_coded_with_loss(changes):
    with pytest.raises(ProtocolError, match="no delta") as refused:
        gates.check_size(header(codec=sync_pb2.INT8, **changes), MANIFEST.tensors)
    assert refused.value.reason == sync_pb2.PROTOCOL
