"""The Control service: the hub, over a port of its own and with a client certificate."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import grpc
from spes_proto.v1 import control_pb2, control_pb2_grpc, sync_pb2

from spes_sync.errors import ProtocolError, ServerUnavailableError, SyncError
from spes_sync.plan import peer_id
from spes_sync.rounds import events as ev
from spes_sync.server import messages
from spes_sync.server.admission import Admission
from spes_sync.server.engine import Engine
from spes_sync.server.replies import abort

# The only common name that may drive a server; also a certificate of the same CA is not enough.
HUB_NAME = b"spes-hub"
# Watchers hear of changes at most this often.
WATCH_PERIOD = timedelta(seconds=1)
# And at least this often of the state as it is, so that silence means a server that hangs.
WATCH_SILENCE = timedelta(seconds=5)


class ControlService(control_pb2_grpc.ControlServicer):
    """ApplyPlan, Watch, Drain."""

    def __init__(self, engine: Engine, admission: Admission) -> None:
        """Drive this engine's run."""
        self._engine = engine
        self._admission = admission

    async def ApplyPlan(  # noqa: N802  the wire's name
        self, request: control_pb2.SyncPlan, context: control_pb2_grpc._ServicerContext
    ) -> control_pb2.ApplyReply:
        """Take the hub's plan in."""
        await _only_hub(context)
        try:
            return await self._admission.apply_plan(request)
        except SyncError as error:
            await abort(context, error)

    async def Watch(  # noqa: N802  the wire's name
        self,
        request: control_pb2.WatchRequest,  # noqa: ARG002  empty
        context: control_pb2_grpc._ServicerContext,
    ) -> AsyncIterator[control_pb2.SyncState]:
        """The state now, whenever something has happened, and as it is after a while of nothing."""
        await _only_hub(context)
        engine = self._engine
        while True:
            seen = engine.changes
            yield messages.sync_state(engine.run, engine.accounts, engine.clocks.now())
            await asyncio.sleep(WATCH_PERIOD.total_seconds())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_SILENCE.total_seconds()):
                    await engine.changed_since(seen)

    async def Drain(  # noqa: N802  the wire's name
        self, request: control_pb2.DrainRequest, context: control_pb2_grpc._ServicerContext
    ) -> control_pb2.DrainReply:
        """Ask peers for their final push."""
        await _only_hub(context)
        try:
            await self._drain(request)
        except SyncError as error:
            await abort(context, error)
        return control_pb2.DrainReply()

    async def _drain(self, request: control_pb2.DrainRequest) -> None:
        if self._engine.run is None:
            raise ServerUnavailableError("the sync server has no job yet")
        if request.stop and request.peers:
            raise ProtocolError(sync_pb2.PROTOCOL, "stop ends the job for all: name no peers")
        peers = frozenset(map(peer_id, request.peers)) or None
        stop = (request.reason or "STOPPED") if request.stop else ""
        await self._engine.post(ev.DrainAsked(peers=peers, grace=request.grace_seconds, stop=stop))


async def _only_hub(context: control_pb2_grpc._ServicerContext) -> None:
    names = context.auth_context().get("x509_common_name", ())
    if HUB_NAME not in names:
        await context.abort(
            grpc.StatusCode.PERMISSION_DENIED,
            f"Control needs a client certificate for {HUB_NAME.decode()}",
        )
