"""Finding everything again after a restart: what a volume says about its job.

The server goes on as it was: seeding, waiting, complete, or with the open round and its complete
pushes; deadlines and silences count from now. What a crash left between two writes is settled here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

from spes_sync.errors import VolumeError
from spes_sync.manifest import Manifest
from spes_sync.plan import PeerId
from spes_sync.rounds import Peer, Phase, Push, Round, Rules, State
from spes_sync.spools import Spool
from spes_sync.tokens import TokenBook
from spes_sync.versions import CommitRecord
from spes_sync.volume import Job, Ledger, Volume

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A job as its volume holds it."""

    job: Job
    tokens: TokenBook
    ledger: Ledger
    manifest: Manifest | None
    head: CommitRecord | None
    fault: str
    """What was wrong with the newest version, if the one before is used instead."""


def find(volume: Volume) -> Found | None:
    """Read a volume and settle what a crash left; None if it holds no job yet.

    Raises:
        VolumeError: nothing usable is left of a committed model.
    """
    job = volume.load_job()
    if job is None:
        if volume.versions.head() >= 0:
            raise _missing(volume, "plan.json")
        return None
    head, fault = _head(volume, job)
    if head is None:
        volume.erase_model()
    volume.versions.remove_unpublished()
    ledger, manifest = volume.load_ledger(), volume.load_manifest()
    if head is not None:
        if manifest is None:
            raise _missing(volume, "manifest.json")
        if ledger is None and head.version > 0:
            raise _missing(volume, "data.json")
    ledger = ledger or Ledger()
    if head is not None and ledger.version < head.version:
        book = ledger.book.without(head.leases)
        ledger = replace(ledger, book=book, version=head.version)
    return Found(
        job=job,
        tokens=volume.load_tokens(),
        ledger=ledger,
        manifest=manifest,
        head=head,
        fault=fault,
    )


def _head(volume: Volume, job: Job) -> tuple[CommitRecord | None, str]:
    """The version to go on from, and what is wrong with a newer one; None: no model was made yet.

    A model of a former incarnation is none: a crash came before it was erased.
    """
    versions = volume.versions
    newest = versions.head()
    if newest < 0:
        return None, ""
    fault = versions.fault(newest)
    if not fault:
        return _of_job(versions.record(newest), job), ""
    for version in versions.older_than(newest):
        if versions.fault(version):
            continue
        record = _of_job(versions.record(version), job)
        if record is None:
            break
        versions.roll_back(version)
        logger.error("%s; going on from version %d", fault, version)
        return record, f"{fault}; going on from version {version}"
    raise VolumeError(f"{fault}, and no complete version before it is left")


def _of_job(record: CommitRecord | None, job: Job) -> CommitRecord | None:
    """The record, unless it is of a former incarnation.

    Raises:
        VolumeError: it can be neither; one of the two files is not what was written.
    """
    if record is None:
        return None
    if record.job_uid != job.uid or record.incarnation > job.incarnation:
        raise VolumeError(
            f"version {record.version} is of job {record.job_uid}, incarnation "
            f"{record.incarnation}, but plan.json of {job.uid}, {job.incarnation}; restore it"
        )
    return record if record.incarnation == job.incarnation else None


def _missing(volume: Volume, name: str) -> VolumeError:
    return VolumeError(
        f"{volume.root / name} is missing, though a model was committed; restore it, or use "
        "another directory to start anew"
    )


def resume(volume: Volume, found: Found, rules: Rules, now: float) -> tuple[State, list[Spool]]:
    """The state to go on with, and the verified pushes of its open round."""
    job, head = found.job, found.head
    version = head.version if head else -1
    state = State(
        rules=rules,
        version=version,
        global_tokens=head.global_tokens if head else 0,
        phase=Phase.SEEDING if head is None else Phase.WAITING,
        active=job.active,
        newest=job.newest,
        seed_peer=job.seed_peer,
        peers=_peers(found, now),
        problem=found.fault,
    )
    if head is not None and state.global_tokens >= rules.max_tokens:
        return replace(state, phase=Phase.COMPLETE), []
    opened = volume.spools.load_round(version + 1) if found.manifest and head else None
    volume.spools.clean(version + 1 if opened else None)
    if opened is None or found.manifest is None:
        return state, []
    spools = list(volume.spools.verified(version + 1, found.manifest))
    return _reopened(state, opened, spools, now), spools


def _peers(found: Found, now: float) -> dict[PeerId, Peer]:
    peers = {peer: Peer(heard_at=now) for peer in found.job.newest.peers}
    for session in found.tokens.sessions.values():
        peers[session.peer] = Peer(heard_at=now, caught_up=session.caught_up)
    return peers


def _reopened(state: State, opened: dict[str, Any], spools: list[Spool], now: float) -> State:
    pushes: dict[PeerId, tuple[Push, ...]] = {}
    for spool in spools:
        pushes[spool.peer] = (*pushes.get(spool.peer, ()), spool.push)
    expected = frozenset(map(PeerId, opened["expected"]))
    done = frozenset(p for p, parts in pushes.items() if any(push.has_shared for push in parts))
    return replace(
        state,
        phase=Phase.OPEN,
        round=Round(
            number=state.version + 1,
            plan=state.active,
            expected=expected & frozenset(state.newest.peers),
            deadline=now + state.rules.timeout,
            pushes=pushes,
            done=done,
        ),
    )
