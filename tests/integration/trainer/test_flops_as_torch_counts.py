"""The FLOPs of MFU against torch's own counter, which imports a compiler: ten seconds."""

from __future__ import annotations

from builders.nano import NANO, nano_stepper, nano_tokens
from builders.training_steps import outcome
from spes_trainer.metrics.flops import step_flops
from torch.utils.flop_counter import FlopCounterMode

EXPERT_WEIGHTS = 3 * 32 * 32


def test_all_but_the_experts_is_what_torch_counts():
    """It knows no grouped products, and a backward pass of attention that computes scores again."""
    stepper = nano_stepper()
    with FlopCounterMode(display=False) as counter:
        stepper.step(nano_tokens(), rate=0.01)
    counted = {str(name): count for name, count in counter.get_flop_counts()["Global"].items()}
    attention = counted["aten._scaled_dot_product_flash_attention_for_cpu"]
    shared = step_flops(NANO, outcome(), sequence_tokens=16) - 6 * 128 * EXPERT_WEIGHTS
    assert counted["aten.mm"] + 3 * attention == shared
