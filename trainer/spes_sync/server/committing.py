"""From a closed round's spools to a durable version: who counts, how much, then the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spes_sync.aggregate import Delta, write_seed, write_version
from spes_sync.downlink import Making
from spes_sync.leases import Ranges
from spes_sync.manifest import Manifest
from spes_sync.merge import MergeStep
from spes_sync.outer import OuterStep
from spes_sync.plan import PeerId
from spes_sync.quantize import Codec
from spes_sync.rounds import Round
from spes_sync.server.run import Run
from spes_sync.spools import Spool
from spes_sync.versions import CommitRecord, Contribution, Routed
from spes_sync.volume import Volume
from spes_sync.weighing import Weighing, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """A round that is over, with all that its commit needs; a snapshot of the run."""

    round: Round
    manifest: Manifest
    head: CommitRecord
    spools: Mapping[PeerId, Sequence[Spool]]
    leases: Mapping[PeerId, Ranges]
    weighing: Weighing
    downlink: Codec
    merge: MergeStep | None
    outer: OuterStep | None


def closing(run: Run) -> Closing:
    """Take the snapshot."""
    assert run.state.round is not None
    assert run.manifest is not None
    assert run.head is not None
    return Closing(
        round=run.state.round,
        manifest=run.manifest,
        head=run.head,
        spools={peer: tuple(spools) for peer, spools in sorted(run.spools.items())},
        leases=run.ledger.book.consumed,
        weighing=run.settings.weighing,
        downlink=run.settings.downlink,
        merge=run.settings.merge_in(run.state.round.number),
        outer=run.settings.outer,
    )


def contributions(closed: Closing) -> tuple[Contribution, ...]:
    """Who brings what into the version, in peer-id order."""
    weights = closed.weighing.of(
        {
            peer: Work(
                steps=max(spool.push.steps for spool in spools),
                tokens=max(spool.push.tokens for spool in spools),
                samples=max(1, *(spool.push.samples for spool in spools)),
                staleness=max(spool.push.staleness for spool in spools),
            )
            for peer, spools in closed.spools.items()
            if any(spool.push.has_shared for spool in spools)
        }
    )
    return tuple(
        Contribution(
            peer=peer,
            session=spools[-1].session,
            pushes=tuple(spool.push.sha256 for spool in spools),
            weight=weights.get(peer, 0.0),
            experts=tuple(sorted({e for s in spools for e in closed.round.counted(peer, s.push)})),
            steps=max(spool.push.steps for spool in spools),
            tokens=max(spool.push.tokens for spool in spools),
            staleness=max(spool.push.staleness for spool in spools),
            loss=spools[-1].push.loss,
            codec=next((s.codec for s in spools if s.push.experts), Codec.FP32),
        )
        for peer, spools in closed.spools.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A durable version."""

    record: CommitRecord
    tensor_hashes: Mapping[str, str]


def write_commit(volume: Volume, closed: Closing) -> Written:
    """Write the version and make it the served one. Blocking.

    Raises:
        DiskFullError, DivergedError, VolumeError: nothing has changed but the version's directory.
    """
    brought, version = contributions(closed), closed.round.number
    deltas = [
        Delta(
            path=spool.path,
            tensors=spool.tensors,
            weight=each.weight if spool.push.has_shared else 0.0,
            experts=frozenset(closed.round.counted(each.peer, spool.push)),
            hashes=spool.hashes,
            codec=spool.codec,
        )
        for each in brought
        for spool in closed.spools[each.peer]
    ]
    making = Making(
        base=volume.versions.path(closed.head.version),
        target=volume.versions.create(version),
        manifest=closed.manifest,
        disk=volume.disk,
        downlink=closed.downlink,
        merge=closed.merge,
        outer=closed.outer,
    )
    written = write_version(deltas, making)
    record = CommitRecord(
        version=version,
        job_uid=closed.head.job_uid,
        incarnation=closed.head.incarnation,
        epoch=closed.round.plan.epoch,
        global_tokens=closed.head.global_tokens + sum(each.tokens for each in brought),
        model_sha256=written.model_sha256,
        files=written.files,
        contributions=brought,
        leases=closed.leases,
        worked=_worked(closed.head, brought),
        routed=_routed(closed),
        downlink=closed.downlink,
        coded=closed.manifest.experts if closed.merge else (),
        merge_alpha=closed.merge.alpha if closed.merge else 0.0,
        frame=written.frame,
    )
    volume.versions.publish(record, written.tensor_hashes, written.frame_hashes)
    return Written(record=record, tensor_hashes=written.tensor_hashes)


def write_seed_commit(volume: Volume, run: Run, payload: Path, manifest: Manifest) -> Written:
    """Write version 0 and make it the served one. Blocking.

    Raises:
        DiskFullError: no space left.
    """
    target = volume.versions.create(0)
    written = write_seed(payload, manifest, target=target, disk=volume.disk)
    volume.save_manifest(manifest)
    record = CommitRecord(
        version=0,
        job_uid=run.job.uid,
        incarnation=run.job.incarnation,
        epoch=run.state.newest.epoch,
        global_tokens=0,
        model_sha256=written.model_sha256,
        files=written.files,
    )
    volume.versions.publish(record, written.tensor_hashes, written.frame_hashes)
    return Written(record=record, tensor_hashes=written.tensor_hashes)


def _worked(head: CommitRecord, brought: Sequence[Contribution]) -> dict[PeerId, int]:
    """Tokens of each peer so far."""
    worked = dict(head.worked)
    for each in brought:
        worked[each.peer] = worked.get(each.peer, 0) + each.tokens
    return worked


def _routed(closed: Closing) -> dict[int, Routed]:
    """Tokens that reached each expert at its owner since it became that."""
    routed: dict[int, Routed] = {}
    for expert, grant in closed.round.plan.owners.items():
        before = closed.head.routed.get(expert)
        tokens = before.tokens if before and before.granted_epoch == grant.epoch else 0
        for spool in closed.spools.get(grant.peer, ()):
            counts = expert in closed.round.counted(grant.peer, spool.push)
            if counts and expert < len(spool.push.routed_tokens):
                tokens += spool.push.routed_tokens[expert]
        routed[expert] = Routed(granted_epoch=grant.epoch, tokens=tokens)
    return routed
