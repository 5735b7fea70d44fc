"""Taking a push in: header against the gates, payload into a spool, then the verdict.

The verdict on the key is asked for before the payload, with each chunk, and at the end under the
engine's lock: the round may close or the plan change at any moment in between. A refusal that a
retransmission mends costs the peer nothing but the retransmission.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from spes_proto.v1 import sync_pb2

from spes_sync import gates
from spes_sync.dropped import Coding
from spes_sync.errors import DiskFullError, ProtocolError
from spes_sync.manifest import Manifest, TensorSpec
from spes_sync.plan import PeerId
from spes_sync.quantize import Codec
from spes_sync.rounds import Push
from spes_sync.rounds import events as ev
from spes_sync.server.admission import Caller
from spes_sync.server.commits import Commits
from spes_sync.server.engine import Engine
from spes_sync.server.replies import next_of
from spes_sync.server.run import Run
from spes_sync.spools import Receiver, Spool

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A push whose header passed the gates."""

    caller: Caller
    header: sync_pb2.PushHeader
    tensors: tuple[TensorSpec, ...]
    serial: int
    """A newer push of the same peer has a higher one and takes over."""


class Pushes:
    """Receives pushes of all peers, one at a time from each."""

    def __init__(self, engine: Engine, commits: Commits) -> None:
        """Feed what is verified to the engine; a seed goes straight to its commit."""
        self._engine = engine
        self._commits = commits
        self._serials = itertools.count(1)
        self._newest: dict[PeerId, int] = {}

    async def receive(
        self, caller: Caller, parts: AsyncIterator[sync_pb2.PushPart]
    ) -> sync_pb2.PushReply:
        """Take one push in, from its header to its reply."""
        started = self._engine.clocks.now()
        header = sync_pb2.PushHeader()
        try:
            header = await _header(parts)
            reply = await self._judged(caller, header, parts)
            if reply.verdict in (sync_pb2.VERIFIED, sync_pb2.PARTLY):  # it is on the disk
                self._run.disk_problem = ""
        except ProtocolError as error:
            reply = gates.refused(error.reason, str(error))
        except DiskFullError as error:
            self._run.disk_problem = str(error)
            reply = gates.refused(sync_pb2.DISK_FULL, str(error))
        except TimeoutError:
            reply = gates.refused(sync_pb2.TRUNCATED, "the push made no progress")
        await self._note(caller, header, reply, self._engine.clocks.now() - started)
        return reply

    async def _judged(
        self,
        caller: Caller,
        header: sync_pb2.PushHeader,
        parts: AsyncIterator[sync_pb2.PushPart],
    ) -> sync_pb2.PushReply:
        state = self._run.state
        if state.round is not None and caller.peer in state.round.silenced:
            await self._engine.post(ev.Heard(peer=caller.peer))  # a push is a sign of life
        if (verdict := self._verdict(caller, header)) is not None:
            return verdict
        incoming = Incoming(
            caller=caller,
            header=header,
            tensors=_tensors(self._run, header, caller.peer),
            serial=next(self._serials),
        )
        self._newest[caller.peer] = incoming.serial
        codec = Codec.of_wire(header.codec)
        receiver = self._engine.volume.spools.receiver(caller.peer, incoming.tensors, codec)
        try:
            return await self._received(incoming, receiver, parts)
        finally:
            if receiver.has_file:
                await self._engine.threads.run(receiver.discard)

    async def _received(
        self, incoming: Incoming, receiver: Receiver, parts: AsyncIterator[sync_pb2.PushPart]
    ) -> sync_pb2.PushReply:
        account = self._engine.accounts.of(incoming.caller.peer)
        while (part := await next_of(parts)) is not None:
            if (verdict := self._verdict(incoming.caller, incoming.header)) is not None:
                return verdict
            if self._newest.get(incoming.caller.peer) != incoming.serial:
                return gates.refused(sync_pb2.TRUNCATED, "a newer push of this peer took over")
            if part.HasField("chunk"):
                before = receiver.received_coded
                await self._engine.threads.run(receiver.write, part.chunk)
                account.bytes_up += receiver.received_coded - before
            elif part.HasField("end"):
                return await self._accept(incoming, receiver, receiver.finish(part.end))
            else:
                raise ProtocolError(sync_pb2.PROTOCOL, "a push has one header")
        raise ProtocolError(
            sync_pb2.TRUNCATED,
            f"the stream ended after {receiver.received:,} bytes, before its End",
        )

    async def _accept(
        self, incoming: Incoming, receiver: Receiver, sha256: str
    ) -> sync_pb2.PushReply:
        """Let a complete payload count, unless the round has moved on meanwhile."""
        caller, header, engine = incoming.caller, incoming.header, self._engine
        async with engine.lock:
            if (verdict := self._verdict(caller, header)) is not None:
                return verdict
            run = self._run
            if header.kind == sync_pb2.SEED:
                payload = await engine.threads.run(receiver.complete)
                await self._commits.seed(payload, Manifest(incoming.tensors))
                return sync_pb2.PushReply(verdict=sync_pb2.VERIFIED)
            if header.key.part == sync_pb2.MOMENTS:
                assert run.manifest is not None
                await engine.threads.run(
                    engine.volume.moments.keep,
                    await engine.threads.run(receiver.complete),
                    run.manifest,
                    header.key.expert,
                    caller.session,
                )
                return sync_pb2.PushReply(verdict=sync_pb2.VERIFIED)
            return await self._accept_delta(run, incoming, receiver, sha256)

    async def _accept_delta(
        self, run: Run, incoming: Incoming, receiver: Receiver, sha256: str
    ) -> sync_pb2.PushReply:
        caller, header, engine = incoming.caller, incoming.header, self._engine
        counted, dropped = gates.split_experts(
            run.state, incoming.tensors, caller.peer, header.key.epoch
        )
        push = Push(
            part=header.key.part,
            sha256=sha256,
            epoch=header.key.epoch,
            steps=header.steps,
            tokens=header.tokens,
            samples=header.samples,
            staleness=header.staleness,
            loss=header.loss,
            experts=counted,
            final=header.kind == sync_pb2.FINAL,
            routed_tokens=tuple(header.routed_tokens),
        )
        spool = Spool(
            path=receiver.path,
            peer=caller.peer,
            session=caller.session,
            push=push,
            tensors=incoming.tensors,
            hashes=receiver.hashes,
            codec=Codec.of_wire(header.codec),
        )
        spool = await engine.threads.run(
            engine.volume.spools.keep, run.state.round_number, receiver, spool
        )
        await engine.apply(ev.Verified(peer=caller.peer, push=push))
        run.add_spool(spool)
        account = engine.accounts.of(caller.peer)
        account.coding, account.codec = _coding(incoming, receiver), spool.codec
        if push.has_shared:
            account.pushed_at = engine.clocks.now()
        return sync_pb2.PushReply(
            verdict=sync_pb2.PARTLY if dropped else sync_pb2.VERIFIED,
            reason=sync_pb2.OLD_EPOCH if dropped else sync_pb2.REASON_UNSPECIFIED,
            dropped_experts=dropped,
        )

    async def _note(
        self, caller: Caller, header: sync_pb2.PushHeader, reply: sync_pb2.PushReply, seconds: float
    ) -> None:
        """Journal the answer; a refusal also changes the round."""
        engine = self._engine
        reason = sync_pb2.Reason.Name(reply.reason) if reply.reason else ""
        if reply.verdict == sync_pb2.REFUSED:
            engine.accounts.refused(caller.peer, reason)
            again = reply.reason in gates.RETRANSMIT
            await engine.post(ev.Refused(peer=caller.peer, reason=reason, again=again))
        engine.journal.write(
            "push",
            round=header.key.round,
            peer=caller.peer,
            part=sync_pb2.Part.Name(header.key.part) if header.key.part in _PARTS else "",
            verdict=sync_pb2.Verdict.Name(reply.verdict),
            reason=reason,
            detail=reply.detail,
            bytes=header.total_bytes,
            seconds=seconds,
            steps=header.steps,
            tokens=header.tokens,
            loss=header.loss if math.isfinite(header.loss) else None,
            codec=_CODECS.get(header.codec, ""),
            codecError=header.codec_error if math.isfinite(header.codec_error) else None,
        )

    @property
    def _run(self) -> Run:
        assert self._engine.run is not None  # a caller has a session, so there is a job
        return self._engine.run

    def _verdict(self, caller: Caller, header: sync_pb2.PushHeader) -> sync_pb2.PushReply | None:
        run = self._run
        if run.tokens.session(caller.key) is None:
            return gates.refused(sync_pb2.NOT_EXPECTED, "a newer process of this peer has joined")
        return gates.judge(run.state, header, caller.peer, run.job_id)


