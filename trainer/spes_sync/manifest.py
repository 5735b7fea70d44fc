"""The manifest: which tensors a model has, in the one order that both sides use.

Everything that crosses the wire is checked against it before memory is allocated. The file does
no I/O.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from spes_proto.v1 import sync_pb2

from spes_sync.errors import ProtocolError

# Limits on what a stranger may announce. The largest open models have about 10^5 tensors.
MAX_TENSORS = 1 << 20
MAX_MODEL_BYTES = 1 << 43  # 8 TiB, two trillion parameters
MAX_NAME_CHARS = 256
MAX_DIMS = 8
MAX_EXPERTS = 1 << 16

# The expert index of tensors that every peer trains.
SHARED = -1

_BYTES_PER_ELEMENT = 4  # float32
_NAME = re.compile(r"[A-Za-z0-9_.\-]+")
_EXPERT = re.compile(r"(?:^|\.)experts\.(\d+)\.")


def expert_of(name: str) -> int:
    """The expert that a parameter name belongs to, `layers.3.experts.5.w1` -> 5; else SHARED."""
    found = _EXPERT.search(name)
    return int(found[1]) if found else SHARED


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One float32 tensor: its name, shape, and the expert it belongs to (SHARED: none)."""

    name: str
    shape: tuple[int, ...]
    expert: int = SHARED

    def __post_init__(self) -> None:
        """Refuse what no real model has."""
        if len(self.name) > MAX_NAME_CHARS or not _NAME.fullmatch(self.name):
            raise _wrong(
                f"tensor name {self.name[:MAX_NAME_CHARS]!r} (expected letters, digits, . _ -)"
            )
        if len(self.shape) > MAX_DIMS or any(size < 1 for size in self.shape):
            raise _wrong(
                f"shape of {self.name} (got {list(self.shape[:MAX_DIMS])}, "
                f"expected at most {MAX_DIMS} positive sizes)"
            )
        if not SHARED <= self.expert < MAX_EXPERTS:
            raise _wrong(
                f"expert of {self.name} (got {self.expert}, expected -1 to {MAX_EXPERTS - 1})"
            )
        if self.num_bytes > MAX_MODEL_BYTES:
            raise _wrong(
                f"{self.name} takes {self.num_bytes:,} bytes (at most {MAX_MODEL_BYTES:,})"
            )

    @property
    def num_elements(self) -> int:
        """How many values it has."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Its size as float32, on the wire and on disk."""
        return self.num_elements * _BYTES_PER_ELEMENT

    def to_proto(self) -> sync_pb2.Tensor:
        """The wire form."""
        return sync_pb2.Tensor(name=self.name, shape=self.shape, expert=self.expert)

    @classmethod
    def from_proto(cls, tensor: sync_pb2.Tensor) -> TensorSpec:
        """Read and check the wire form."""
        return cls(name=tensor.name, shape=tuple(tensor.shape), expert=tensor.expert)


