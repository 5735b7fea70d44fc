"""The FLOPs of MFU against torch's own counter, which imports a compiler: ten seconds."""

from __future__ import annotations

from builders.nano import NANO, nano_stepper, nano_tokens
from builders.training_steps import outcome
from spes_trainer.metrics.flops import step_flops
from torch.utils.flop_counter import FlopCounterMode


def test_a_step_is_what_torch_counts():
    """Of attention three times its forward pass: going back, torch computes the scores again."""
    stepper = nano_stepper()
    with FlopCounterMode(display=False) as counter:
        stepper.step(nano_tokens(), rate=0.01)
    counted = {str(name): count for name, count in counter.get_flop_counts()["Global"].items()}
    attention = counted["aten._scaled_dot_product_flash_attention_for_cpu"]
    assert counted["aten.mm"] + 3 * attention == step_flops(NANO, outcome(), sequence_tokens=16)
