"""Which of our tensors is which of OLMoE's and Qwen3-MoE's; both spell all names alike.

The two differ only in the shape of the QK-norm: over the whole projected vector (OLMoE) or over
each head (Qwen3-MoE). Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spes_api.model import ModelConfig

from spes_sync.errors import ExportError

_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
_EXPERT = {"w1": "gate_proj", "v1": "up_proj", "w2": "down_proj"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One tensor under both names."""

    ours: str
    theirs: str
    shape: tuple[int, ...]
    """Ours."""
    transposed: bool = False
    """Theirs is the transpose of ours."""

    @property
    def their_shape(self) -> tuple[int, ...]:
        """The shape in the Hugging Face file."""
        return self.shape[::-1] if self.transposed else self.shape


def tensor_rows(config: ModelConfig) -> tuple[Row, ...]:
    """Every tensor of the model, sorted by our name."""
    return tuple(sorted(_rows(config), key=lambda row: row.ours))


def check_shapes(
    got: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]], where: str
) -> None:
    """Refuse a set of tensors that is not exactly the expected one.

    Raises:
        ExportError: names the first tensor that is missing, unknown or of another shape.
    """
    for name in sorted(expected.keys() | got.keys()):
        if got.get(name) != expected.get(name):
            raise ExportError(
                f"{where}: {name} (got {_shape_text(got.get(name))}, expected "
                f"{_shape_text(expected.get(name))}); the weights are not of the configured shape"
            )


def _rows(config: ModelConfig) -> Iterator[Row]:
    vocabulary = (config.vocabulary, config.width)
    yield Row(ours="embedding.weight", theirs="model.embed_tokens.weight", shape=vocabulary)
    yield Row(ours="norm.weight", theirs="model.norm.weight", shape=(config.width,))
    yield Row(ours="head.weight", theirs="lm_head.weight", shape=vocabulary)
    for layer in range(config.num_layers):
        yield from _attention_rows(config, f"layers.{layer}", f"model.layers.{layer}")
        yield from _expert_rows(config, f"layers.{layer}", f"model.layers.{layer}")


def _attention_rows(config: ModelConfig, ours: str, theirs: str) -> Iterator[Row]:
    query, kv = config.num_heads * config.head_size, config.kv_heads * config.head_size
    whole = config.qk_norm == "Whole"
    yield Row(
        ours=f"{ours}.attention_norm.weight",
        theirs=f"{theirs}.input_layernorm.weight",
        shape=(config.width,),
    )
    for name, size in (("query", query), ("key", kv), ("value", kv), ("output", query)):
        yield Row(
            ours=f"{ours}.attention.{name}.weight",
            theirs=f"{theirs}.self_attn.{_ATTENTION[name]}.weight",
            shape=(config.width, size) if name == "output" else (size, config.width),
        )
    for name, size in (("query", query), ("key", kv)):
        yield Row(
            ours=f"{ours}.attention.{name}_norm.weight",
            theirs=f"{theirs}.self_attn.{name[0]}_norm.weight",
            shape=(size if whole else config.head_size,),
        )


def _expert_rows(config: ModelConfig, ours: str, theirs: str) -> Iterator[Row]:
    yield Row(
        ours=f"{ours}.expert_norm.weight",
        theirs=f"{theirs}.post_attention_layernorm.weight",
        shape=(config.width,),
    )
    yield Row(
        ours=f"{ours}.router.weight",
        theirs=f"{theirs}.mlp.gate.weight",
        shape=(config.num_experts, config.width),
    )
    for expert in range(config.num_experts):
        for name, their_name in _EXPERT.items():
            yield Row(
                ours=f"{ours}.experts.{expert}.{name}",
                theirs=f"{theirs}.mlp.experts.{expert}.{their_name}.weight",
                shape=(config.expert_width, config.width),
                transposed=name == "w2",
            )


def _shape_text(shape: tuple[int, ...] | None) -> str:
    return "no such tensor" if shape is None else f"shape {list(shape)}"
