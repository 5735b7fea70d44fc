"""`run_peer`: one peer process, from its one-time token to its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from spes_api.job import SpesJobSpec
from spes_proto.v1 import sync_pb2

from spes_sync.bases import NO_VERSION
from spes_sync.client.actions import INTERRUPTED, Exit
from spes_sync.client.connection import Connection
from spes_sync.client.directory import held
from spes_sync.client.driver import Driver, Terms
from spes_sync.client.joining import join
from spes_sync.client.learner import JobTerms, Learner, SavePoint
from spes_sync.client.machine import Cadence, PeerMachine
from spes_sync.client.options import PeerOptions
from spes_sync.client.pace import Pace
from spes_sync.client.session import Session
from spes_sync.errors import ProtocolError

# A peer sends at least four heartbeats before it counts as silent, and one in ten seconds.
_HEARTBEATS_PER_SILENCE = 4
_MAX_HEARTBEAT_SECONDS = 10.0
# Where rounds wait for all, shared progress is carried over one that did not.
MAX_MISSED_ROUNDS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOutcome:
    """How a peer's process ended."""

    reason: str  # of the server's Stop, for example COMPLETE; or INTERRUPTED
    detail: str = ""
    version: int = NO_VERSION  # that it held
    steps: int = 0  # since the job began
    tokens: int = 0

    @property
    def interrupted(self) -> bool:
        """Told to stop by its own machine: a replacement goes on from its checkpoint."""
        return self.reason == INTERRUPTED


def run_peer(
    build: Callable[[JobTerms], Learner], options: PeerOptions, stop: threading.Event
) -> PeerOutcome:
    """Take part in a job until its server says Stop, or `stop` is set (then hand over and leave).

    Args:
        build: Makes the learner once the job's settings are known.
        options: Where the server, the secrets and this peer's directory are.
        stop: Set on SIGTERM. A learner may look at it to end a step early.

    Raises:
        VolumeError: the directory is in use, or belongs to another job.
        TokenError, CertificateError: the server does not accept this peer, or is not ours.
        DivergedError: training or the model went wrong.
        ProtocolError: the two sides do not fit; a person must act.
    """
    with held(options.directory), closing(Connection(options.address, options.ca_file)) as line:
        reply = join(line, options, stop)
        if reply is None:
            return PeerOutcome(reason=INTERRUPTED)
        terms = JobTerms(
            job_uid=reply.job_uid,
            incarnation=reply.incarnation,
            peer=options.peer,
            settings_json=reply.settings_json,
        )
        learner = build(terms)
        _check_manifest(learner, reply)
        return _drive(learner, line, terms, options, stop)


def _check_manifest(learner: Learner, reply: sync_pb2.JoinReply) -> None:
    served = reply.manifest
    if served.tensors and served.sha256 != learner.manifest.sha256:
        raise ProtocolError(
            sync_pb2.WRONG_SHAPE,
            f"the model built here has {len(learner.manifest)} tensors that differ from the "
            f"server's {len(served.tensors)} (manifest {learner.manifest.sha256[:12]}, expected "
            f"{served.sha256[:12]}); run the same version of spes on both sides",
        )


def _drive(
    learner: Learner,
    connection: Connection,
    job: JobTerms,
    options: PeerOptions,
    stop: threading.Event,
) -> PeerOutcome:
    settings = SpesJobSpec.model_validate_json(job.settings_json)
    saved = learner.restore()
    machine = _machine(settings, job, saved)
    pace = Pace(
        settings.sync.every_seconds,
        steps=saved.steps if saved else 0,
        tokens=saved.tokens if saved else 0,
    )
    silence = settings.reassignment.unreachable_after_seconds
    session = Session(
        connection,
        timedelta(seconds=min(_MAX_HEARTBEAT_SECONDS, silence / _HEARTBEATS_PER_SILENCE)),
        pace.heartbeat(machine.version, machine.work),
        options.while_live,
    )
    terms = Terms(
        job=job,
        directory=options.directory,
        evaluation_tokens=settings.training.evaluation.tokens,
        grace_seconds=settings.trainer.grace_period_seconds,
        pace=pace,
        anchors=settings.training.optimizer.proximal > 0,
    )
    driver = Driver(learner, machine, session, connection, terms)
    session.start()
    try:
        end = driver.run(stop)
    finally:
        session.close()
    return _outcome(end, machine, pace)


def _machine(settings: SpesJobSpec, job: JobTerms, saved: SavePoint | None) -> PeerMachine:
    buffer = settings.sync.buffered
    cadence = Cadence(
        every_steps=settings.sync.every_steps,
        every_seconds=settings.sync.every_seconds,
        batch_tokens=settings.training.batch_tokens,
        sequence_tokens=settings.data.sequence_tokens,
        save_every_rounds=settings.checkpoint.every_rounds,
        max_missed=buffer.max_staleness if buffer else MAX_MISSED_ROUNDS,
    )
    if saved is None:
        return PeerMachine(job.peer, cadence, owned={})
    if saved.incarnation != job.incarnation:
        # The server began anew from an empty volume: this version is none of its own, and
        # what was granted then is not granted now.
        void = dict.fromkeys(saved.owned, NO_VERSION)
        return PeerMachine(job.peer, cadence, owned=void)
    return PeerMachine(job.peer, cadence, version=saved.version, owned=saved.owned)


def _outcome(end: Exit, machine: PeerMachine, pace: Pace) -> PeerOutcome:
    refusal = dict(sync_pb2.Reason.items()).get(end.reason)
    if refusal is not None:
        raise ProtocolError(cast("sync_pb2.Reason", refusal), end.detail)
    return PeerOutcome(
        reason=end.reason,
        detail=end.detail,
        version=machine.version,
        steps=pace.steps,
        tokens=pace.tokens,
    )
