"""SyncControl: how the hub drives a sync server, and its gRPC form with a client certificate.

The only module of the operator that knows the wire; everything behind it speaks `sync_state`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import grpc
from spes_proto.v1 import control_pb2, control_pb2_grpc, sync_pb2

from spes_operator.clock import Clock, SystemClock
from spes_operator.errors import RefusedError, UnavailableError
from spes_operator.hub.pki import Identity
from spes_operator.hub.sync_state import DrainOrder, PeerState, Phase, SyncPlan, SyncState
from spes_operator.names import ExpertId, PeerId

# A control call moves kilobytes; a server that takes longer is treated as away.
_DEADLINE_SECONDS = 10
# A server sends its state every few seconds; one that hangs keeps its connection and is silent.
_SILENCE_SECONDS = 20
# Below the minutes after which routers forget idle connections.
_KEEPALIVE_MS = 30_000
_RETRY_LATER = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class SyncControl(Protocol):
    """The control port of one sync server."""

    async def apply_plan(self, plan: SyncPlan) -> None:
        """Make the server follow `plan`; may be repeated.

        Raises:
            UnavailableError: It does not answer.
            RefusedError: It knows a newer epoch, belongs to another job, or cannot use the plan.
        """

    async def drain(self, order: DrainOrder) -> None:
        """Ask peers for their last push; may be repeated. Raises as `apply_plan`."""

    def watch(self) -> AsyncIterator[SyncState]:
        """The state now and after each change; ends only with an error, as of `apply_plan`."""

    async def close(self) -> None:
        """Give the connection back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One control port."""

    endpoint: str
    """host:port."""
    ca_pem: str
    """Of the CA that signed its certificate."""
    name: str = ""
    """Name in its certificate; empty: the endpoint's host."""


class GrpcSyncControl:
    """SyncControl over gRPC."""

    def __init__(self, target: Target, *, identity: Identity, clock: Clock | None = None) -> None:
        """Prepare a connection; nothing is sent yet."""
        credentials = grpc.ssl_channel_credentials(
            root_certificates=target.ca_pem.encode(),
            private_key=identity.key,
            certificate_chain=identity.certificate,
        )
        self._clock = clock or SystemClock()
        options: list[tuple[str, int | str]] = [("grpc.keepalive_time_ms", _KEEPALIVE_MS)]
        if target.name:
            options.append(("grpc.ssl_target_name_override", target.name))
        self._channel = grpc.aio.secure_channel(target.endpoint, credentials, options=options)
        self._stub = control_pb2_grpc.ControlStub(self._channel)

    async def apply_plan(self, plan: SyncPlan) -> None:
        """Send the plan."""
        try:
            await self._stub.ApplyPlan(
                to_wire(plan, now=self._clock.now()), timeout=_DEADLINE_SECONDS
            )
        except grpc.aio.AioRpcError as error:
            raise _translated(error) from error

    async def drain(self, order: DrainOrder) -> None:
        """Send the order."""
        request = control_pb2.DrainRequest(
            peers=order.peers,
            grace_seconds=order.grace.total_seconds(),
            stop=order.stop,
            reason=order.reason,
        )
        try:
            await self._stub.Drain(request, timeout=_DEADLINE_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise _translated(error) from error

    async def watch(self) -> AsyncIterator[SyncState]:
        """States as they come."""
        call = self._stub.Watch(control_pb2.WatchRequest())
        states = aiter(call)
        try:
            while True:
                async with asyncio.timeout(_SILENCE_SECONDS):
                    state = await anext(states)
                yield from_wire(state)
        except grpc.aio.AioRpcError as error:
            raise _translated(error) from error
        except TimeoutError as error:
            said = f"the sync server has said nothing for {_SILENCE_SECONDS} s"
            raise UnavailableError(said) from error
        except StopAsyncIteration as error:
            raise UnavailableError("the sync server ended its watch") from error
        finally:
            call.cancel()  # a server that is silent would keep it open

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()


def _translated(error: grpc.aio.AioRpcError) -> UnavailableError | RefusedError:
    text = f"sync server: {error.code().name}: {error.details()}"
    return UnavailableError(text) if error.code() in _RETRY_LATER else RefusedError(text)


def to_wire(plan: SyncPlan, *, now: datetime) -> control_pb2.SyncPlan:
    """The plan as a message; a token's expiry becomes a duration, for clocks differ."""
    return control_pb2.SyncPlan(
        job_uid=plan.job_uid,
        incarnation=plan.incarnation,
        settings_json=plan.settings_json,
        seed_peer=plan.seed_peer or "",
        plan=sync_pb2.Plan(
            epoch=plan.epoch,
            replicated=plan.replicated,
            owners=[
                sync_pb2.Owner(expert=expert, peer=peer, granted_epoch=plan.granted[expert])
                for expert, peer in sorted(plan.owners.items())
            ],
            parked=plan.parked,
            peers=plan.peers,
        ),
        add_tokens=[
            control_pb2.TokenHash(
                id=token.id,
                peer=token.peer,
                sha256=token.sha256,
                expires_in_seconds=int((token.expires_at - now).total_seconds()),
            )
            for token in plan.tokens
            if token.expires_at > now
        ],
    )


def from_wire(state: control_pb2.SyncState) -> SyncState:
    """The message as plain data; a phase that this version does not know counts as closing."""
    name = control_pb2.Phase.Name(state.phase) if state.phase in control_pb2.Phase.values() else ""
    return SyncState(
        job_uid=state.job_uid,
        incarnation=state.incarnation,
        active_epoch=state.active_epoch,
        pending_epoch=state.pending_epoch,
        phase=Phase[name] if name in Phase.__members__ else Phase.CLOSING,
        round=state.round,
        version=state.version,
        needed=state.needed,
        expected=tuple(PeerId(peer) for peer in state.expected),
        pushed=tuple(PeerId(peer) for peer in state.pushed),
        left_of_round=timedelta(seconds=state.seconds_left),
        global_tokens=state.global_tokens,
        held_out_loss=_finite(state.held_out_loss) or None,
        problem=state.problem,
        used_token_ids=frozenset(state.used_token_ids),
        routed_tokens={ExpertId(e): count for e, count in enumerate(state.routed_tokens)},
        peers={PeerId(peer.peer): _peer_from_wire(peer) for peer in state.peers},
    )


def _finite(number: float) -> float:
    """What a peer says of itself may be no number; then nothing is known."""
    return number if math.isfinite(number) else 0.0


def _peer_from_wire(peer: control_pb2.PeerState) -> PeerState:
    return PeerState(
        peer=PeerId(peer.peer),
        connected=peer.connected,
        caught_up=peer.caught_up,
        left=peer.left,
        silent_for=timedelta(seconds=peer.silent_seconds),
        version=peer.version,
        steps=peer.steps,
        tokens=peer.tokens,
        tokens_per_second=max(0.0, _finite(peer.tokens_per_second)),
        loss=_finite(peer.loss),
        bytes_up=peer.bytes_up,
        bytes_down=peer.bytes_down,
        waited=timedelta(seconds=peer.wait_seconds),
        refusals=peer.refusals,
        peak_bytes=peer.peak_bytes,
        contribution=_finite(peer.contribution_so_far),
    )
