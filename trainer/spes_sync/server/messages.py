"""Wire messages about the state of a run. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spes_proto.v1 import control_pb2, sync_pb2

from spes_sync.plan import PeerId
from spes_sync.rounds import Phase, State
from spes_sync.rounds import events as ev
from spes_sync.rounds.guards import COMPLETE
from spes_sync.server.accounts import Accounts
from spes_sync.server.run import Run
from spes_sync.versions import CommitRecord
from spes_sync.work_shares import WorkShare, work_shares


def committed(record: CommitRecord, tensor_hashes: Mapping[str, str]) -> sync_pb2.Committed:
    """What peers are told of a version."""
    return sync_pb2.Committed(
        version=record.version,
        round=record.version,
        included=[
            sync_pb2.Included(peer=each.peer, sha256=sha256)
            for each in record.contributions
            for sha256 in each.pushes
        ],
        tensor_hashes=[
            sync_pb2.TensorHash(name=name, sha256=sha256)
            for name, sha256 in sorted(tensor_hashes.items())
        ],
        global_tokens=record.global_tokens,
    )


def plan_of(run: Run, peer: PeerId) -> sync_pb2.ServerEvent:
    """The plan that this peer goes by."""
    return sync_pb2.ServerEvent(plan=run.state.plan_for(peer).to_proto())


def round_open(run: Run, peer: PeerId, now: float) -> sync_pb2.ServerEvent:
    """The open round as this peer sees it."""
    opened = run.state.round
    assert opened is not None
    evaluated = run.held_out is not None and run.held_out.version >= opened.base
    evaluate = (
        peer == min(opened.expected, default=None)
        and run.settings.evaluates(opened.base)
        and not evaluated
    )
    leases = run.ledger.book.leased.get(peer, ())
    return sync_pb2.ServerEvent(
        round_open=sync_pb2.RoundOpen(
            round=opened.number,
            base_version=opened.base,
            epoch=opened.plan.epoch,
            deadline_seconds=max(0.0, opened.deadline - now),
            lease=[sync_pb2.Lease(first=r.first, count=r.size) for r in leases],
            global_tokens=run.state.global_tokens,
            num_expected=len(opened.expected),
            evaluate=evaluate,
        )
    )


def stop(sent: ev.StopSent) -> sync_pb2.ServerEvent:
    """The end for a peer, at once or after a last evaluation."""
    return sync_pb2.ServerEvent(
        stop=sync_pb2.Stop(reason=sent.reason, evaluate_seconds=sent.evaluate_seconds)
    )


def greeting(
    run: Run, peer: PeerId, after: sync_pb2.Committed | None, now: float
) -> Iterator[sync_pb2.ServerEvent]:
    """What a peer needs to know when its stream begins; `after`: the version next to its own."""
    state = run.state
    known = state.peers.get(peer)
    yield plan_of(run, peer)
    if after is not None:
        yield sync_pb2.ServerEvent(committed=after)
    if run.latest is not None and run.latest != after:
        yield sync_pb2.ServerEvent(committed=run.latest)
    if (ended := _stop_for(state, peer, now)) is not None:
        yield stop(ended)
    elif state.phase is Phase.SEEDING and peer == state.seed_peer:
        yield sync_pb2.ServerEvent(seed_wanted=sync_pb2.SeedWanted())
    elif state.accepts_pushes and state.round is not None and peer in state.round.expected:
        yield round_open(run, peer, now)
    if known is not None and known.draining and not known.left:
        grace = run.settings.spec.trainer.grace_period_seconds
        yield sync_pb2.ServerEvent(drain=sync_pb2.Drain(grace_seconds=grace))


def _stop_for(state: State, peer: PeerId, now: float) -> ev.StopSent | None:
    """What a peer is told that comes (back) when its job, or its part in it, is over."""
    known, reason, seconds = state.peers.get(peer), "", 0.0
    if state.stop_sent:
        reason = COMPLETE if state.phase is Phase.COMPLETE else state.stopping
        if state.evaluate_until is not None and peer == state.evaluator:
            seconds = max(0.0, state.evaluate_until - now)
    elif known is not None and known.stopped:
        reason = "DRAINED"
    sent = ev.StopSent(peers=frozenset({peer}), reason=reason, evaluate_seconds=seconds)
    return sent if reason else None


def sync_state(run: Run | None, accounts: Accounts, now: float) -> control_pb2.SyncState:
    """All that the hub wants to know."""
    if run is None:
        return control_pb2.SyncState(phase=control_pb2.SEEDING, version=-1)
    state, opened = run.state, run.state.round
    pending = state.newest.epoch if state.newest.epoch > state.active.epoch else 0
    return control_pb2.SyncState(
        job_uid=run.job.uid,
        incarnation=run.job.incarnation,
        active_epoch=state.active.epoch,
        pending_epoch=pending,
        phase=state.phase.value,
        round=state.round_number,
        version=state.version,
        needed=state.needed(),
        expected=sorted(opened.expected) if opened else [],
        pushed=sorted(opened.pushes) if opened else [],
        seconds_left=max(0.0, opened.deadline - now) if opened else 0.0,
        global_tokens=state.global_tokens,
        held_out_loss=run.held_out.loss if run.held_out else 0.0,
        problem=state.problem or run.disk_problem or run.export_problem,
        used_token_ids=run.tokens.used_ids,
        peers=_peer_states(run, accounts, now),
        routed_tokens=_routed_tokens(run),
    )


def _peer_states(run: Run, accounts: Accounts, now: float) -> list[control_pb2.PeerState]:
    shares = work_shares(run.head)
    return [
        _peer_state(run, accounts, peer, shares.get(peer, WorkShare()), now)
        for peer in sorted(run.state.peers)
    ]


def _peer_state(
    run: Run, accounts: Accounts, peer: PeerId, share: WorkShare, now: float
) -> control_pb2.PeerState:
    known, account = run.state.peers[peer], accounts.seen(peer)
    beat = account.heartbeat
    return control_pb2.PeerState(
        peer=peer,
        connected=known.connected,
        caught_up=known.caught_up,
        left=known.left,
        silent_seconds=max(0.0, now - known.heard_at),
        version=known.version,
        steps=beat.steps,
        tokens=beat.tokens,
        tokens_per_second=beat.tokens_per_second,
        loss=beat.loss,
        bytes_up=account.bytes_up,
        bytes_down=account.bytes_down,
        wait_seconds=account.wait_seconds,
        refusals=account.refusals,
        peak_bytes=beat.peak_bytes,
        contribution=share.latest,
        contribution_so_far=share.so_far,
    )


def _routed_tokens(run: Run) -> list[int]:
    routed = run.head.routed if run.head else {}
    if run.manifest is None or not routed:
        return []
    size = max(run.manifest.experts, default=-1) + 1
    return [routed[e].tokens if e in routed else 0 for e in range(size)]
