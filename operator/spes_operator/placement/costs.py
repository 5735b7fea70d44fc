"""What a job takes: memory and disk of each peer, bytes of each round and of a hurried push. Pure.

The accounting is the paper's (SPES, arXiv 2602.11543, section 3.3): a peer trains the shared
parameters and its own experts, so only these go up; down come the shared parameters and the experts
of others, these as their owners coded them. Where every peer trains everything (FedAvg, DiLoCo),
all of it goes up and down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from spes_api.elasticity import UplinkName
from spes_api.job import SpesJobSpec
from spes_api.model import ModelSizes

from spes_operator.placement.capacity import USABLE_TENTHS, state_bytes

# Of one value on the wire. INT8 has a float32 scale for every 4,096 values, UINT8 and INT16 two
# float32 for every 262,144; that the last ones of a tensor may be fewer is left out of account, and
# so is what an entropy coder saves: that is known only from what was sent.
WIRE_BYTES: dict[UplinkName, Fraction] = {
    "FP32": Fraction(4),
    "BF16": Fraction(2),
    "INT8": 1 + Fraction(4, 4096),
    "UINT8": 1 + Fraction(8, 262_144),
    "INT16": 2 + Fraction(8, 262_144),
    "UINT8Paper": 1 + Fraction(8, 262_144),
    "INT16Paper": 2 + Fraction(8, 262_144),
    "Auto": Fraction(4),  # at most; it hangs on each peer's link
}
# The paper prints megabytes divided by 1024 as gigabytes: 9.8 and 28.6 where the true ones are 10.0
# and 29.3.
PAPER_GB = 1_024_000_000
GB = 1_000_000_000
# A weight, FP32.
_WEIGHT_BYTES = 4
# In host memory, for each trained parameter: the base that both sides hold, and the live weight put
# aside while the served model is evaluated. A push, a pull and what a push owes lie on disk.
_HOST_BYTES = 2 * _WEIGHT_BYTES
# In a checkpoint, beside each trained weight: the two moments, FP32.
_MOMENT_BYTES = 8
# Of the residual: what was owed before the push that is undecided, and what is owed if it counts.
_RESIDUALS = 2
_LOGIT_BYTES = 12  # logits, their softmax and their gradient, FP32
_ACTIVATION_BYTES = {"FP32": 4, "BF16": 2}


def estimated_activation_bytes(spec: SpesJobSpec) -> int:
    """Peak of activations and workspace in one micro-batch, counted from the layers' outputs.

    An estimate for planning until a peer has measured its own: attention is taken to be fused (no
    score matrix). With activation checkpointing each layer keeps its input, FP32, and one layer at
    a time is computed again.
    """
    model = spec.model.resolve()
    width, chosen = model.width, model.num_experts_per_token
    queries, keys = model.num_heads * model.head_size, model.kv_heads * model.head_size
    attention = (
        3 * width + 3 * queries + 4 * keys
    )  # norm, residual, output; q, k, v before and after
    experts = 3 * width + chosen * (2 * width + 3 * model.expert_width)
    layer = (attention + experts) * _ACTIVATION_BYTES[spec.training.precision]
    layers = model.num_layers * layer
    if spec.trainer.activation_checkpointing:
        layers = min(layers, model.num_layers * width * _WEIGHT_BYTES + layer)
    return spec.training.micro_tokens * (layers + model.vocabulary * _LOGIT_BYTES)


class _Wire(NamedTuple):
    """Bytes of a value in each direction."""

    up: Fraction
    down: Fraction

    @classmethod
    def of(cls, spec: SpesJobSpec) -> _Wire:
        codecs = spec.sync.compression
        return cls(WIRE_BYTES[codecs.uplink], WIRE_BYTES[codecs.downlink])


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCosts:
    """Costs of one peer that owns `num_experts` experts."""

    num_experts: int
    state_bytes: int
    """On the device: weights, gradients, moments."""
    activation_bytes: int
    host_bytes: int
    """Besides: bases and what is put aside."""
    disk_bytes: int
    """At most, without prepared data: checkpoints, a push, a pull, and what a push may owe."""
    shared_bytes: int
    """What all peers train, going up."""
    own_bytes: int
    """Its experts, going up."""
    last_own_bytes: int
    """Its experts in a last push before leaving: FP32, for nobody else can pay what it owes."""
    down_bytes: int
    merge_bytes: int
    """What more comes down where experts were merged: all of them, in the downlink's codec."""

    @property
    def device_bytes(self) -> int:
        """Device memory it needs; a tenth is left to the context and to fragmentation."""
        return ceil((self.state_bytes + self.activation_bytes) * 10 / USABLE_TENTHS)

    @property
    def up_bytes(self) -> int:
        """Shared parameters and its experts."""
        return self.shared_bytes + self.own_bytes

    @property
    def last_bytes(self) -> int:
        """Both, in a last push."""
        return self.shared_bytes + self.last_own_bytes


