"""What must hold of rounds whatever happens, in whatever order: random histories of a small job."""

from __future__ import annotations

import math
from fractions import Fraction

from builders.sync_rounds import A, B, C, D, Machine, plan, push, rules
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from spes_proto.v1 import sync_pb2
from spes_sync.plan import Grant
from spes_sync.rounds import Buffer, Phase, State
from spes_sync.rounds import events as ev

PEERS = st.sampled_from([A, B, C, D])
NUM_EXPERTS = 5


class Rounds(RuleBasedStateMachine):
    """Peers come, push, fail and go; plans change; time passes; disks fill."""

    buffer: Buffer | None = None

    def __init__(self) -> None:
        super().__init__()
        given = rules(max_tokens=10**9, quorum=0.66, buffer=self.buffer)
        self.machine = Machine(State(rules=given))
        self.machine.do(ev.Seeded())
        self.grants: dict[int, Grant] = {}
        self.left_while_open: set = set()

    @property
    def state(self) -> State:
        return self.machine.state

    def do(self, event: ev.Event, *, after: float = 0.0) -> None:
        before = self.state
        self.machine.do(event, after=after)
        self._check_step(before, event)

    @rule(owners=st.dictionaries(st.integers(0, NUM_EXPERTS - 1), PEERS, min_size=1))
    def plan_changes(self, owners):
        epoch = self.state.newest.epoch + 1
        kept = {e: g.epoch for e, g in self.grants.items() if owners.get(e) == g.peer}
        changed = plan(epoch, owners, granted=kept)
        self.grants = dict(changed.owners)
        self.do(ev.PlanApplied(plan=changed, rules=self.state.rules))

    @rule(peer=PEERS)
    def joins(self, peer):
        self.do(ev.Joined(peer=peer))

    @rule(peer=PEERS, lag=st.integers(0, 2))
    def heard(self, peer, lag):
        self.do(ev.Heard(peer=peer, version=self.state.version - lag))

    @rule(peer=PEERS)
    def catches_up(self, peer):
        self.do(ev.CaughtUp(peer=peer, version=self.state.version))

    @rule(peer=PEERS)
    def disconnects(self, peer):
        self.do(ev.Disconnected(peer=peer))

    @rule(peer=PEERS)
    def leaves(self, peer):
        self.do(ev.Left(peer=peer, reason="x"))

    @rule(peer=PEERS, data=st.data())
    def pushes(self, peer, data):
        opened = self.state.round
        part = data.draw(st.sampled_from([sync_pb2.ALL, sync_pb2.EXPERTS, sync_pb2.SHARED]))
        if not self.state.accepts_pushes or peer not in opened.expected:
            return
        if opened.has(peer, part) or (part == sync_pb2.ALL and opened.has_pushed(peer)):
            return
        epoch = data.draw(st.integers(1, opened.plan.epoch))
        experts = data.draw(st.sets(st.integers(0, NUM_EXPERTS - 1)))
        counted = [e for e in experts if opened.plan.counts(e, peer=peer, epoch=epoch)]
        self.do(ev.Verified(peer=peer, push=push(epoch, experts=sorted(counted), part=part)))

    @rule(peer=PEERS, again=st.booleans())
    def is_refused(self, peer, again):
        self.do(ev.Refused(peer=peer, reason="x", again=again))

    @rule(seconds=st.sampled_from([1.0, 15.0, 40.0, 60.0]))
    def time_passes(self, seconds):
        self.do(ev.Tick(), after=seconds)

    @precondition(lambda self: self.state.phase is Phase.CLOSING)
    @rule()
    def commit_is_durable(self):
        self.do(ev.Committed(global_tokens=self.state.global_tokens + 10))

    @precondition(lambda self: self.state.phase is Phase.CLOSING)
    @rule()
    def commit_finds_the_disk_full(self):
        self.do(ev.CommitFailed(problem="no space"))

    # What must hold.

    @invariant()
    def a_round_is_there_when_its_phase_says_so(self):
        has_round = self.state.phase in (Phase.OPEN, Phase.HELD, Phase.CLOSING)
        assert has_round == (self.state.round is not None)

    @invariant()
    def closing_has_a_verified_push(self):
        if self.state.phase is Phase.CLOSING:
            assert self.state.round.pushes

    @invariant()
    def an_expert_is_counted_from_one_peer_at_most(self):
        if self.state.round is None:
            return
        counted = [
            e
            for peer, pushes in self.state.round.pushes.items()
            for e in {e for each in pushes for e in self.state.round.counted(peer, each)}
        ]
        assert len(counted) == len(set(counted))
        owners = self.state.round.plan.owners
        assert all(e in owners for e in counted)

    @invariant()
    def only_placed_peers_are_expected(self):
        if self.state.round is not None and self.state.accepts_pushes:
            assert self.state.round.expected <= set(self.state.newest.peers)
            assert not self.state.round.expected & self.state.round.silenced

    @invariant()
    def needed_is_the_quorum_of_those_expected_now(self):
        if self.state.round is not None and self.buffer is None:
            quorum = Fraction("0.66") * len(self.state.round.expected)
            assert self.state.needed() == max(1, math.ceil(quorum))

    @invariant()
    def an_open_round_waits_for_somebody(self):
        if self.state.phase is Phase.OPEN:
            assert self.state.round.awaited

    def _check_step(self, before: State, event: ev.Event) -> None:
        after = self.state
        assert after.version >= before.version
        assert after.active.epoch >= before.active.epoch
        same_round = (
            before.round is not None
            and after.round is not None
            and before.round.number == after.round.number
            and before.round.plan == after.round.plan
            and not any(isinstance(e, ev.Opened) for e in self.machine.effects)
        )
        if not same_round:
            return
        assert before.round.pushes.keys() <= after.round.pushes.keys()
        came_back = after.round.expected - before.round.expected
        assert came_back <= before.round.silenced
        gone = before.round.expected - after.round.expected
        removed = set(before.newest.peers) - set(after.newest.peers)
        assert not {p for p in gone if before.round.has_pushed(p)} - removed
        if isinstance(event, ev.Tick):
            assert not {p for p in gone if before.round.has_pushed(p)}


class BufferedRounds(Rounds):
    """The same, where two pushes make a version and one may be missed."""

    buffer = Buffer(size=2, max_staleness=1)

    @invariant()
    def a_full_buffer_waits_for_those_at_the_bound_alone(self):
        if self.state.phase is not Phase.OPEN:
            return
        opened = self.state.round
        if len(opened.sharers) >= min(2, len(opened.expected)):
            assert any(self.state.peers[peer].missed >= 1 for peer in opened.awaited)

    def _check_step(self, before: State, event: ev.Event) -> None:
        super()._check_step(before, event)
        if (before.phase, self.state.phase) != (Phase.OPEN, Phase.CLOSING):
            return
        closed, peers = self.state.round, self.state.peers
        in_time = self.machine.now < closed.deadline
        if in_time and closed.awaited:
            assert len(closed.sharers) >= min(2, len(closed.expected))
            assert all(peers[peer].missed < 1 for peer in closed.awaited)


RANDOM = settings(
    max_examples=35,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much],
)
TestRounds, TestBufferedRounds = Rounds.TestCase, BufferedRounds.TestCase
TestRounds.settings = TestBufferedRounds.settings = RANDOM
