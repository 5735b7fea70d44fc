"""Who may come in: the hub's plans, a peer's Join, and the session key on every later call."""

from __future__ import annotations

import base64
import hashlib
import logging
import secrets
from dataclasses import dataclass, replace

from spes_proto.v1 import control_pb2, sync_pb2

from spes_sync.errors import ProtocolError, ServerUnavailableError, StaleSessionError, TokenError
from spes_sync.metadata import PROTOCOL_VERSION
from spes_sync.plan import PeerId, Plan, peer_id
from spes_sync.rounds import Phase, State
from spes_sync.rounds import events as ev
from spes_sync.server.engine import Engine
from spes_sync.server.failed_joins import FailedJoins
from spes_sync.server.run import Run
from spes_sync.server.settings import Settings
from spes_sync.tokens import Fresh, Token, TokenBook, sha256
from spes_sync.volume import Job, Ledger

logger = logging.getLogger(__name__)

_ID_BYTES = 8
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A peer's process, as its session key proves it."""

    peer: PeerId
    key: str

    @property
    def session(self) -> str:
        """A name for the session that opens nothing."""
        return sha256(self.key)[:16]


class Admission:
    """Checks callers against the token book and keeps it durable."""

    def __init__(self, engine: Engine) -> None:
        """Act on the engine's run."""
        self._engine = engine
        self._failed = FailedJoins()

    # The hub.

    async def apply_plan(self, wanted: control_pb2.SyncPlan) -> control_pb2.ApplyReply:
        """Take the hub's plan in; twice is the same as once.

        Raises:
            ProtocolError: another job, an older incarnation or epoch, or a plan that cannot be.
            ServerUnavailableError: a commit is under way; ask again.
            DiskFullError: it could not be kept.
        """
        plan, settings = Plan.from_proto(wanted.plan), Settings.parse(wanted.settings_json)
        _check_kind(plan, settings)
        seed_peer = peer_id(wanted.seed_peer) if wanted.seed_peer else None
        engine = self._engine
        async with engine.lock:
            run = await self._run_for(wanted, settings)
            _check_epoch(run.state, plan)
            await self._keep(run, wanted, settings)
            before = run.state.newest.epoch
            await engine.apply(ev.PlanApplied(plan=plan, rules=settings.rules, seed_peer=seed_peer))
            state = run.state
        if plan.epoch > before:
            waits = plan.epoch > state.active.epoch
            engine.journal.write("plan", epoch=plan.epoch, state="pending" if waits else "active")
        pending = state.newest.epoch if state.newest.epoch > state.active.epoch else 0
        return control_pb2.ApplyReply(active_epoch=state.active.epoch, pending_epoch=pending)

    async def _run_for(self, wanted: control_pb2.SyncPlan, settings: Settings) -> Run:
        """The run that a plan is for: the one there is, or a new one."""
        engine, run = self._engine, self._engine.run
        if run is not None and wanted.job_uid != run.job.uid:
            raise ProtocolError(
                sync_pb2.WRONG_JOB,
                f"this volume belongs to job {run.job.uid} (got {wanted.job_uid[:64]!r}); "
                "give each job a volume of its own",
            )
        if run is not None and wanted.incarnation < run.job.incarnation:
            raise ProtocolError(
                sync_pb2.WRONG_JOB,
                f"incarnation {wanted.incarnation} is over (this is {run.job.incarnation})",
            )
        if run is None or wanted.incarnation > run.job.incarnation:
            if run is not None and run.state.phase is Phase.CLOSING:
                raise ServerUnavailableError("a version is being committed")
            run = engine.run = await self._begin(run, wanted, settings)
        return run

    async def _begin(
        self, former: Run | None, wanted: control_pb2.SyncPlan, settings: Settings
    ) -> Run:
        """A run without a model; of a former incarnation its peers' sessions stay."""
        engine = self._engine
        if not wanted.job_uid:
            raise ProtocolError(sync_pb2.WRONG_JOB, "job_uid is empty")
        job = Job(uid=wanted.job_uid, incarnation=wanted.incarnation)
        tokens, peers = TokenBook(), {}
        if former is not None:
            tokens = former.tokens.starting_anew()
            peers = {
                peer: replace(known, caught_up=False, version=-1)
                for peer, known in former.state.peers.items()
            }
        await engine.threads.run(engine.volume.save_settings, wanted.settings_json)
        await engine.threads.run(engine.volume.save_job, job)
        await engine.threads.run(engine.volume.save_tokens, tokens)
        await engine.threads.run(engine.volume.erase_model)
        return Run(
            settings=settings,
            settings_json=wanted.settings_json,
            job=job,
            tokens=tokens,
            ledger=Ledger(),
            saved_ledger=Ledger(),
            state=State(rules=settings.rules, peers=peers),
        )

    async def _keep(self, run: Run, wanted: control_pb2.SyncPlan, settings: Settings) -> None:
        engine, tokens = self._engine, run.tokens
        for added in wanted.add_tokens:
            token = Token(
                peer=peer_id(added.peer),
                sha256=added.sha256,
                expires_at=engine.clocks.unix() + added.expires_in_seconds,
            )
            tokens = tokens.add(added.id, token)
        if wanted.settings_json != run.settings_json:
            await engine.threads.run(engine.volume.save_settings, wanted.settings_json)
            run.settings, run.settings_json = settings, wanted.settings_json
        await self._save(run, tokens)

    # Peers.

    async def join(self, request: sync_pb2.JoinRequest, address: str) -> sync_pb2.JoinReply:
        """Let a new process of a peer in that calls from `address`.

        Raises:
            TokenError: the token does not open anything; nothing has changed.
            ProtocolError: another protocol or job.
            ServerUnavailableError: there is no job yet.
            DiskFullError: it could not be kept; the token is as good as before.
        """
        engine, peer = self._engine, peer_id(request.peer)
        fresh = Fresh(session_key=_secret(), next_token=_token())
        async with engine.lock:
            run = self._run()
            try:
                _check_join(run, request)
                tokens = run.tokens.redeem(
                    request.token, peer=peer, now=engine.clocks.unix(), fresh=fresh
                )
            except ProtocolError as error:
                raise self._refused(peer, address, error) from error
            await self._save(run, tokens)
            await engine.apply(ev.Joined(peer=peer))
            engine.outboxes.end(peer)
            engine.journal.write("joined", peer=peer)
            return _welcome(run, peer, fresh)

    def _refused(self, peer: PeerId, address: str, error: ProtocolError) -> ProtocolError:
        """What a Join that failed is told; beyond a budget it leaves no trace but a count."""
        engine, reason = self._engine, error.reason_name
        engine.accounts.refusals[reason] = engine.accounts.refusals.get(reason, 0) + 1
        wait = self._failed.count((f"peer {peer}", f"address {address}"), engine.clocks.now())
        if wait is None:
            engine.journal.write("joinRefused", peer=peer, reason=reason)
            return error
        said = f"too many Joins of {peer} or from its address failed; the last: {error}"
        return TokenError(error.reason, said, retry_after=wait)

    async def caller(self, key: str) -> Caller:
        """Whose session key this is; its first use ends the life of the token behind it.

        Raises:
            StaleSessionError: nobody's (any more).
            ServerUnavailableError: there is no job yet.
        """
        async with self._engine.lock:
            run = self._run()
            session = run.tokens.session(key) if key else None
            if session is None:
                raise StaleSessionError("this session is over: join again")
            if session.unused:
                await self._save(run, run.tokens.touched(key))
            return Caller(peer=session.peer, key=key)

    async def caught_up(self, caller: Caller, said: sync_pb2.CaughtUp) -> None:
        """Remember that a process holds a version, and check that it reads the job's data.

        Raises:
            ProtocolError: DATA_DIFFERS.
            DiskFullError: it could not be kept.
        """
        async with self._engine.lock:
            run = self._run()
            run.ledger = _with_data(run, said)
            session = run.tokens.session(caller.key)
            if run.state.version >= 0 and session:
                await self._save(run, run.tokens.caught_up(caller.key))
            await self._engine.apply(ev.CaughtUp(peer=caller.peer, version=said.version))
        if session and not session.caught_up:
            self._engine.journal.write("caughtUp", peer=caller.peer, version=said.version)

    def _run(self) -> Run:
        if self._engine.run is None:
            raise ServerUnavailableError("the sync server has no job yet")
        return self._engine.run

    async def _save(self, run: Run, tokens: TokenBook) -> None:
        if tokens != run.tokens:
            await self._engine.threads.run(self._engine.volume.save_tokens, tokens)
            run.tokens = tokens


