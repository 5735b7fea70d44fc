"""Which of our tensors is which of a published layout's. Pure.

The layout follows from the QK-norm, and from whether there are several experts a layer:

    qkNorm    one expert   several
    Whole     OLMoE        OLMoE
    PerHead   Qwen3        Qwen3-MoE
    None      Llama        Mixtral

A dense layout (Qwen3, Llama) has no router: that of a single expert cannot change anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from spes_api.model import ModelConfig

from spes_sync.errors import ExportError

Layout = Literal["OLMoE", "Qwen3", "Qwen3-MoE", "Llama", "Mixtral"]

_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
_OURS = ("w1", "v1", "w2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One tensor under both names."""

    ours: str
    theirs: str | None
    """None: the layout has no place for it, since it cannot change a logit."""
    shape: tuple[int, ...]
    """Ours."""
    transposed: bool = False
    """Theirs is the transpose of ours."""

    @property
    def their_shape(self) -> tuple[int, ...]:
        """The shape in the Hugging Face file."""
        return self.shape[::-1] if self.transposed else self.shape


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """How a layout spells a layer's feed-forward part."""

    router: str | None
    expert: str
    matrices: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")


_MOE = _Names(router="mlp.gate.weight", expert="mlp.experts.{}")
_DENSE = _Names(router=None, expert="mlp")
_NAMES: Mapping[Layout, _Names] = MappingProxyType(
    {
        "OLMoE": _MOE,
        "Qwen3": _DENSE,
        "Qwen3-MoE": _MOE,
        "Llama": _DENSE,
        "Mixtral": _Names(
            router="block_sparse_moe.gate.weight",
            expert="block_sparse_moe.experts.{}",
            matrices=("w1", "w3", "w2"),
        ),
    }
)


def layout_of(config: ModelConfig) -> Layout:
    """The layout in which this model computes the same."""
    dense = config.num_experts == 1
    match config.qk_norm:
        case "Whole":
            return "OLMoE"
        case "PerHead":
            return "Qwen3" if dense else "Qwen3-MoE"
        case "None":
            return "Llama" if dense else "Mixtral"


def tensor_rows(config: ModelConfig, layout: Layout) -> tuple[Row, ...]:
    """Every tensor of the model, sorted by our name."""
    return tuple(sorted(_rows(config, _NAMES[layout]), key=lambda row: row.ours))


def our_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of the model, in order of our names, which no layout changes."""
    return {row.ours: row.shape for row in tensor_rows(config, "OLMoE")}


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


def _rows(config: ModelConfig, names: _Names) -> Iterator[Row]:
    vocabulary = (config.vocabulary, config.width)
    yield Row(ours="embedding.weight", theirs="model.embed_tokens.weight", shape=vocabulary)
    yield Row(ours="norm.weight", theirs="model.norm.weight", shape=(config.width,))
    yield Row(ours="head.weight", theirs="lm_head.weight", shape=vocabulary)
    for layer in range(config.num_layers):
        ours, theirs = f"layers.{layer}", f"model.layers.{layer}"
        yield from _attention_rows(config, ours, theirs)
        yield from _router_rows(config, ours, theirs, names)
        yield from _expert_rows(config, ours, theirs, names)


def _attention_rows(config: ModelConfig, ours: str, theirs: str) -> Iterator[Row]:
    query, kv = config.num_heads * config.head_size, config.kv_heads * config.head_size
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
    if config.qk_norm == "None":
        return
    for name, size in (("query", query), ("key", kv)):
        yield Row(
            ours=f"{ours}.attention.{name}_norm.weight",
            theirs=f"{theirs}.self_attn.{name[0]}_norm.weight",
            shape=(size if config.qk_norm == "Whole" else config.head_size,),
        )


def _router_rows(config: ModelConfig, ours: str, theirs: str, names: _Names) -> Iterator[Row]:
    yield Row(
        ours=f"{ours}.expert_norm.weight",
        theirs=f"{theirs}.post_attention_layernorm.weight",
        shape=(config.width,),
    )
    yield Row(
        ours=f"{ours}.router.weight",
        theirs=names.router and f"{theirs}.{names.router}",
        shape=(config.num_experts, config.width),
    )


def _expert_rows(config: ModelConfig, ours: str, theirs: str, names: _Names) -> Iterator[Row]:
    for expert in range(config.num_experts):
        folder = f"{theirs}.{names.expert.format(expert)}"
        for name, their_name in zip(_OURS, names.matrices, strict=True):
            yield Row(
                ours=f"{ours}.experts.{expert}.{name}",
                theirs=f"{folder}.{their_name}.weight",
                shape=(config.expert_width, config.width),
                transposed=name == "w2",
            )


def _shape_text(shape: tuple[int, ...] | None) -> str:
    return "no such tensor" if shape is None else f"shape {list(shape)}"
