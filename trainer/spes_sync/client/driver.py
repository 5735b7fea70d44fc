"""Drives one peer process: asks the machine what is next, does it, reports what came of it.

Everything that can block or fail is here or below; every decision is the machine's. A call that the
server cannot answer now is asked for again after a wait, and the wait ends early when the server
says something. So training goes on through an outage until the round's steps are done, and then the
push is offered until somebody takes it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from spes_proto.v1 import sync_pb2

from spes_sync.bases import NO_VERSION
from spes_sync.client import actions as act
from spes_sync.client.backoff import Backoff
from spes_sync.client.connection import Connection, Unwanted
from spes_sync.client.exchange import Exchange
from spes_sync.client.holdings import Holdings
from spes_sync.client.learner import JobTerms, Learner, OwnershipChange, SavePoint
from spes_sync.client.leaving import Handover, Leaving
from spes_sync.client.machine import PeerMachine
from spes_sync.client.pace import Pace
from spes_sync.client.session import Connected, Incoming, Lost, Session
from spes_sync.errors import DivergedError, ServerUnavailableError

logger = logging.getLogger(__name__)

# How often a waiting peer looks whether it was told to stop.
_LOOK = timedelta(seconds=0.1)
_IDLE = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a driver needs to know of the job."""

    job: JobTerms
    directory: Path
    evaluation_tokens: int
    grace_seconds: float
    pace: Pace
    anchors: bool = False
    """Whether the learner is told the base of its progress."""


