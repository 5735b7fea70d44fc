"""Which rows of a tensor this process holds.

The processes of a peer share every tensor by rows, in the order of their ranks; a process that is
alone holds all. Everything that touches values rather than computes with them goes through here, so
that the rest does not care whether a tensor is sharded.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor


def held_rows(num_rows: int, rank: int, size: int) -> slice:
    """Equal blocks, the last ones shorter or empty: the layout of FSDP2."""
    block = -(-num_rows // size)
    return slice(min(rank * block, num_rows), min((rank + 1) * block, num_rows))


def local_rows(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor, sharing its memory; all of it if it is not sharded."""
    to_local = getattr(tensor, "to_local", None)
    return tensor if to_local is None else cast(Tensor, to_local())


@torch.no_grad()
def copy_rows(into: Tensor, whole: Tensor) -> None:
    """Copy those rows of a whole tensor that this process holds."""
    mesh: Any = getattr(into, "device_mesh", None)
    if mesh is None:
        into.copy_(whole)
    else:
        rows = held_rows(len(whole), mesh.get_local_rank(), mesh.size())
        local_rows(into).copy_(whole[rows])
