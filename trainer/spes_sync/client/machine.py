"""The peer's state machine: what the server and the learner did goes in, one action comes out.

Pure: no I/O, no clock (`now` comes in), no threads. The driver asks for the next action at every
step boundary and reports what came of it. Asking twice gives the same answer, so a failed action is
retried by asking again.

In order of importance: stop, leave, seed, re-base on a new version, drop what was refused, say that
it has caught up, save; then, in an open round on the version it holds: take over experts, evaluate,
push when the round's steps or seconds are over, else step. Between its push and the commit the peer
idles: what it would train meanwhile depends on who is slow, and a run would not repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from spes_proto.v1 import sync_pb2

from spes_sync.bases import NO_VERSION, Fate
from spes_sync.client.actions import (
    INTERRUPTED,
    Action,
    CatchUp,
    Discard,
    Evaluate,
    Exit,
    Leave,
    Push,
    Save,
    Seed,
    Step,
    Wait,
)
from spes_sync.client.learner import StepPosition, StepResult
from spes_sync.client.ownership import Ownership
from spes_sync.client.served import Served
from spes_sync.client.work import InFlight, Work, leased_sequences
from spes_sync.manifest import SHARED


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """When a peer synchronises and saves; from the job's settings."""

    every_steps: int | None
    every_seconds: float | None
    batch_tokens: int
    sequence_tokens: int
    save_every_rounds: int
    max_missed: int
    """Commits that shared progress is carried over; after that it is too old to be averaged in."""

    @property
    def sequences_per_step(self) -> int:
        """How many sequences one optimizer step takes."""
        return self.batch_tokens // self.sequence_tokens


