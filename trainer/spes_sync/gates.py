"""The gates before a push counts: its key against the round, its header against the manifest. Pure.

Asked before any payload is taken in, again with each chunk (the round may close meanwhile) and once
more when all is verified. What the payload itself must satisfy (CRC, hash, finite values) is
checked where it is received.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from spes_proto.v1 import sync_pb2

from spes_sync.errors import ProtocolError
from spes_sync.manifest import SHARED, Manifest, TensorSpec
from spes_sync.payloads import all_in, payload_bytes
from spes_sync.plan import PeerId
from spes_sync.quantize import Codec
from spes_sync.rounds.state import Phase, Round, State

# Refusals that a retransmission mends: the peer stays expected.
RETRANSMIT = frozenset({sync_pb2.TRUNCATED, sync_pb2.BAD_CHECKSUM, sync_pb2.DISK_FULL})
# Of the data that a peer may say it has: 2^40 sequences are some 10^15 tokens.
MAX_SAMPLES = 1 << 40

_PARTS: Mapping[int, Literal["all", "experts", "shared"]] = {
    sync_pb2.ALL: "all",
    sync_pb2.EXPERTS: "experts",
    sync_pb2.SHARED: "shared",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobId:
    """Which job, and which of its lives, this volume holds."""

    uid: str
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Upper bounds on what one push may claim, from the peer's leases."""

    steps: int
    tokens: int


def judge(
    state: State, header: sync_pb2.PushHeader, peer: PeerId, job: JobId
) -> sync_pb2.PushReply | None:
    """The verdict on a push's key as things stand; None: take it in.

    The order matters: another base is REBASE on the key alone, so a late peer keeps its progress;
    only then may a refusal cost it.
    """
    key = header.key
    if (key.job_uid, key.incarnation) != (job.uid, job.incarnation):
        detail = f"job {key.job_uid[:64]!r} incarnation {key.incarnation} (expected {job})"
        return refused(sync_pb2.WRONG_JOB, detail)
    if key.peer != peer:
        return refused(sync_pb2.PROTOCOL, f"key of {key.peer[:64]!r} in the session of {peer}")
    if header.kind == sync_pb2.SEED:
        return _judge_seed(state, peer)
    return None if key.part == sync_pb2.MOMENTS else _judge_delta(state, header, peer)


def _judge_delta(
    state: State, header: sync_pb2.PushHeader, peer: PeerId
) -> sync_pb2.PushReply | None:
    key, now_open, buffer = header.key, state.round, state.rules.buffer
    if not state.accepts_pushes or now_open is None or key.base_version != now_open.base:
        return _rebase(f"base {key.base_version} is not that of an open round")
    if now_open.has(peer, key.part):
        return sync_pb2.PushReply(verdict=sync_pb2.ALREADY_HAVE)
    if buffer is not None and header.staleness > buffer.max_staleness:
        return _rebase(
            f"work that has missed {header.staleness} versions (at most {buffer.max_staleness})"
        )
    return _objection(now_open, header, peer)


def _objection(
    now_open: Round, header: sync_pb2.PushHeader, peer: PeerId
) -> sync_pb2.PushReply | None:
    """What speaks against a push on the round's base that is not there yet."""
    key = header.key
    if key.part not in _PARTS or header.kind not in (sync_pb2.DELTA, sync_pb2.FINAL):
        return refused(sync_pb2.PROTOCOL, f"push of kind {header.kind}, part {key.part}")
    if peer not in now_open.expected:
        detail = f"{peer} is not in round {now_open.number} ({len(now_open.expected)} are expected)"
        return refused(sync_pb2.NOT_EXPECTED, detail)
    if key.part == sync_pb2.ALL and now_open.has_pushed(peer):
        return refused(sync_pb2.PROTOCOL, "the whole after a part of it would count twice")
    if key.epoch > now_open.plan.epoch:
        detail = f"epoch {key.epoch} (the round's is {now_open.plan.epoch})"
        return refused(sync_pb2.PROTOCOL, detail)
    return None


def _judge_seed(state: State, peer: PeerId) -> sync_pb2.PushReply | None:
    if state.phase is not Phase.SEEDING:
        return _rebase("the model is seeded; pull it")
    if peer != state.seed_peer:
        return refused(sync_pb2.NOT_EXPECTED, f"{peer} was not asked for the seed")
    return None


