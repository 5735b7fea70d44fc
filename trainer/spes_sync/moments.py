"""Optimizer moments that a leaving owner hands over, one safetensors file per expert.

They wait in `moments/` until the first push of a new owner (or of a new process of the old one)
counts: until then a new owner may still fail and another need them. Losing them costs a ramp.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from spes_sync.disk import Disk
from spes_sync.manifest import Manifest, TensorSpec
from spes_sync.tensorfile import TensorReader, TensorWriter, source_of


class Moments:
    """The `moments/` directory."""

    def __init__(self, root: Path, disk: Disk) -> None:
        """Look at a volume's directory."""
        self._directory = root / "moments"
        self._disk = disk

    def keep(self, payload: Path, manifest: Manifest, expert: int, session: str) -> None:
        """Store a verified payload of an expert's moments, from this session.

        Raises:
            DiskFullError: no space left.
        """
        self._directory.mkdir(exist_ok=True)
        new = self._directory / f".{expert}.new"
        tensors = manifest.moments_of(expert).tensors
        with (
            TensorReader.of_payload(payload, tensors) as reader,
            TensorWriter(new, tensors, self._disk, source=session) as writer,
        ):
            for data in reader.buffers(tensors):
                writer.write(data)
            writer.close("moments-written")
        new.replace(self._path(expert))
        self._disk.sync_directory(self._directory)
        self._disk.reached("moments")

    def held(self, manifest: Manifest, experts: Iterable[int]) -> tuple[TensorSpec, ...]:
        """The tensors kept for these experts, by name."""
        kept = [e for e in sorted(set(experts)) if self._path(e).exists()]
        tensors = [tensor for e in kept for tensor in manifest.moments_of(e)]
        return tuple(sorted(tensors, key=lambda tensor: tensor.name))

    def buffers(self, manifest: Manifest, tensors: tuple[TensorSpec, ...]) -> Iterator[memoryview]:
        """The bytes of kept tensors, in this order."""
        for tensor in tensors:
            path = self._path(tensor.expert)
            every = manifest.moments_of(tensor.expert).tensors
            with TensorReader.of_safetensors(path, every, source=source_of(path)) as reader:
                yield from reader.buffers([tensor])

    def release(self, experts: Iterable[int], session: str) -> None:
        """Remove those that another process than their giver has now trained into a version."""
        for expert in experts:
            path = self._path(expert)
            if path.exists() and source_of(path) != session:
                path.unlink()

    def clear(self) -> None:
        """Remove all: the job begins anew."""
        for path in self._directory.glob("*"):
            path.unlink()

    def _path(self, expert: int) -> Path:
        return self._directory / f"{expert}.safetensors"