class PeerMachine:
    """Where one peer process stands in the protocol."""

    def __init__(
        self, peer: str, cadence: Cadence, *, version: int = NO_VERSION, owned: Mapping[int, int]
    ) -> None:
        """Start with what a checkpoint holds: a version, and experts with their granted epochs."""
        self._peer = peer
        self._cadence = cadence
        self.version = version
        self.served = Served(peer)
        self.ownership = Ownership(peer, owned)
        self.work = Work()
        self.was_removed = False  # from the plan, since its last push: it owes nothing more
        self._round: sync_pb2.RoundOpen | None = None
        self._opened_epoch = 0  # of the round when this peer began it
        self._started: float | None = None
        self._closed_round = 0  # the last round that takes nothing more from this peer
        self._evaluated = NO_VERSION
        self._in_flight: InFlight | None = None
        self._seed_wanted = False
        self._caught_up = False
        self._save_due = False
        self._discard: Discard | None = None
        self._stop: sync_pb2.Stop | None = None
        self._stop_by: float | None = None  # whatever is still to be evaluated
        self._leave: tuple[float, str] | None = None
        self._left = False
        self._interrupted = False

    # What happened.

    def observe(self, event: sync_pb2.ServerEvent) -> None:
        """Take in what the server said."""
        kind = event.WhichOneof("event")
        if kind == "seed_wanted":
            self._seed_wanted = True
        elif kind == "plan":
            self._planned(event.plan)
        elif kind == "round_open":
            self._opened(event.round_open)
        elif kind == "committed":
            self._seed_wanted = False
            self.served.committed(event.committed)
        elif kind == "drain":
            self._leave = self._leave or (event.drain.grace_seconds, "drained")
        elif kind == "stop":
            self._stop = event.stop

    def _planned(self, plan: sync_pb2.Plan) -> None:
        self.ownership.plan = plan
        if not self.ownership.placed:
            self._round = None
            self.was_removed = True
            if self.work.steps and self._in_flight is None:
                self._discard = Discard(reason="no longer in the plan", moments_too=False)

    def _opened(self, open_round: sync_pb2.RoundOpen) -> None:
        if self._round is None or self._round.round != open_round.round:
            self._opened_epoch = open_round.epoch
            self._started = None
        self._round = open_round

    def connected(self, version: int) -> None:
        """A Session begins, in which the peer has said that it holds `version`.

        A push on its way is offered again, under the same key.
        """
        self.served.connected(version)
        if self._in_flight is not None:
            self._in_flight = replace(self._in_flight, answered_here=False)

    def interrupted(self, grace_seconds: float) -> None:
        """This process was told to end (SIGTERM)."""
        self._interrupted = True
        self._leave = self._leave or (grace_seconds, "interrupted")

    def seeded(self) -> None:
        """The seed is verified; its commit will be version 0, whatever this peer held before."""
        self._seed_wanted = False
        self.version = NO_VERSION

    def stepped(self, result: StepResult) -> None:
        """One more optimizer step is done."""
        self.work = self.work.plus(result, self._cadence.sequences_per_step)

    def evaluated(self, version: int) -> None:
        """The served model's held-out loss is measured."""
        self._evaluated = version

    def announced(self) -> None:
        """CaughtUp is on its way."""
        self._caught_up = True

    def saved(self) -> None:
        """The checkpoint is written."""
        self._save_due = False

    def adopted(self, owned: Mapping[int, int]) -> None:
        """The learner trains these experts now."""
        self.ownership.owned = dict(owned)

    def discarded(self) -> None:
        """The weights are the base again."""
        self._discard = None
        self.work = Work()

    def left(self) -> None:
        """What fitted the grace period is handed over."""
        self._left = True

    def offering(self, push: Push, sha256: str) -> None:
        """A push is about to be sent; from now on it may count, whether an answer comes or not."""
        if self._in_flight is None:
            self._in_flight = InFlight(push=push, sha256=sha256)

    def pushed(self, push: Push, reply: sync_pb2.PushReply) -> None:
        """The server answered the push on offer."""
        assert self._in_flight is not None, "offered before it is answered"
        if reply.verdict == sync_pb2.REBASE:
            self._closed_round = push.round
        elif reply.verdict == sync_pb2.REFUSED:
            self._closed_round = push.round
            self._in_flight = None
            reason = sync_pb2.Reason.Name(reply.reason)
            self._discard = Discard(reason=f"{reason}: {reply.detail}", moments_too=True)
        else:
            self._in_flight = self._in_flight.answered(reply)

    def fate(self, version: int, *, absolute: bool) -> Fate:
        """What becomes of the work when the weights move to `version`."""
        included = self._in_flight is not None and self._in_flight.included_in(
            self.served.after(self.version), self._peer
        )
        return Fate(
            included=included,
            carried=frozenset() if included else self._carried(version),
            absolute=absolute,
            sha256=self.served.hashes(version) or None,
        )

    def rebased(self, version: int, fate: Fate) -> None:
        """Weights and bases are of `version` now."""
        missed = version - self.version
        self.version = version
        self._in_flight = None
        self.served.reached(version)
        if fate.carried:
            shared = SHARED in fate.carried
            self.work = replace(self.work, missed=self.work.missed + missed if shared else 0)
        else:
            self.work = Work()
            self._save_due = version % self._cadence.save_every_rounds == 0

    # What is next.

    def next(self, now: float) -> Action:
        """The next action; `now` is any clock that never goes back, in seconds."""
        return (
            self._ending(now)
            or self._keeping_up()
            or (self._in_round(self._round, now) if self._round is not None else None)
            or Wait()
        )

    def _ending(self, now: float) -> Action | None:
        if self._stop is not None:
            ended = Exit(reason=self._stop.reason, detail=self._stop.detail)
            return self._last_evaluation(self._stop, now) or ended
        if self._leave is not None and not self._left:
            grace_seconds, reason = self._leave
            push, whole = self._last_push()
            return Leave(grace_seconds=grace_seconds, reason=reason, push=push, whole=whole)
        if self._left:
            return Exit(reason=INTERRUPTED) if self._interrupted else Wait()
        return None

    def _last_evaluation(self, stop: sync_pb2.Stop, now: float) -> Action | None:
        """What a peer still does that is asked for the final version's held-out loss."""
        if self._stop_by is None:
            self._stop_by = now + stop.evaluate_seconds
        if now >= self._stop_by or not stop.evaluate_seconds or self._leave is not None:
            return None
        if self._evaluated == self.served.latest:
            return Wait()
        return self.served.behind(self.version) or Evaluate(version=self.version)

    def _keeping_up(self) -> Action | None:
        if self._seed_wanted:
            return Seed()
        return (
            self.served.behind(self.version)
            or self._discard
            or (self.ownership.handing_back() if self._in_flight is None else None)
            or self._reporting()
        )

    def _reporting(self) -> Action | None:
        if self._save_due:
            return Save()
        if not self._caught_up and self.version != NO_VERSION:
            return CatchUp(version=self.version)
        return None

    def _in_round(self, open_round: sync_pb2.RoundOpen, now: float) -> Action | None:
        if open_round.base_version != self.version or open_round.round <= self._closed_round:
            return None
        if self._in_flight is not None:
            return None if self._in_flight.answered_here else self._in_flight.push
        # A round that is re-opened under another plan takes experts away, but gives none: what
        # this peer gains it trains from the next round on.
        if change := self.ownership.change(gives=open_round.epoch == self._opened_epoch):
            return change
        if open_round.evaluate and self._evaluated != self.version:
            return Evaluate(version=self.version)
        return self._step_or_push(open_round, now)

    def _step_or_push(self, open_round: sync_pb2.RoundOpen, now: float) -> Action | None:
        if self._started is None:
            self._started = now
        wanted = self._cadence.sequences_per_step
        sequences = leased_sequences(open_round.lease, used=self.work.sequences, wanted=wanted)
        if self.work.steps and (self._is_over(now) or len(sequences) < wanted):
            return self._push_for(open_round)
        if len(sequences) < wanted:
            return None
        ahead = self.work.steps * self._cadence.batch_tokens * open_round.num_expected
        return Step(
            position=StepPosition(
                round=open_round.round,
                sequences=sequences,
                global_tokens=open_round.global_tokens + ahead,
            )
        )

    def _is_over(self, now: float) -> bool:
        steps, seconds = self._cadence.every_steps, self._cadence.every_seconds
        if steps is not None and self.work.steps >= steps:
            return True
        return seconds is not None and self._started is not None and now - self._started >= seconds

    def _push_for(self, open_round: sync_pb2.RoundOpen) -> Push:
        return Push(
            round=open_round.round, base_version=open_round.base_version, epoch=open_round.epoch
        )

    def _last_push(self) -> tuple[Push | None, bool]:
        """What to push when leaving, and whether as a whole: it may have arrived as that."""
        open_round = self._round
        if (
            open_round is None
            or not self.work.steps
            or open_round.base_version != self.version
            or open_round.round <= self._closed_round
        ):
            return None, False
        if self._in_flight is None:
            return self._push_for(open_round), False
        return (None if self._in_flight.answered_here else self._in_flight.push), True

    def _carried(self, version: int) -> frozenset[int]:
        if not self.work.steps or not self.ownership.placed or version < self.version:
            return frozenset()
        carried = self.ownership.carried(self._in_flight.dropped_experts if self._in_flight else ())
        fresh = self.work.missed + version - self.version <= self._cadence.max_missed
        return carried | {SHARED} if fresh else carried
