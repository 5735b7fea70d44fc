"""FSDP2 over the ranks of a peer.

One unit per block, its experts in the same unit as attention: such a unit always has parameters
that are trained, and FSDP2 reduces those alone, so frozen experts cost no gradient memory and no
traffic. Ownership stays `requires_grad`, changed in place between rounds: each gather of a unit
reads it anew. Each owned expert has a gradient on every rank, zeros where no token went, so all
ranks reduce the same tensors.
"""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from spes_trainer.compute import Compute
from spes_trainer.model.transformer import Transformer
from spes_trainer.ranks import Ranks


def shard(model: Transformer, ranks: Ranks, compute: Compute) -> None:
    """Cut every parameter into rows; gradients are summed over the ranks.

    Args:
        model: Its parameters may be on the meta device.
        ranks: All of them do this.
        compute: With bfloat16 the parameters are gathered in it and their gradients reduced in
            float32. What goes into a block keeps its type: the angles of positions need float32.
    """
    mesh = init_device_mesh(compute.device.type, (ranks.size,))
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if compute.bfloat16 else None,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    for module in (*model.layers, model):
        # The root too: after an evaluation its gathered weights would be taken for the live ones.
        unit = fully_shard(module, mesh=mesh, reshard_after_forward=True, mp_policy=policy)
        if isinstance(unit, FSDPModule):
            # The loss is divided by the tokens of all ranks; FSDP2 would average once more.
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(enable=True)  # gloo has no other