class Driver:
    """One peer process between Join and its end."""

    def __init__(
        self,
        learner: Learner,
        machine: PeerMachine,
        session: Session,
        connection: Connection,
        terms: Terms,
    ) -> None:
        """The learner's weights are those of the machine's version."""
        self._learner = learner
        self._machine = machine
        self._session = session
        self._terms = terms
        self._holdings = Holdings(learner, version=machine.version, owned=machine.ownership.owned)
        self._exchange = Exchange(machine, self._holdings, connection, terms.job, terms.directory)
        self._exchange.uploads.samples = learner.data.num_sequences
        self._pace = terms.pace
        self._anchor()
        self._beat()

    def run(self, stop: threading.Event) -> act.Exit:
        """Take part in the job until the server says Stop or `stop` is set.

        Raises:
            DivergedError: a loss or a weight is not finite, or the model is not the server's.
            SyncError: the server will not have this process any more.
        """
        try:
            return self._run(stop)
        except DivergedError as error:
            self._session.leave(str(error))
            raise
        finally:
            self._exchange.close()

    def _run(self, stop: threading.Event) -> act.Exit:
        backoff = Backoff()
        while True:
            self._listen(stop)
            action = self._machine.next(time.monotonic())
            if isinstance(action, act.Exit):
                return action
            try:
                self._do(action, stop)
            except ServerUnavailableError as error:
                wait = backoff.next(error.retry_after)
                logger.warning("%s; again in %.1f s", error, wait.total_seconds())
                self._idle(wait, stop)
            else:
                backoff.reset()

    def _do(self, action: act.Action, stop: threading.Event) -> None:
        match action:
            case act.Wait():
                self._idle(_IDLE, stop)
            case act.Step():
                self._step(action)
            case act.Push():
                self._pace.check_round(self._machine.work)
                interval = self._pace.round_seconds(self._machine.work)
                self._exchange.push(action, self._session.stopped, interval=interval)
            case act.Rebase():
                self._exchange.rebase(action, self._told_to_end(stop))
                self._anchor()
            case act.Adopt():
                self._adopt(action, stop)
            case act.Leave():
                self._leave(action)
            case _:
                self._do_rarely(action)
        self._beat()

    def _beat(self) -> None:
        """Let heartbeats say how things stand now."""
        version = self._exchange.version_to_say
        self._session.beat(self._pace.heartbeat(version, self._machine.work))

    def _do_rarely(self, action: act.Action) -> None:
        match action:
            case act.Seed():
                self._exchange.seed(self._session.stopped)
            case act.CatchUp():
                data = self._learner.data
                self._session.caught_up(
                    sync_pb2.CaughtUp(
                        version=action.version,
                        data_fingerprint=data.fingerprint,
                        num_sequences=data.num_sequences,
                    )
                )
                self._machine.announced()
            case act.Evaluate():
                self._evaluate(action)
            case act.Discard():
                self._discard(action)
            case act.Save():
                self._save()

    # Listening.

    def _listen(self, stop: threading.Event) -> None:
        if stop.is_set():
            self._machine.interrupted(self._terms.grace_seconds)
        for event in self._session.events_so_far():
            self._hear(event)

    def _told_to_end(self, stop: threading.Event) -> Unwanted:
        return lambda: stop.is_set() or self._session.stopped()

    def _idle(self, wait: timedelta, stop: threading.Event) -> None:
        """Wait, but no longer than until the server says something or `stop` is set."""
        until = time.monotonic() + wait.total_seconds()
        was_told = stop.is_set()
        while time.monotonic() < until and stop.is_set() == was_told:
            event = self._session.next_event(_LOOK)
            if event is not None:
                self._hear(event)
                return

    def _hear(self, event: Incoming) -> None:
        if isinstance(event, Lost):
            raise event.error
        if isinstance(event, Connected):
            self._machine.connected(event.version)
        else:
            self._machine.observe(event)

    # Training.

    def _step(self, action: act.Step) -> None:
        started = time.monotonic()
        result = self._learner.step(action.position)
        if result is None:
            return
        if not math.isfinite(result.loss):
            raise DivergedError(
                f"loss is {result.loss} in round {action.position.round}, "
                f"step {self._machine.work.steps + 1}; lower the learning rate or the clip norm"
            )
        self._machine.stepped(result)
        self._pace.stepped(result, time.monotonic() - started)

    def _anchor(self) -> None:
        if self._terms.anchors and self._machine.version != NO_VERSION:
            with self._served():
                self._learner.anchor()

    @contextmanager
    def _served(self) -> Iterator[None]:
        """The served model in the live weights, which it is anyway without progress."""
        with self._holdings.served() if self._machine.work.steps else nullcontext():
            yield

    def _evaluate(self, action: act.Evaluate) -> None:
        tokens = self._terms.evaluation_tokens
        with self._served():
            loss = self._learner.evaluate(tokens)
        self._learner.judge(action.version, loss)
        self._session.evaluated(
            sync_pb2.Evaluation(version=action.version, loss=loss, tokens=tokens)
        )
        self._machine.evaluated(action.version)

    def _save(self) -> None:
        machine, pace = self._machine, self._pace
        self._learner.save(
            SavePoint(
                incarnation=self._terms.job.incarnation,
                version=machine.version,
                epoch=machine.ownership.plan.epoch,
                owned=dict(machine.ownership.owned),
                steps=pace.steps,
                tokens=pace.tokens,
                global_tokens=machine.served.global_tokens,
            )
        )
        machine.saved()

    # Ownership, and the end.

    def _adopt(self, action: act.Adopt, stop: threading.Event) -> None:
        machine = self._machine
        trained = machine.version > 0  # by somebody, before
        moments = (
            self._exchange.moments_of(action.gained, self._told_to_end(stop)) if trained else {}
        )
        for expert in action.lost:
            self._holdings.lose(expert)
        for expert in action.gained:
            self._holdings.gain(expert)
        self._exchange.forget_experts((*action.lost, *action.gained))
        self._learner.own(
            OwnershipChange(
                owned=tuple(sorted(action.owned)),
                gained=action.gained,
                lost=action.lost,
                moments=moments,
                untrained=not trained,
            )
        )
        machine.adopted(action.owned)
        self._anchor()
        logger.info(
            "ownership changed epoch=%d gained=%s lost=%s moments=%s",
            machine.ownership.plan.epoch,
            action.gained,
            action.lost,
            sorted(moments),
        )

    def _discard(self, action: act.Discard) -> None:
        work = self._machine.work
        logger.warning(
            "progress dropped steps=%d tokens=%d reason=%s", work.steps, work.tokens, action.reason
        )
        if action.moments_too:
            self._learner.discard()
        self._holdings.reset()
        self._exchange.forget_push()
        self._machine.discarded()

    def _leave(self, action: act.Leave) -> None:
        machine = self._machine
        handover = Handover(
            leave=action,
            work=machine.work,
            owned=tuple(sorted(machine.ownership.owned)),
            version=machine.version,
            epoch=machine.ownership.plan.epoch,
        )
        Leaving(self._learner, self._exchange).hand_over(handover)
        self._session.leave(action.reason)
        machine.left()