def _check_kind(plan: Plan, settings: Settings) -> None:
    algorithm = settings.spec.algorithm
    if plan.peers and plan.replicated != algorithm.replicated:
        raise ProtocolError(
            sync_pb2.PROTOCOL,
            f"plan.replicated must be {algorithm.replicated} with the algorithm {algorithm.name} "
            f"(got {plan.replicated})",
        )


def _check_epoch(state: State, plan: Plan) -> None:
    newest = state.newest
    if plan.epoch < newest.epoch or (plan.epoch == newest.epoch and plan != newest):
        if newest == Plan():
            return
        raise ProtocolError(
            sync_pb2.OLD_EPOCH,
            f"plan of epoch {plan.epoch} (the newest is {newest.epoch}; another plan needs a "
            "higher one)",
        )


def _check_join(run: Run, request: sync_pb2.JoinRequest) -> None:
    if request.protocol != PROTOCOL_VERSION:
        raise ProtocolError(
            sync_pb2.PROTOCOL,
            f"protocol {request.protocol} (this server speaks {PROTOCOL_VERSION}); "
            "use the same release on both sides",
        )
    if request.job_uid and request.job_uid != run.job.uid:
        raise TokenError(sync_pb2.WRONG_JOB, f"this server runs job {run.job.uid}")


def _with_data(run: Run, said: sync_pb2.CaughtUp) -> Ledger:
    """The first peer's data is the job's; with split: Disjoint all others must have the same."""
    mine, theirs = run.ledger, said.data_fingerprint
    if not run.settings.one_data or not theirs:
        return mine
    if not mine.fingerprint:
        return replace(mine, fingerprint=theirs, num_sequences=said.num_sequences)
    if (mine.fingerprint, mine.num_sequences) != (theirs, said.num_sequences):
        raise ProtocolError(
            sync_pb2.DATA_DIFFERS,
            f"data of {said.num_sequences} sequences, fingerprint {theirs[:16]} (the job's: "
            f"{mine.num_sequences}, {mine.fingerprint[:16]}); mount the same dataset, or use "
            "split: Local",
        )
    return mine


def _welcome(run: Run, peer: PeerId, fresh: Fresh) -> sync_pb2.JoinReply:
    return sync_pb2.JoinReply(
        session_key=fresh.session_key,
        next_token=fresh.next_token,
        settings_json=run.settings_json,
        settings_sha256=hashlib.sha256(run.settings_json.encode()).hexdigest(),
        version=run.state.version,
        plan=run.state.plan_for(peer).to_proto(),
        manifest=run.manifest.to_proto() if run.manifest else None,
        incarnation=run.job.incarnation,
        job_uid=run.job.uid,
    )


def _secret() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).decode().rstrip("=")


def _token() -> str:
    return f"{secrets.token_hex(_ID_BYTES)}.{_secret()}"
