"""The expert-merging warm-up: each expert moves a little towards its most similar ones.

SPES (arXiv 2602.11543), section 3.3: an expert learns only from tokens that its owner sees; early
in training, drawing every expert towards similar ones shares what the others have learnt.

Called at a commit, over the weights of a version. Holds one stack at a time: the same matrix (w1,
v1 or w2) of all experts of one layer. Similarities come from a Gram matrix of w1, accumulated piece
by piece, so nothing of size M x M x (f*d) exists. Pure: tensors come and go through the arguments.

Dimension key: E experts, N weights of one matrix, C weights of one piece, K donors.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from spes_proto.v1 import sync_pb2

from spes_sync.errors import ProtocolError

Array = NDArray[np.float32]
Donors = NDArray[np.intp]

# The matrix whose direction says how alike two experts are.
SIMILARITY_MATRIX = "w1"
# Bytes of a piece of a stack, of all experts together: stays in a core's cache.
_PIECE_BYTES = 1 << 20
# Similarities are compared at this many decimals: equal experts then tie whatever the order in
# which a matrix product sums, and ties go to the lowest index.
_SIMILARITY_DECIMALS = 12

_EXPERT_TENSOR = re.compile(r"(?P<layer>.*)\.experts\.(?P<expert>\d+)\.(?P<matrix>\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStep:
    """One merge: how far each expert moves, and towards the mean of how many others."""

    alpha: float
    num_donors: int
    """More than the other experts of a layer means all of them."""


def alpha_at(position: int, *, alpha: float, warmup: int) -> float:
    """Return the step size at `position`: from alpha down to 0 at `warmup`, linearly.

    Args:
        position: Rounds or steps since the start.
        alpha: Step size at position 0.
        warmup: Where merging ends, in the unit of `position`; at least 1.
    """
    return alpha * (1.0 - min(position / warmup, 1.0))


def merge_experts(
    names: Iterable[str], read: Callable[[str], Array], step: MergeStep
) -> Iterator[tuple[str, Array]]:
    """Yield every expert's tensors after one merge, in the memory of one stack.

    All experts move at once: every right-hand side is the weight before the merge. Each matrix is
    merged with its own kind, whatever the order of `names`.

    Args:
        names: All tensors of a model; those that belong to no expert are passed over.
        read: Returns one tensor before the merge; called once for each expert tensor.
        step: How far, and towards how many.

    Yields:
        Names and values, layer by layer and matrix by matrix. A value is valid until the first of
        the next matrix is asked for, which is built in the same memory.

    Raises:
        ProtocolError: WRONG_SHAPE, the experts of a layer are not alike.
    """
    stack_EN = np.empty((0, 0), np.float32)
    for _, matrices in sorted(_by_layer(names).items()):
        donors_EK: Donors | None = None
        for matrix in sorted(matrices, key=lambda name: (name != SIMILARITY_MATRIX, name)):
            tensors = [name for _, name in sorted(matrices[matrix].items())]
            stack_EN, shape = _stack(tensors, read, stack_EN)
            if donors_EK is None:
                donors_EK = choose_donors(similarity(stack_EN), num_donors=step.num_donors)
            merge_stack(stack_EN, donors_EK, alpha=step.alpha)
            for name, value_N in zip(tensors, stack_EN, strict=True):
                yield name, value_N.reshape(shape)


def similarity(stack_EN: Array) -> NDArray[np.float64]:
    """Return the cosine between each two rows, (E, E); 0 where a row is zero."""
    gram_EE = np.zeros((len(stack_EN), len(stack_EN)))
    for piece_EC in _pieces(stack_EN):
        wide_EC = piece_EC.astype(np.float64)
        gram_EE += wide_EC @ wide_EC.T
    norm_E = np.sqrt(np.diagonal(gram_EE))
    inverse_E = np.divide(1.0, norm_E, out=np.zeros_like(norm_E), where=norm_E > 0)
    return gram_EE * inverse_E * inverse_E[:, None]


def choose_donors(similarity_EE: NDArray[np.float64], *, num_donors: int) -> Donors:
    """Return each expert's most similar others, best first, (E, K); ties: the lowest index."""
    num_experts = len(similarity_EE)
    rounded_EE = np.round(similarity_EE, _SIMILARITY_DECIMALS)
    np.fill_diagonal(rounded_EE, -np.inf)
    order_EE = np.argsort(-rounded_EE, axis=1, kind="stable")
    return order_EE[:, : min(num_donors, num_experts - 1)]


def merge_stack(stack_EN: Array, donors_EK: Donors, *, alpha: float) -> None:
    """Move each row by alpha times the mean difference of its donors to it, in place.

    Donors are summed in the order given, best first, so that relabelling the experts changes no
    bit. With alpha 0 or no donors no byte is touched.
    """
    num_donors = donors_EK.shape[1]
    if alpha == 0 or num_donors == 0:
        return
    scale = np.float32(alpha / num_donors)
    for piece_EC in _pieces(stack_EN):
        before_EC = piece_EC.copy()
        for row_C, own_C, donors_K in zip(piece_EC, before_EC, donors_EK, strict=True):
            move_C = before_EC[donors_K[0]] - own_C
            for donor in donors_K[1:]:
                move_C += before_EC[donor] - own_C
            move_C *= scale
            row_C += move_C


def _pieces(stack_EN: Array) -> Iterator[Array]:
    """Views of a stack, some columns at a time."""
    num_experts, num_weights = stack_EN.shape
    columns = max(1, _PIECE_BYTES // (stack_EN.itemsize * num_experts))
    for start in range(0, num_weights, columns):
        yield stack_EN[:, start : start + columns]


def _by_layer(names: Iterable[str]) -> Mapping[str, Mapping[str, Mapping[int, str]]]:
    """Layer -> matrix -> expert -> tensor name."""
    layers: dict[str, dict[str, dict[int, str]]] = defaultdict(lambda: defaultdict(dict))
    for name in names:
        if found := _EXPERT_TENSOR.fullmatch(name):
            layers[found["layer"]][found["matrix"]][int(found["expert"])] = name
    for layer, matrices in layers.items():
        if SIMILARITY_MATRIX not in matrices or len(set(map(frozenset, matrices.values()))) != 1:
            raise _wrong(f"{layer}: every expert needs the same matrices, one of them w1")
    return layers


def _stack(
    names: list[str], read: Callable[[str], Array], memory_EN: Array
) -> tuple[Array, tuple[int, ...]]:
    """The tensors as rows of one array, `memory_EN` where it fits, and the shape that each has."""
    first = read(names[0])
    if memory_EN.shape != (len(names), first.size):
        memory_EN = np.empty((len(names), first.size), np.float32)
    memory_EN[0] = first.reshape(-1)
    for row_N, name in zip(memory_EN[1:], names[1:], strict=True):
        value = read(name)
        if value.shape != first.shape:
            raise _wrong(f"{name} (got shape {list(value.shape)}, expected {list(first.shape)})")
        row_N[:] = value.reshape(-1)
    return memory_EN, first.shape


def _wrong(detail: str) -> ProtocolError:
    return ProtocolError(sync_pb2.WRONG_SHAPE, detail)