def check_seed(manifest: Manifest, *, replicated: bool) -> None:
    """Refuse a model whose experts have owners where every peer trains all of them.

    Raises:
        ProtocolError: WRONG_SHAPE, a tensor belongs to an expert though it will be averaged.
    """
    if replicated and (experts := manifest.experts):
        raise ProtocolError(
            sync_pb2.WRONG_SHAPE,
            f"the seed has {len(experts)} experts with owners of their own (expected none: with "
            "this algorithm every tensor is shared); run the same version of spes on both sides",
        )


def check_header(
    header: sync_pb2.PushHeader, manifest: Manifest, allowed: Allowance
) -> tuple[TensorSpec, ...]:
    """The tensors of a delta's payload, in order.

    Raises:
        ProtocolError: tensors that are not the manifest's, or not those of the key's part and of
            whole experts; a size that is not theirs; steps or tokens beyond what was leased; more
            data than there is.
    """
    tensors = manifest.select(header.tensors)
    _check_selection(tensors, manifest, header.key.part)
    check_size(header, tensors)
    if not 1 <= header.steps <= allowed.steps or not 1 <= header.tokens <= allowed.tokens:
        raise ProtocolError(
            sync_pb2.TOO_LARGE,
            f"push of {header.steps} steps and {header.tokens} tokens "
            f"(leased: up to {allowed.steps} steps and {allowed.tokens} tokens, at least 1)",
        )
    if not 0 <= header.samples <= MAX_SAMPLES:
        raise ProtocolError(
            sync_pb2.TOO_LARGE, f"data of {header.samples} samples (at most {MAX_SAMPLES:,})"
        )
    return tensors


def check_size(header: sync_pb2.PushHeader, tensors: tuple[TensorSpec, ...]) -> Codec:
    """The payload's codec.

    Raises:
        ProtocolError: there is no such codec, or it is a lossy one of what is no delta; the
            announced size is not the tensors'.
    """
    codec = Codec.of_wire(header.codec)
    is_delta = header.kind != sync_pb2.SEED and header.key.part != sync_pb2.MOMENTS
    if codec is not Codec.FP32 and not is_delta:
        raise ProtocolError(sync_pb2.PROTOCOL, f"{codec} of values that are no delta (use FP32)")
    num_bytes = payload_bytes(tensors, all_in(codec, tensors))
    if header.total_bytes != num_bytes or not tensors:
        raise ProtocolError(
            sync_pb2.TOO_LARGE if header.total_bytes > num_bytes else sync_pb2.WRONG_SHAPE,
            f"payload of {header.total_bytes:,} bytes "
            f"(its {len(tensors)} tensors in {codec}: {num_bytes:,})",
        )
    return codec


def experts_in(tensors: tuple[TensorSpec, ...]) -> tuple[int, ...]:
    """The experts of a payload, ascending."""
    return tuple(sorted({tensor.expert for tensor in tensors} - {SHARED}))


def split_experts(
    state: State, tensors: tuple[TensorSpec, ...], peer: PeerId, epoch: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The payload's experts that count in the open round, and those that do not."""
    assert state.round is not None
    plan = state.round.plan
    experts = experts_in(tensors)
    counted = tuple(e for e in experts if plan.counts(e, peer=peer, epoch=epoch))
    return counted, tuple(e for e in experts if e not in counted)


def refused(reason: sync_pb2.Reason, detail: str) -> sync_pb2.PushReply:
    """A refusal with its reason."""
    return sync_pb2.PushReply(verdict=sync_pb2.REFUSED, reason=reason, detail=detail)


def _rebase(detail: str) -> sync_pb2.PushReply:
    return sync_pb2.PushReply(verdict=sync_pb2.REBASE, reason=sync_pb2.OLD_BASE, detail=detail)


def _check_selection(
    tensors: tuple[TensorSpec, ...], manifest: Manifest, part: sync_pb2.Part
) -> None:
    experts = experts_in(tensors)
    wanted = manifest.trained_by(experts)
    if part == sync_pb2.EXPERTS:
        wanted = tuple(tensor for tensor in wanted if tensor.expert != SHARED)
    if part == sync_pb2.SHARED and experts:
        wanted = ()
    if tensors != wanted:
        raise ProtocolError(
            sync_pb2.WRONG_SHAPE,
            f"{len(tensors)} tensors are not those of part {_PARTS[part].upper()} "
            f"with whole experts (expected {len(wanted)})",
        )