async def _header(parts: AsyncIterator[sync_pb2.PushPart]) -> sync_pb2.PushHeader:
    first = await next_of(parts)
    if first is None or not first.HasField("header"):
        raise ProtocolError(sync_pb2.PROTOCOL, "a push begins with its header")
    return first.header


def _coding(incoming: Incoming, receiver: Receiver) -> Coding:
    error = incoming.header.codec_error  # what the peer says; nothing hangs on it
    num_bytes = sum(tensor.num_bytes for tensor in incoming.tensors)
    return Coding(
        compression=num_bytes / receiver.received_coded,
        error=error if math.isfinite(error) else 0.0,
    )


_CODECS: Mapping[int, str] = {codec.wire: codec.value for codec in Codec}
_PARTS = frozenset(sync_pb2.Part.values())


def _tensors(run: Run, header: sync_pb2.PushHeader, peer: PeerId) -> tuple[TensorSpec, ...]:
    """The payload's tensors, after every check that the header allows."""
    if not math.isfinite(header.loss):
        raise ProtocolError(sync_pb2.NOT_FINITE, f"the training loss is {header.loss}")
    if header.kind == sync_pb2.SEED:
        manifest = Manifest(tuple(TensorSpec.from_proto(tensor) for tensor in header.tensors))
        gates.check_seed(manifest, replicated=run.settings.spec.algorithm.replicated)
        tensors = manifest.select(header.tensors)
        gates.check_size(header, tensors)
        return tensors
    if run.manifest is None:
        raise ProtocolError(sync_pb2.NOT_EXPECTED, "the model is not seeded")
    if header.key.part != sync_pb2.MOMENTS:
        return gates.check_header(header, run.manifest, run.allowance(peer))
    expert = header.key.expert
    if not run.state.active.counts(expert, peer=peer, epoch=header.key.epoch):
        raise ProtocolError(sync_pb2.NOT_EXPECTED, f"expert {expert} is not {peer}'s")
    tensors = run.manifest.moments_of(expert).select(header.tensors)
    gates.check_size(header, tensors)
    return tensors
