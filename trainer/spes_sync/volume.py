"""The sync server's volume: one job's state on disk, held by one server at a time.

lock            flock, pid and host of the holder      HEAD, versions/   see `versions`
settings.json   the job's settings, as given           open/             see `spools`
plan.json       job, incarnation, active and newest plan: the commit point of ApplyPlan
tokens.json     hashes of tokens and session keys      moments/          see `moments`
data.json       leases, and which data the job has     journal.jsonl     see `journal`
manifest.json   the tensors, from the seed on
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf import json_format
from spes_proto.v1 import sync_pb2

from spes_sync.disk import Disk
from spes_sync.errors import ProtocolError, VolumeError
from spes_sync.leases import LeaseBook
from spes_sync.manifest import Manifest
from spes_sync.moments import Moments
from spes_sync.plan import PeerId, Plan
from spes_sync.spools import Spools
from spes_sync.tokens import TokenBook
from spes_sync.versions import Versions

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The job a volume belongs to, and the hub's plans for it."""

    uid: str
    incarnation: int
    active: Plan = field(default_factory=Plan)
    newest: Plan = field(default_factory=Plan)
    seed_peer: PeerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Which data is leased, as of `version`; and which data it is, once a peer has joined."""

    book: LeaseBook = field(default_factory=LeaseBook)
    version: int = -1
    fingerprint: str = ""
    num_sequences: int = 0

    def with_book(self, book: LeaseBook) -> Ledger:
        """The same data, leased otherwise."""
        return replace(self, book=book)


class Volume:
    """Loads and saves; every save is atomic and durable."""

    def __init__(self, root: Path, disk: Disk) -> None:
        """Look at a directory without taking its lock: for reading only."""
        self.root = root
        self.disk = disk
        self.versions = Versions(root, disk)
        self.spools = Spools(root, disk)
        self.moments = Moments(root, disk)
        self._lock: int | None = None

    @classmethod
    def hold(cls, root: Path, disk: Disk) -> Volume:
        """Take a directory for this process; it is made if missing.

        The lock is the kernel's and dies with the process: kill -9 leaves nothing to clean up.

        Raises:
            VolumeError: another server holds it.
        """
        root.mkdir(parents=True, exist_ok=True)
        volume = cls(root, disk)
        handle = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 256, 0).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise VolumeError(
                f"{root} is held by another server ({holder}); stop it or use another directory"
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        volume._lock = handle
        return volume

    def release(self) -> None:
        """Let another server hold the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def save_settings(self, settings_json: str) -> None:
        """Keep the job's settings, byte for byte."""
        self.disk.write(self.root / "settings.json", settings_json.encode(), "settings")

    def load_settings(self) -> str:
        """The job's settings; "" before the first plan."""
        path = self.root / "settings.json"
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""
        except UnicodeDecodeError as error:
            raise VolumeError(f"{path} is damaged ({error}); restore it or start anew") from error

    def save_job(self, job: Job) -> None:
        """Keep job and plans."""
        value = {
            "jobUid": job.uid,
            "incarnation": job.incarnation,
            "active": json_format.MessageToDict(job.active.to_proto()),
            "newest": json_format.MessageToDict(job.newest.to_proto()),
            "seedPeer": job.seed_peer or "",
        }
        self.disk.write_json(self.root / "plan.json", value, "plan")

    def load_job(self) -> Job | None:
        """Job and plans; None before the first."""
        return self._load("plan.json", _job_from)

    def save_tokens(self, book: TokenBook) -> None:
        """Keep tokens and sessions."""
        self.disk.write_json(self.root / "tokens.json", book.to_json(), "tokens")

    def load_tokens(self) -> TokenBook:
        """Tokens and sessions."""
        return self._load("tokens.json", TokenBook.from_json) or TokenBook()

    def save_ledger(self, ledger: Ledger) -> None:
        """Keep the leases."""
        value = {
            **ledger.book.to_json(),
            "version": ledger.version,
            "fingerprint": ledger.fingerprint,
            "numSequences": ledger.num_sequences,
        }
        self.disk.write_json(self.root / "data.json", value, "data")

    def load_ledger(self) -> Ledger | None:
        """The leases; None before the first."""
        return self._load("data.json", _ledger_from)

    def save_manifest(self, manifest: Manifest) -> None:
        """Keep which tensors the model has."""
        value = json_format.MessageToDict(manifest.to_proto())
        self.disk.write_json(self.root / "manifest.json", value, "manifest")

    def load_manifest(self) -> Manifest | None:
        """Which tensors the model has; None before the seed."""
        return self._load("manifest.json", _manifest_from)

    def erase_model(self) -> None:
        """Remove all that belongs to a former incarnation."""
        self.versions.erase()
        self.spools.clean(None)
        self.moments.clear()
        for name in ("manifest.json", "data.json"):
            (self.root / name).unlink(missing_ok=True)

    def _load(self, name: str, parse: Callable[[Any], T]) -> T | None:
        path = self.root / name
        try:
            return parse(json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, ProtocolError, json_format.Error) as error:
            raise VolumeError(f"{path} is damaged ({error}); restore it or start anew") from error


def _job_from(data: dict[str, Any]) -> Job:
    return Job(
        uid=data["jobUid"],
        incarnation=data["incarnation"],
        active=Plan.from_proto(json_format.ParseDict(data["active"], sync_pb2.Plan())),
        newest=Plan.from_proto(json_format.ParseDict(data["newest"], sync_pb2.Plan())),
        seed_peer=PeerId(data["seedPeer"]) if data["seedPeer"] else None,
    )


def _ledger_from(data: dict[str, Any]) -> Ledger:
    return Ledger(
        book=LeaseBook.from_json(data),
        version=data["version"],
        fingerprint=data["fingerprint"],
        num_sequences=data["numSequences"],
    )


def _manifest_from(data: dict[str, Any]) -> Manifest:
    return Manifest.from_proto(json_format.ParseDict(data, sync_pb2.Manifest()))