def peer_costs(spec: SpesJobSpec, *, num_experts: int, activation_bytes: int) -> PeerCosts:
    """What a peer with this many experts needs and sends."""
    sizes, replicated = spec.model.resolve().sizes, spec.algorithm.replicated
    shared = sizes.total if replicated else sizes.shared
    own = 0 if replicated else num_experts * sizes.one_expert
    others, wire = sizes.total - shared - own, _Wire.of(spec)
    return PeerCosts(
        num_experts=num_experts,
        state_bytes=state_bytes(sizes, num_owned=num_experts, precision=spec.training.precision),
        activation_bytes=activation_bytes,
        host_bytes=(shared + own) * _HOST_BYTES,
        disk_bytes=_disk_bytes(spec, trained=shared + own),
        shared_bytes=ceil(shared * wire.up),
        own_bytes=ceil(own * wire.up),
        last_own_bytes=own * _WEIGHT_BYTES,
        down_bytes=ceil(shared * wire.down + others * wire.up),
        merge_bytes=ceil((own + others) * wire.down - others * wire.up),
    )


def _disk_bytes(spec: SpesJobSpec, *, trained: int) -> int:
    """What a peer's directory comes to hold.

    A checkpoint is complete before an old one goes. The largest push is the first model or the last
    of a peer that leaves, the largest pull that of a peer that joins: FP32 whatever the codec.
    """
    model = spec.model.resolve().sizes.total * _WEIGHT_BYTES
    num_checkpoints = spec.checkpoint.keep_last + spec.checkpoint.keep_best + 1
    checkpoints = num_checkpoints * (model + trained * _MOMENT_BYTES)
    lossy = spec.sync.compression.uplink != "FP32"
    owed = _RESIDUALS * trained * _WEIGHT_BYTES if lossy else 0
    return checkpoints + 2 * model + owed


def peer_shares(spec: SpesJobSpec) -> tuple[int, ...]:
    """Experts that each of members.max equal peers trains."""
    num_experts, num_peers = spec.model.resolve().num_experts, spec.members.max
    if spec.algorithm.replicated:
        return (num_experts,) * num_peers
    return equal_shares(num_experts, num_peers)


def equal_shares(num_experts: int, num_peers: int) -> tuple[int, ...]:
    """Experts of each peer if all have the same memory and speed; the first ones get the rest."""
    each, rest = divmod(num_experts, num_peers)
    return tuple(each + (index < rest) for index in range(num_peers))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCosts:
    """What a round of all peers costs, and how many there are."""

    full_bytes: int
    """The whole model in FP32: what each peer would send if everyone trained everything."""
    up_bytes: int
    down_bytes: int
    num_rounds: int | None
    """None: rounds end by time, so their number depends on the peers' speed."""
    num_merges: int
    """Rounds in which experts are merged; 0 also where their number is not known."""
    merge_bytes: int
    """What such a round sends down besides; below 0 if the downlink's codec is the smaller one."""

    @property
    def total_bytes(self) -> int | None:
        """Both directions, all rounds."""
        if self.num_rounds is None:
            return None
        plain = self.num_rounds * (self.up_bytes + self.down_bytes)
        return plain + self.num_merges * self.merge_bytes


def round_costs(spec: SpesJobSpec, peers: Sequence[PeerCosts]) -> RoundCosts:
    """Sums over the peers of a job."""
    steps = spec.sync.every_steps
    tokens = steps and steps * spec.training.batch_tokens * len(peers)
    sizes: ModelSizes = spec.model.resolve().sizes
    num_rounds = None
    if tokens and not spec.sync.every_seconds:
        num_rounds = ceil(spec.training.max_tokens / tokens)
    return RoundCosts(
        full_bytes=sizes.total * _WEIGHT_BYTES,
        up_bytes=sum(peer.up_bytes for peer in peers),
        down_bytes=sum(peer.down_bytes for peer in peers),
        num_rounds=num_rounds,
        num_merges=_merges(spec, num_rounds or 0),
        merge_bytes=sum(peer.merge_bytes for peer in peers) if spec.algorithm.merge else 0,
    )


def _merges(spec: SpesJobSpec, num_rounds: int) -> int:
    merge = spec.algorithm.merge
    return min(num_rounds, merge.warmup_rounds - 1) // merge.every_rounds if merge else 0
