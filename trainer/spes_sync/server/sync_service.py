"""The Sync service: peers. Each call unpacks, asks, answers; decisions are elsewhere."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import cast

from spes_proto.v1 import sync_pb2, sync_pb2_grpc

from spes_sync import metadata
from spes_sync.errors import DiskFullError, ProtocolError, SyncError
from spes_sync.rounds import events as ev
from spes_sync.server import messages
from spes_sync.server.admission import Admission, Caller
from spes_sync.server.engine import Engine
from spes_sync.server.outboxes import Outbox
from spes_sync.server.pulling import Pulls
from spes_sync.server.pushing import Pushes
from spes_sync.server.replies import PROGRESS_TIMEOUT, abort, next_of
from spes_sync.server.run import HeldOut

logger = logging.getLogger(__name__)

# A stream on which a peer has been silent for this many times unreachableAfterSeconds is ended.
_SILENCES = 3


class SyncService(sync_pb2_grpc.SyncServicer):
    """Join, Session, Push, Pull."""

    def __init__(self, engine: Engine, admission: Admission, pushes: Pushes, pulls: Pulls) -> None:
        """Serve this engine's run."""
        self._engine = engine
        self._admission = admission
        self._pushes = pushes
        self._pulls = pulls

    async def Join(  # noqa: N802  the wire's name
        self, request: sync_pb2.JoinRequest, context: sync_pb2_grpc._ServicerContext
    ) -> sync_pb2.JoinReply:
        """A new process of a peer comes in."""
        try:
            return await self._admission.join(request, _address(context.peer()))
        except SyncError as error:
            await abort(context, error)

    async def Session(  # noqa: N802  the wire's name
        self,
        request_iterator: sync_pb2_grpc._MaybeAsyncIterator[sync_pb2.PeerEvent],
        context: sync_pb2_grpc._ServicerContext,
    ) -> AsyncIterator[sync_pb2.ServerEvent]:
        """Events both ways, until either side ends the stream."""
        events = cast("AsyncIterator[sync_pb2.PeerEvent]", request_iterator)
        try:
            caller = await self._caller(context)
            outbox = await self._begin(caller, events)
        except SyncError as error:
            await abort(context, error)
        listener = asyncio.create_task(self._listen(caller, events, outbox))
        try:
            while (event := await outbox.get()) is not None:
                yield event
            if listener.done() and (failure := listener.exception()) is not None:
                if not isinstance(failure, SyncError):
                    raise failure
                await abort(context, failure)
        finally:
            listener.cancel()
            await asyncio.wait([listener])
            await self._end(outbox)

    async def Push(  # noqa: N802  the wire's name
        self,
        request_iterator: sync_pb2_grpc._MaybeAsyncIterator[sync_pb2.PushPart],
        context: sync_pb2_grpc._ServicerContext,
    ) -> sync_pb2.PushReply:
        """One payload; whatever is wrong with it is in the reply."""
        parts = cast("AsyncIterator[sync_pb2.PushPart]", request_iterator)
        try:
            caller = await self._caller(context)
            return await self._pushes.receive(caller, parts)
        except SyncError as error:
            await abort(context, error)

    async def Pull(  # noqa: N802  the wire's name
        self, request: sync_pb2.PullRequest, context: sync_pb2_grpc._ServicerContext
    ) -> AsyncIterator[sync_pb2.PullPart]:
        """One frame."""
        try:
            caller = await self._caller(context)
            async for part in self._pulls.answer(caller, request):
                yield part
        except SyncError as error:
            await abort(context, error)

    async def _caller(self, context: sync_pb2_grpc._ServicerContext) -> Caller:
        given = dict(context.invocation_metadata() or ())
        return await self._admission.caller(str(given.get(metadata.SESSION, "")))

    # Sessions.

    async def _begin(self, caller: Caller, events: AsyncIterator[sync_pb2.PeerEvent]) -> Outbox:
        """Greet a peer; its first event says which version it holds."""
        try:
            first = await next_of(events)
        except TimeoutError:
            first = None
        if first is None or not first.HasField("heartbeat"):
            raise ProtocolError(sync_pb2.PROTOCOL, "a session begins with a heartbeat")
        peer, version, engine = caller.peer, first.heartbeat.version, self._engine
        account = engine.accounts.of(peer)
        account.heartbeat = first.heartbeat
        again, account.session = account.session == caller.session, caller.session
        async with engine.lock:
            run = engine.run
            assert run is not None  # the caller has a session
            session = run.tokens.session(caller.key)
            heard: ev.Event = ev.Heard(peer=peer, version=version)
            if session is not None and session.caught_up:
                heard = ev.CaughtUp(peer=peer, version=version)
            await engine.apply(heard)
            after = await engine.threads.run(self._committed_after, version)
            greeting = messages.greeting(run, peer, after, engine.clocks.now())
            outbox = engine.outboxes.open(peer, greeting)
        engine.journal.write("reconnected" if again else "connected", peer=peer, version=version)
        return outbox

    def _committed_after(self, version: int) -> sync_pb2.Committed | None:
        """What became of a push against `version`, if that is decided."""
        run, versions = self._engine.run, self._engine.volume.versions
        assert run is not None
        if not 0 <= version < run.state.version:
            return None
        record = versions.record(version + 1)
        if record is None or record.incarnation != run.job.incarnation:
            return None
        return messages.committed(record, versions.tensor_hashes(version + 1))

    async def _listen(
        self, caller: Caller, events: AsyncIterator[sync_pb2.PeerEvent], outbox: Outbox
    ) -> None:
        try:
            while (event := await next_of(events, self._patience())) is not None:
                await self._heard(caller, event)
        except TimeoutError:
            logger.info("session ended, peer is silent peer=%s", caller.peer)
        finally:
            outbox.close()

    def _patience(self) -> timedelta:
        run = self._engine.run
        assert run is not None
        silence = timedelta(seconds=_SILENCES * run.settings.rules.unreachable_after)
        return max(PROGRESS_TIMEOUT, silence)

    async def _heard(self, caller: Caller, event: sync_pb2.PeerEvent) -> None:
        engine, peer = self._engine, caller.peer
        try:
            match event.WhichOneof("event"):
                case "heartbeat":
                    if _is_sound(event.heartbeat):
                        engine.accounts.of(peer).heartbeat = event.heartbeat
                    await engine.post(ev.Heard(peer=peer, version=event.heartbeat.version))
                case "caught_up":
                    await self._admission.caught_up(caller, event.caught_up)
                case "evaluation":
                    await self._evaluated(caller, event.evaluation)
                case "leaving":
                    engine.journal.write("leaving", peer=peer, reason=event.leaving.reason)
                    await engine.post(ev.Left(peer=peer, reason=event.leaving.reason))
        except DiskFullError as error:
            logger.warning("%s", error)

    async def _evaluated(self, caller: Caller, said: sync_pb2.Evaluation) -> None:
        engine, peer = self._engine, caller.peer
        async with engine.lock:
            run = engine.run
            assert run is not None
            known = run.held_out.version if run.held_out else -1
            if known < said.version <= run.state.version and math.isfinite(said.loss):
                run.held_out = HeldOut(version=said.version, loss=said.loss)
                engine.journal.write(
                    "evaluated", version=said.version, loss=said.loss, tokens=said.tokens, peer=peer
                )
            await engine.apply(ev.Evaluated(peer=peer, version=said.version))
            await engine.notify()

    async def _end(self, outbox: Outbox) -> None:
        engine = self._engine
        if not engine.outboxes.closed(outbox):
            return
        engine.journal.write("disconnected", peer=outbox.peer)
        try:
            await engine.post(ev.Disconnected(peer=outbox.peer))
        except DiskFullError as error:
            logger.warning("%s", error)


def _address(peer: str) -> str:
    """The host of what gRPC calls a peer, such as "ipv4:192.0.2.7:50123"."""
    return peer.rpartition(":")[0]


def _is_sound(beat: sync_pb2.Heartbeat) -> bool:
    """Its numbers are some; else it is a sign of life and nothing more."""
    rate = beat.tokens_per_second
    return math.isfinite(rate) and rate >= 0 and math.isfinite(beat.loss)
