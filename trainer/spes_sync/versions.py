"""Committed versions on disk: snapshot, delta, record; HEAD is the commit point.

    HEAD                   "000017"
    versions/000017/       model.safetensors   the served model S
                           delta.safetensors   what pullers add to the version before, as coded
                           residual.safetensors  what a lossy downlink still owes of the model
                           velocity.safetensors  of the outer optimizer, if the job has one
                           tensors.json        SHA-256 per tensor, of the model and of the delta
                           commit.json         who, weights, tokens, leases, hash of each file

A version counts from the moment HEAD names it; a directory above HEAD is the rest of a crash.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from spes_sync.disk import Disk
from spes_sync.dropped import Coding
from spes_sync.errors import VolumeError
from spes_sync.leases import Ranges, ranges_from
from spes_sync.plan import PeerId
from spes_sync.quantize import Codec
from spes_sync.tensorfile import file_sha256, tensors_sha256

logger = logging.getLogger(__name__)

# Deltas kept for peers that are a few versions behind; an older base gets the model in full.
KEPT_DELTAS = 4
# Snapshots kept whatever the checkpoint settings: the model and the one to fall back on.
KEPT_SNAPSHOTS = 2

MODEL, DELTA, RESIDUAL, VELOCITY, TENSORS, RECORD = (
    "model.safetensors",
    "delta.safetensors",
    "residual.safetensors",
    "velocity.safetensors",
    "tensors.json",
    "commit.json",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What one peer brought into a version."""

    peer: PeerId
    session: str
    """Which process of the peer; a name for its session key that opens nothing."""
    pushes: tuple[str, ...]
    """SHA-256 of each part's payload."""
    weight: float
    """Of its shared delta; 0 without one. They add up to 1, but with FedNova or a buffer."""
    experts: tuple[int, ...]
    """Those that counted."""
    steps: int
    tokens: int
    loss: float
    staleness: int = 0
    """Versions that its shared delta had missed."""
    codec: Codec = Codec.FP32
    """In which its experts came, and go down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """Tokens that reached an expert at its owner since `granted_epoch`."""

    granted_epoch: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """All about a version but its tensors; kept for every version."""

    version: int
    job_uid: str
    incarnation: int
    epoch: int
    global_tokens: int
    model_sha256: str
    files: Mapping[str, str]
    """Of each file of the version: the root over header and tensors of the model and the delta,
    whose tensors are hashed once; SHA-256 of the others."""
    contributions: tuple[Contribution, ...] = ()
    leases: Mapping[PeerId, Ranges] = field(default_factory=dict)
    """Positions of the data that are used up by this version."""
    worked: Mapping[PeerId, int] = field(default_factory=dict)
    """Tokens of each peer in all versions up to this one."""
    routed: Mapping[int, Routed] = field(default_factory=dict)
    """By expert."""
    downlink: Codec = Codec.FP32
    """Of shared tensors, and of the experts in `coded`."""
    coded: tuple[int, ...] = ()
    """Experts that do not go down as their owners encoded them."""
    merge_alpha: float = 0.0
    """How far the experts were merged; 0: not at all."""
    frame: Coding = field(default_factory=Coding)
    """Of the delta: all of its tensors' compression, the error of those that the server coded."""

    def to_json(self) -> dict[str, Any]:
        """The durable form."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CommitRecord:
        """Read the durable form."""
        contributions = tuple(
            Contribution(
                **{
                    **each,
                    "pushes": tuple(each["pushes"]),
                    "experts": tuple(each["experts"]),
                    "codec": Codec(each["codec"]),
                }
            )
            for each in data["contributions"]
        )
        leases = {PeerId(peer): ranges_from(used) for peer, used in data["leases"].items()}
        routed = {int(expert): Routed(**each) for expert, each in data["routed"].items()}
        return cls(
            **{
                **data,
                "contributions": contributions,
                "leases": leases,
                "routed": routed,
                "downlink": Codec(data["downlink"]),
                "coded": tuple(data["coded"]),
                "frame": Coding(**data["frame"]),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Which versions' files stay."""

    every_rounds: int
    keep_last: int

    def snapshots(self, head: int) -> frozenset[int]:
        """Versions whose model stays: the last two, and the last checkpoints."""
        newest = head - head % self.every_rounds
        checkpoints = range(newest, -1, -self.every_rounds)[: self.keep_last]
        return frozenset({*checkpoints, *range(head, head - KEPT_SNAPSHOTS, -1)})

    def deltas(self, head: int) -> frozenset[int]:
        """Versions whose delta stays."""
        return frozenset(range(head, head - KEPT_DELTAS, -1))