@dataclass(frozen=True, slots=True)
class Manifest:
    """All tensors of a model, sorted by name."""

    tensors: tuple[TensorSpec, ...]
    sha256: str = field(init=False)
    num_bytes: int = field(init=False)
    _by_name: dict[str, TensorSpec] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Sort, index, hash."""
        ordered = tuple(sorted(self.tensors, key=lambda tensor: tensor.name))
        by_name = {tensor.name: tensor for tensor in ordered}
        if not ordered or len(ordered) > MAX_TENSORS:
            raise _wrong(f"number of tensors (got {len(ordered)}, expected 1 to {MAX_TENSORS})")
        if len(by_name) != len(ordered):
            raise _wrong("a tensor name occurs twice")
        num_bytes = sum(tensor.num_bytes for tensor in ordered)
        if num_bytes > MAX_MODEL_BYTES:
            raise _wrong(f"the model takes {num_bytes:,} bytes (at most {MAX_MODEL_BYTES:,})")
        object.__setattr__(self, "tensors", ordered)
        object.__setattr__(self, "num_bytes", num_bytes)
        object.__setattr__(self, "sha256", _listing_sha256(ordered))
        object.__setattr__(self, "_by_name", by_name)

    def __getitem__(self, name: str) -> TensorSpec:
        """The tensor of that name; KeyError if the model has none."""
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        """Whether the model has a tensor of that name."""
        return name in self._by_name

    def __iter__(self) -> Iterator[TensorSpec]:
        """The tensors by name."""
        return iter(self.tensors)

    def __len__(self) -> int:
        """How many tensors."""
        return len(self.tensors)

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in order."""
        return tuple(self._by_name)

    @property
    def experts(self) -> tuple[int, ...]:
        """All expert indices, ascending."""
        return tuple(sorted({t.expert for t in self.tensors} - {SHARED}))

    def shared(self) -> tuple[TensorSpec, ...]:
        """The tensors that every peer trains."""
        return self.of_expert(SHARED)

    def of_expert(self, expert: int) -> tuple[TensorSpec, ...]:
        """The tensors of one expert, in all layers."""
        return tuple(tensor for tensor in self.tensors if tensor.expert == expert)

    def trained_by(self, experts: Iterable[int]) -> tuple[TensorSpec, ...]:
        """The tensors that the owner of `experts` pushes: those and the shared ones, by name."""
        wanted = {SHARED, *experts}
        return tuple(tensor for tensor in self.tensors if tensor.expert in wanted)

    def part(self, part: sync_pb2.Part, experts: Iterable[int]) -> tuple[TensorSpec, ...]:
        """The tensors of a part of what the owner of `experts` pushes, by name."""
        trained = self.trained_by(experts)
        if part == sync_pb2.ALL:
            return trained
        return tuple(t for t in trained if (t.expert == SHARED) == (part == sync_pb2.SHARED))

    def moments_of(self, expert: int) -> Manifest:
        """The AdamW moments of an expert, as its last owner hands them over.

        Per tensor `exp_avg.NAME` and `exp_avg_sq.NAME` of its shape, and `step.NAME` of shape (1,).
        """
        moments: list[TensorSpec] = []
        for tensor in self.of_expert(expert):
            for name, shape in (
                (f"exp_avg.{tensor.name}", tensor.shape),
                (f"exp_avg_sq.{tensor.name}", tensor.shape),
                (f"step.{tensor.name}", (1,)),
            ):
                moments.append(TensorSpec(name=name, shape=shape, expert=expert))
        return Manifest(tuple(moments))

    def to_proto(self) -> sync_pb2.Manifest:
        """The wire form."""
        return sync_pb2.Manifest(tensors=[t.to_proto() for t in self.tensors], sha256=self.sha256)

    @classmethod
    def from_proto(cls, manifest: sync_pb2.Manifest) -> Manifest:
        """Read and check the wire form.

        Raises:
            ProtocolError: a name, shape or size is out of bounds, the order is not by name, or
                the hash is not that of the tensors.
        """
        if len(manifest.tensors) > MAX_TENSORS:
            raise _wrong(f"number of tensors (got {len(manifest.tensors)}, at most {MAX_TENSORS})")
        given = tuple(TensorSpec.from_proto(tensor) for tensor in manifest.tensors)
        checked = cls(given)
        if checked.tensors != given:
            raise _wrong("tensors are not sorted by name")
        if checked.sha256 != manifest.sha256:
            raise _wrong(f"manifest hash (got {manifest.sha256[:64]!r}, expected {checked.sha256})")
        return checked

    def select(self, tensors: Iterable[sync_pb2.Tensor]) -> tuple[TensorSpec, ...]:
        """Check a header's tensor list against this manifest: known, equal, by name, none twice.

        Raises:
            ProtocolError: WRONG_SHAPE, naming the first tensor that differs.
        """
        selected: list[TensorSpec] = []
        for tensor in tensors:
            known = self._by_name.get(tensor.name)
            if known is None:
                raise _wrong(f"unknown tensor {tensor.name[:MAX_NAME_CHARS]!r}")
            if (tuple(tensor.shape), tensor.expert) != (known.shape, known.expert):
                got = f"shape {list(tensor.shape[:MAX_DIMS])} expert {tensor.expert}"
                expected = f"shape {list(known.shape)} expert {known.expert}"
                raise _wrong(f"{known.name} (got {got}, expected {expected})")
            if selected and selected[-1].name >= known.name:
                raise _wrong(f"{known.name} is not in name order or occurs twice")
            selected.append(known)
        return tuple(selected)


def _listing_sha256(tensors: Iterable[TensorSpec]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        sizes = "x".join(map(str, tensor.shape))
        digest.update(f"{tensor.name} {sizes} {tensor.expert}\n".encode())
    return digest.hexdigest()


def _wrong(detail: str) -> ProtocolError:
    return ProtocolError(sync_pb2.WRONG_SHAPE, detail)
