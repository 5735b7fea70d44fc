"""One peer's training: memory against the formula, backward with few experts, step against OLMoE.

    OMP_NUM_THREADS=1 python tests/bench/peer.py [--repeats 7]

Memory: a process of its own for each number of owned experts trains two steps; its VmHWM less what
it took before there was a model is held to 4|psi| + |Phi| + 3|Phi_i| float32 values (SPES, section
3.3: weight, gradient and two moments of what is trained, the weight alone of the rest).

Time: the sides take turns in one process, FP32 on one thread, in seconds of its CPU, which other
work on the machine disturbs less. A step is forward, loss, backward, clipping and AdamW; OLMoE of
transformers has the same shapes and tokens, with its experts computed in each of its ways.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

import numpy as np
import torch
import transformers

# Programs here find the modules beside them.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.raw_results import save
from spes_api.job import SpesJobSpec
from spes_api.model import ModelConfig, preset_config
from spes_trainer.assembly import build_stepper
from spes_trainer.compute import Compute
from spes_trainer.model.losses import training_loss
from spes_trainer.step import Stepper
from torch import Tensor, nn

FLOAT_BYTES = 4
SEQUENCE = 64
# At once, where time is taken.
SEQUENCES = 16
RATE = 1e-3
# 840 MB of state when all is trained; little text at once, so that it outweighs the activations.
LARGE = ModelConfig(
    width=256,
    num_layers=8,
    num_heads=4,
    expert_width=512,
    num_experts=16,
    num_experts_per_token=2,
    vocabulary=256,
)
WIDE = ModelConfig(
    width=512,
    num_layers=2,
    num_heads=8,
    expert_width=1024,
    num_experts=8,
    num_experts_per_token=2,
    vocabulary=256,
)
SHAPES = {"moe-tiny": preset_config("moe-tiny"), "d=512": WIDE}
# Where a quarter of the experts owned is held against all of them: moe-9b's proportions, and narrow
# experts in narrow layers, where most of the time goes elsewhere.
BACKWARD = {
    "moe-9b / 4": preset_config("moe-9b").model_copy(
        update={
            "width": 512,
            "num_layers": 2,
            "num_heads": 8,
            "num_kv_heads": 4,
            "expert_width": 1536,
            "vocabulary": 256,
        }
    ),
    "d=256": LARGE.model_copy(update={"num_layers": 4}),
}
# As transformers calls its ways of computing experts; the first is its default.
IMPLEMENTATIONS = ("grouped_mm", "eager")


def stepper_of(config: ModelConfig, *, sequences: int, owned: int) -> Stepper:
    """A peer's training of this shape that owns the first experts."""
    tokens = sequences * SEQUENCE
    spec = SpesJobSpec.model_validate(
        {
            "model": {"config": config.model_dump(by_alias=True, exclude_none=True)},
            "data": {"sources": [{"builtin": "python-stdlib"}], "sequenceTokens": SEQUENCE},
            "training": {
                "maxTokens": 1000 * tokens,
                "batchTokens": tokens,
                "microBatchTokens": tokens,
                "optimizer": {"learningRate": RATE},
                "schedule": {"warmupTokens": tokens},
                "precision": "FP32",
            },
            "sync": {"everySteps": 10},
        }
    )
    stepper = build_stepper(spec)
    stepper.model.own(range(owned))
    trained = {n: p for n, p in stepper.model.named_parameters() if p.requires_grad}
    stepper.optimizer.follow(trained, ramp=False)
    return stepper


def text(sequences: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (sequences, SEQUENCE), dtype=np.uint8)


# Memory.


def memory_of(config: ModelConfig, owned: int) -> int:
    """Peak bytes that training takes beyond what torch itself does; in a process of its own."""
    torch.set_num_threads(1)
    tiny = stepper_of(preset_config("moe-tiny"), sequences=2, owned=8)
    tiny.step(text(2), rate=RATE)  # what is loaded with the first step
    del tiny
    start = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    stepper = stepper_of(config, sequences=2, owned=owned)
    for _ in range(2):
        stepper.step(text(2), rate=RATE)
    return Compute.choose("FP32").memory_bytes() - start