class Versions:
    """The `versions/` directory and HEAD."""

    def __init__(self, root: Path, disk: Disk) -> None:
        """Look at a volume's directory."""
        self._root = root
        self._disk = disk

    def path(self, version: int) -> Path:
        """The directory of a version."""
        return self._root / "versions" / f"{version:06d}"

    def create(self, version: int) -> Path:
        """An empty directory for a version that is about to be written."""
        path = self.path(version)
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def publish(
        self,
        record: CommitRecord,
        tensor_hashes: Mapping[str, str],
        frame_hashes: Mapping[str, str],
    ) -> None:
        """Serve a version whose tensor files are written; the commit point is HEAD."""
        path = self.path(record.version)
        hashes = {MODEL: dict(tensor_hashes), DELTA: dict(frame_hashes)}
        self._disk.write_json(path / TENSORS, hashes, "version-tensors")
        self._disk.write_json(path / RECORD, record.to_json(), "version-record")
        self._disk.sync_directory(path.parent)
        self._disk.reached("version-directory")
        self._disk.write(self._root / "HEAD", f"{record.version:06d}\n".encode(), "head")

    def record(self, version: int) -> CommitRecord | None:
        """What is known of a version; None if it was never committed."""
        try:
            return CommitRecord.from_json(json.loads((self.path(version) / RECORD).read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise VolumeError(f"{self.path(version) / RECORD} is damaged ({error})") from error

    def tensor_hashes(self, version: int) -> dict[str, str]:
        """SHA-256 per tensor of the model; {} once the version's files are gone."""
        return self._hashes(version, MODEL)

    def frame_hashes(self, version: int) -> dict[str, str]:
        """SHA-256 per tensor of the delta, as coded; {} once the version's files are gone."""
        return self._hashes(version, DELTA)

    def _hashes(self, version: int, file: str) -> dict[str, str]:
        path = self.path(version) / TENSORS
        try:
            hashes = json.loads(path.read_bytes())[file].items()
        except FileNotFoundError:
            return {}
        except (ValueError, AttributeError, LookupError, TypeError) as error:
            raise VolumeError(f"{path} is damaged ({error})") from error
        return {str(name): str(sha256) for name, sha256 in hashes}

    def head(self) -> int:
        """The version that HEAD names; -1 without one."""
        try:
            return int((self._root / "HEAD").read_text())
        except FileNotFoundError:
            return -1
        except ValueError as error:
            raise VolumeError(
                f"{self._root / 'HEAD'} is damaged ({error}); write the number of the version to "
                f"go on from into it, such as {max(self._all(), default=0):06d}"
            ) from error

    def fault(self, version: int, *, pruned: bool = False) -> str:
        """What is wrong with a version's files; empty if every byte is as it was written.

        Files that are missing are a fault, but for the delta and, if the version is `pruned`, all.
        """
        try:
            record = self.record(version)
            if record is None:
                return f"{self.path(version) / RECORD} is missing"
            self.tensor_hashes(version)
            for name, sha256 in record.files.items():
                file = self.path(version) / name
                gone = (pruned or name == DELTA) and not file.exists()
                hash_of = tensors_sha256 if name in (MODEL, DELTA) else file_sha256
                if not gone and hash_of(file) != sha256:
                    return f"{file} is damaged (its SHA-256 differs)"
        except (VolumeError, OSError) as error:
            return str(error)
        return ""

    def roll_back(self, version: int) -> None:
        """Let HEAD name an older version."""
        self._disk.write(self._root / "HEAD", f"{version:06d}\n".encode(), "head-rolled-back")

    def clean(self, retention: Retention) -> None:
        """Remove what retention does not keep; the next version may be in the making meanwhile."""
        head = self.head()
        snapshots, deltas = retention.snapshots(head), retention.deltas(head)
        for version in self._all():
            if version <= head and version not in snapshots:
                for name in (MODEL, RESIDUAL, VELOCITY):
                    (self.path(version) / name).unlink(missing_ok=True)
            if version <= head and version not in deltas:
                (self.path(version) / DELTA).unlink(missing_ok=True)
                (self.path(version) / TENSORS).unlink(missing_ok=True)

    def remove_unpublished(self) -> None:
        """Remove what a crash left above HEAD; only while nothing is being written."""
        head = self.head()
        for version in self._all():
            if version > head:
                shutil.rmtree(self.path(version))

    def older_than(self, version: int) -> list[int]:
        """Versions of which anything is left, newest first."""
        return [older for older in reversed(self._all()) if older < version]

    def _all(self) -> list[int]:
        return sorted(int(path.name) for path in (self._root / "versions").glob("[0-9]*"))

    def erase(self) -> None:
        """Remove every version: the job begins anew."""
        (self._root / "HEAD").unlink(missing_ok=True)
        shutil.rmtree(self._root / "versions", ignore_errors=True)
