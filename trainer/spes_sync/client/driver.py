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
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from spes_proto.v1 import sync_pb2

from spes_sync.bases import NO_VERSION, Fate
from spes_sync.client import actions as act
from spes_sync.client.backoff import Backoff
from spes_sync.client.connection import Connection
from spes_sync.client.holdings import Holdings
from spes_sync.client.learner import JobTerms, Learner, OwnershipChange, SavePoint
from spes_sync.client.leaving import Handover, Leaving
from spes_sync.client.machine import PeerMachine
from spes_sync.client.pace import Pace
from spes_sync.client.session import Connected, Incoming, Lost, Session
from spes_sync.client.transfer import Download, Frame, Payload
from spes_sync.client.uploads import Shipment, Uploads
from spes_sync.codec import Array
from spes_sync.errors import DivergedError, PushRefusedError, ServerUnavailableError
from spes_sync.manifest import Manifest

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
        self._connection = connection
        self._terms = terms
        self._holdings = Holdings(learner, version=machine.version, owned=machine.owned)
        self._uploads = Uploads(connection, terms.job, terms.directory)
        self._pace = terms.pace
        self._download: Download | None = None
        self._spooled: tuple[act.Push, Payload] | None = None
        self._diverged = False

    def run(self, stop: threading.Event) -> act.Exit:
        """Take part in the job until the server says Stop or `stop` is set.

        Raises:
            DivergedError: a loss or a weight is not finite, or the model is not the server's.
            SyncError: the server will not have this process any more.
        """
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
            except DivergedError as error:
                self._session.leave(str(error))
                raise
            else:
                backoff.reset()

    def _do(self, action: act.Action, stop: threading.Event) -> None:
        match action:
            case act.Wait():
                self._idle(_IDLE, stop)
            case act.Step():
                self._step(action)
            case act.Push():
                self._push(action)
            case act.Rebase():
                self._rebase(action, stop)
            case act.Adopt():
                self._adopt(action, stop)
            case act.Leave():
                self._leave(action)
            case _:
                self._do_rarely(action)
        self._session.beat(self._pace.heartbeat(self._machine.version, self._machine.work))

    def _do_rarely(self, action: act.Action) -> None:
        match action:
            case act.Seed():
                self._seed()
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
            self._machine.reconnected()
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

    def _evaluate(self, action: act.Evaluate) -> None:
        tokens = self._terms.evaluation_tokens
        if self._machine.work.steps:
            with self._holdings.served():
                loss = self._learner.evaluate(tokens)
        else:
            loss = self._learner.evaluate(tokens)
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
                epoch=machine.plan.epoch,
                owned=dict(machine.owned),
                steps=pace.steps,
                tokens=pace.tokens,
                global_tokens=machine.global_tokens,
            )
        )
        machine.saved()

    # Moving tensors.

    def _seed(self) -> None:
        manifest = self._learner.manifest
        payload = self._uploads.spool(manifest.tensors, self._holdings.everything())
        push = act.Push(round=0, base_version=NO_VERSION, epoch=self._machine.plan.epoch)
        reply = self._uploads.send(
            Shipment(push=push, kind=sync_pb2.SEED, part=sync_pb2.ALL), payload
        )
        if reply.verdict == sync_pb2.REFUSED and reply.reason != sync_pb2.NOT_EXPECTED:
            raise PushRefusedError(reply.reason, f"the initial weights are refused: {reply.detail}")
        self._machine.seeded()

    def _push(self, action: act.Push) -> None:
        machine = self._machine
        self._pace.check_round(machine.work)
        if self._spooled is None or self._spooled[0] != action:
            tensors = self._learner.manifest.trained_by(machine.owned)
            self._spooled = action, self._uploads.spool(tensors, self._holdings.progress(tensors))
        payload = self._spooled[1]
        shipment = Shipment(push=action, kind=sync_pb2.DELTA, part=sync_pb2.ALL, work=machine.work)
        machine.offering(action, payload.sha256)
        reply = self._uploads.send(shipment, payload)
        verdict = sync_pb2.Verdict.Name(reply.verdict)
        logger.info(
            "pushed round=%d verdict=%s bytes=%d steps=%d",
            action.round,
            verdict,
            payload.num_bytes,
            machine.work.steps,
        )
        machine.pushed(action, reply)

    def _rebase(self, action: act.Rebase, stop: threading.Event) -> None:
        machine, hashes = self._machine, self._machine.hashes(action.latest)
        if action.have == NO_VERSION and hashes and self._holdings.match(hashes):
            self._holdings.start(action.latest)
            machine.rebased(action.latest, Fate(included=False))
            return
        have = NO_VERSION if self._diverged else action.have
        request = sync_pb2.PullRequest(have_version=have, want_version=action.latest)
        frame = self._pull(request, self._learner.manifest, stop)
        fate = machine.fate(frame.version, absolute=frame.absolute)
        if self._diverged:
            fate = Fate(included=False, absolute=True, sha256=fate.sha256)
        try:
            self._holdings.rebase(frame, fate)
        except DivergedError as error:
            if self._diverged:
                raise
            logger.warning("%s; progress is dropped, the model pulled anew", error)
            self._diverged = True
            return
        self._diverged = False
        self._spooled = None
        machine.rebased(frame.version, fate)
        logger.info("re-based version=%d carried=%d", frame.version, len(fate.carried))

    def _pull(
        self, request: sync_pb2.PullRequest, manifest: Manifest, stop: threading.Event
    ) -> Frame:
        """Receive a frame; a pull that broke before goes on where it broke."""
        download = self._download
        if download is None or not download.answers(request):
            if download is not None:
                download.close()
            path = self._terms.directory / "pull.spool"
            download = self._download = Download(request, path, manifest)
        frame = download.attempt(self._connection, unwanted=stop.is_set)
        self._download = None
        return frame

    # Ownership.

    def _adopt(self, action: act.Adopt, stop: threading.Event) -> None:
        machine = self._machine
        moments = self._moments_of(action.gained, stop) if machine.version > 0 else {}
        for expert in action.lost:
            self._holdings.lose(expert)
        for expert in action.gained:
            self._holdings.gain(expert)
        self._learner.own(
            OwnershipChange(
                owned=tuple(sorted(action.owned)),
                gained=action.gained,
                lost=action.lost,
                moments=moments,
                untrained=machine.version == 0,
            )
        )
        machine.adopted(action.owned)
        logger.info(
            "ownership changed epoch=%d gained=%s lost=%s moments=%s",
            machine.plan.epoch,
            action.gained,
            action.lost,
            sorted(moments),
        )

    def _moments_of(
        self, experts: tuple[int, ...], stop: threading.Event
    ) -> dict[int, dict[str, Array]]:
        """The moments that the last owners handed over, as far as the server has them."""
        if not experts:
            return {}
        manifest = self._learner.manifest
        expected = Manifest(tuple(t for e in experts for t in manifest.moments_of(e)))
        version = self._machine.version
        request = sync_pb2.PullRequest(have_version=version, want_version=version)
        request.moments_of.extend(experts)
        moments: dict[int, dict[str, Array]] = {}
        for tensor, value in self._pull(request, expected, stop).read():
            moments.setdefault(tensor.expert, {})[tensor.name] = value
        return moments

    def _discard(self, action: act.Discard) -> None:
        work = self._machine.work
        logger.warning(
            "progress dropped steps=%d tokens=%d reason=%s", work.steps, work.tokens, action.reason
        )
        if action.moments_too:
            self._learner.discard()
        self._holdings.reset()
        self._spooled = None
        self._machine.discarded()

    def _leave(self, action: act.Leave) -> None:
        machine = self._machine
        handover = Handover(
            leave=action,
            work=machine.work,
            owned=tuple(sorted(machine.owned)),
            version=machine.version,
            epoch=machine.plan.epoch,
        )
        Leaving(self._learner, self._holdings, self._uploads).hand_over(handover)
        self._session.leave(action.reason)
        machine.left()