def formula_bytes(config: ModelConfig, owned: int) -> int:
    sizes = config.sizes
    return FLOAT_BYTES * (4 * sizes.shared + sizes.all_experts + 3 * owned * sizes.one_expert)


def measure_memory() -> dict[str, object]:
    """Of all experts trained, a quarter, and none but the shared parameters."""
    found = {}
    for owned in (LARGE.num_experts, LARGE.num_experts // 4, 1):
        peak, formula = alone(memory_of, LARGE, owned), formula_bytes(LARGE, owned)
        found[str(owned)] = {"peak": peak, "formula": formula, "of_formula": peak / formula}
    return found


def alone(function: Callable[..., int], *arguments: object) -> int:
    """What a function returns in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


# Time.


def alternate(sides: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """CPU seconds of each side's runs, taking turns; the first is a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats + 1):
        for name, run in sides.items():
            start = time.process_time()
            run()
            seconds[name].append(time.process_time() - start)
    return {name: taken[1:] for name, taken in seconds.items()}


def measure_backward(config: ModelConfig, repeats: int) -> dict[str, object]:
    """CPU seconds of backward alone with a quarter of the experts owned, and with all."""
    tokens = torch.from_numpy(text(SEQUENCES).astype(np.int64))
    seconds: dict[str, list[float]] = {"quarter": [], "all": []}
    sides = {
        "quarter": stepper_of(config, sequences=SEQUENCES, owned=config.num_experts // 4),
        "all": stepper_of(config, sequences=SEQUENCES, owned=config.num_experts),
    }
    for repeat in range(repeats + 1):
        for name, stepper in sides.items():
            output = stepper.model(tokens)
            loss = training_loss(output, tokens, stepper.training.losses, num_micro_batches=1)
            start = time.process_time()
            loss.total.backward()
            taken = time.process_time() - start
            stepper.optimizer.forget_gradients()
            if repeat:
                seconds[name].append(taken)
    ratio = median(a / b for a, b in zip(seconds["quarter"], seconds["all"], strict=True))
    return {"seconds": seconds, "ratio": ratio}


def olmoe_of(config: ModelConfig, implementation: str) -> nn.Module:
    """OLMoE of transformers in this shape."""
    model = transformers.OlmoeForCausalLM(
        transformers.OlmoeConfig(
            vocab_size=config.vocabulary,
            hidden_size=config.width,
            intermediate_size=config.expert_width,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.kv_heads,
            num_experts=config.num_experts,
            num_experts_per_tok=config.num_experts_per_token,
            output_router_logits=True,  # its load-balancing loss, as ours
            pad_token_id=None,
            use_cache=False,
        )
    )
    model.set_experts_implementation(implementation)
    return model.float().train()


def olmoe_step(model: nn.Module, tokens: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), fused=True)

    def step() -> None:
        model(input_ids=tokens, labels=tokens).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def measure_steps(repeats: int) -> dict[str, object]:
    """CPU seconds of a whole step of each side, and ours over each of theirs."""
    found = {}
    batch = text(SEQUENCES)
    tokens = torch.from_numpy(batch.astype(np.int64))
    for shape, config in SHAPES.items():
        stepper = stepper_of(config, sequences=SEQUENCES, owned=config.num_experts)
        sides: dict[str, Callable[[], object]] = {
            "ours": lambda stepper=stepper: stepper.step(batch, rate=RATE)
        }
        for implementation in IMPLEMENTATIONS:
            model = olmoe_of(config, implementation)
            ours, theirs = config.sizes.total, sum(p.numel() for p in model.parameters())
            assert ours == theirs, f"not the same shape ({ours:,} and {theirs:,} parameters)"
            sides[implementation] = olmoe_step(model, tokens)
        seconds = alternate(sides, repeats)
        found[shape] = {
            "seconds": seconds,
            "of": {
                name: median(a / b for a, b in zip(seconds["ours"], seconds[name], strict=True))
                for name in IMPLEMENTATIONS
            },
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7, help="of each timed side")
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    result = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": 1,
        "memory": measure_memory(),
        "backward": {name: measure_backward(c, repeats) for name, c in BACKWARD.items()},
        "steps": measure_steps(repeats),
    }
    save("peer", result)


if __name__ == "__main__":
    main()
