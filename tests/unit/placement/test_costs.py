"""The accounting of the paper (SPES, arXiv 2602.11543), and the known parameter counts."""

from pathlib import Path

import pytest
from spes_api.job import SpesJobSpec
from spes_api.loading import load_job
from spes_api.model import preset_config
from spes_operator.placement.costs import (
    GB,
    PAPER_GB,
    equal_shares,
    estimated_activation_bytes,
    peer_costs,
    peer_shares,
    round_costs,
)

EXAMPLES = Path(__file__).parents[3] / "examples"


def spec_of(preset: str) -> SpesJobSpec:
    return load_job(EXAMPLES / f"{preset}.yaml").spec


def equal_peers(preset: str):
    spec = spec_of(preset)
    shares = equal_shares(spec.model.resolve().num_experts, spec.members.max)
    return [peer_costs(spec, num_experts=share, activation_bytes=0) for share in shares]


@pytest.mark.parametrize(
    ("preset", "shared", "all_experts", "total", "one_expert"),
    [
        ("moe-tiny", 199_808, 1_572_864, 1_772_672, 196_608),
        ("moe-1b", 261_454_080, 905_969_664, 1_167_423_744, 56_623_104),
        ("moe-7b", 890_836_992, 6_442_450_944, 7_333_287_936, 201_326_592),
        ("moe-9b", 975_234_048, 8_455_716_864, 9_430_950_912, 1_056_964_608),
    ],
)
def test_presets_have_their_exact_sizes(preset, shared, all_experts, total, one_expert):
    sizes = preset_config(preset).sizes
    assert (sizes.shared, sizes.all_experts, sizes.total) == (shared, all_experts, total)
    assert sizes.one_expert == one_expert


def test_the_inferred_2b_meets_what_the_paper_says_of_it():
    assert preset_config("moe-2b").sizes.total == 2_127_352_320
    (peer, *others) = equal_peers("moe-2b")
    assert len(others) == 15
    assert peer.up_bytes // 4 == 711_774_720
    saving = (1 - peer.up_bytes / 4 / 2_127_352_320) / 2  # the downlink is not less
    assert saving == pytest.approx(1 / 3, abs=0.001)


@pytest.mark.parametrize(
    ("preset", "trained", "part"),
    [
        ("moe-1b", 487_946_496, 0.41797),
        ("moe-7b", 2_501_449_728, 0.34111),
        ("moe-9b", 3_089_163_264, 0.32756),
    ],
)
def test_what_a_peer_trains_of_the_whole(preset, trained, part):
    peer = equal_peers(preset)[0]
    assert peer.up_bytes == trained * 4
    assert trained / preset_config(preset).sizes.total == pytest.approx(part, abs=5e-6)


def test_moe_7b_sends_what_the_paper_prints():
    peers = equal_peers("moe-7b")
    assert [peer.num_experts for peer in peers] == [8, 8, 8, 8]
    full = round_costs(spec_of("moe-7b"), peers).full_bytes
    assert round(peers[0].up_bytes / PAPER_GB, 3) == 9.771
    assert round(full / PAPER_GB, 3) == 28.646
    assert round(peers[0].up_bytes / GB, 3) == 10.006
    assert round(full / GB, 3) == 29.333


def test_the_2b_models_memory_leaves_the_papers_activations():
    """35 GB for SPES, 55 GB when each peer trains all: nearly the same on top of the state."""
    spec = spec_of("moe-2b")
    one, all_experts = (
        peer_costs(spec, num_experts=number, activation_bytes=0).state_bytes / GB
        for number in (1, 16)
    )
    assert 35 - one == pytest.approx(12.4, abs=0.2)
    assert 55 - all_experts == pytest.approx(12.4, abs=0.2)


def test_a_peer_gets_back_everything_but_its_own_experts():
    peer = equal_peers("moe-7b")[0]
    total = preset_config("moe-7b").sizes.total
    assert peer.down_bytes == total * 4 - peer.own_bytes


def test_device_memory_keeps_a_tenth_free():
    costs = peer_costs(spec_of("moe-tiny"), num_experts=3, activation_bytes=16 * 2**20)
    used = costs.state_bytes + costs.activation_bytes
    assert costs.device_bytes * 9 // 10 >= used > (costs.device_bytes - 2) * 9 // 10


@pytest.mark.parametrize(("num_experts", "num_peers"), [(8, 3), (8, 4), (2, 5), (1, 1)])
def test_equal_shares_differ_by_one_at_most(num_experts, num_peers):
    shares = equal_shares(num_experts, num_peers)
    assert len(shares) == num_peers
    assert sum(shares) == num_experts
    assert max(shares) - min(shares) <= 1


def test_activations_grow_with_the_micro_batch_and_halve_in_bf16():
    spec = spec_of("moe-7b")
    training = spec.training.model_copy(update={"micro_batch_tokens": 32_768})
    double = spec.model_copy(update={"training": training})
    assert estimated_activation_bytes(double) == 2 * estimated_activation_bytes(spec)
    fp32 = spec.training.model_copy(update={"precision": "FP32"})
    logits = spec.training.micro_tokens * spec.model.resolve().vocabulary * 12
    assert estimated_activation_bytes(spec.model_copy(update={"training": fp32})) - logits == (
        2 * (estimated_activation_bytes(spec) - logits)
    )


def test_rounds_are_counted_only_if_steps_end_them():
    spec = spec_of("moe-tiny")
    peers = equal_peers("moe-tiny")
    by_steps = round_costs(spec, peers)
    assert by_steps.num_rounds == 22  # 900,000 tokens, 4 peers of 10 steps of 1,024
    assert by_steps.total_bytes == 22 * (by_steps.up_bytes + by_steps.down_bytes)
    sync = spec.sync.model_copy(update={"every_seconds": 30})
    by_time = round_costs(spec.model_copy(update={"sync": sync}), peers)
    assert by_time.num_rounds is None
    assert by_time.total_bytes is None


def with_algorithm(preset: str, **algorithm) -> SpesJobSpec:
    plain = spec_of(preset).model_dump(by_alias=True, exclude_none=True, mode="json")
    return SpesJobSpec.model_validate({**plain, "algorithm": algorithm})


def test_replicated_peers_hold_and_move_everything():
    """DiLoCo: 4 (psi + Phi) parameters a peer, 2 N T a round (weight, gradient, two moments)."""
    spec = with_algorithm("moe-7b", name="DiLoCo")
    total = preset_config("moe-7b").sizes.total
    shares = peer_shares(spec)
    assert shares == (32, 32, 32, 32)
    peers = [peer_costs(spec, num_experts=share, activation_bytes=0) for share in shares]
    costs = round_costs(spec, peers)
    assert costs.up_bytes + costs.down_bytes == 2 * 4 * total * 4
    fp32 = with_precision(spec, "FP32")
    assert peer_costs(fp32, num_experts=32, activation_bytes=0).state_bytes == 16 * total


def with_precision(spec: SpesJobSpec, precision) -> SpesJobSpec:
    training = spec.training.model_copy(update={"precision": precision})
    return spec.model_copy(update={"training": training})


def test_merged_rounds_give_peers_their_own_experts_too():
    plain, merging = spec_of("moe-tiny"), with_algorithm("moe-tiny", merge={"everyRounds": 5})
    costs = [peer_costs(plain, num_experts=2, activation_bytes=0)] * 4
    without, within = round_costs(plain, costs), round_costs(merging, costs)
    assert (without.num_rounds, without.num_merges, within.num_merges) == (22, 0, 4)
    more = 4 * sum(peer.own_bytes for peer in costs)
    assert within.total_bytes == without.total_bytes + more


def compressed(spec: SpesJobSpec, uplink, downlink) -> SpesJobSpec:
    codecs = {"uplink": uplink, "downlink": downlink}
    compression = spec.sync.compression.model_copy(update=codecs)
    sync = spec.sync.model_copy(update={"compression": compression})
    return spec.model_copy(update={"sync": sync})


def test_codecs_count_in_their_direction_and_experts_keep_their_owners():
    spec = compressed(spec_of("moe-7b"), "INT8", "BF16")
    shared, one = 890_836_992, 201_326_592
    peer = peer_costs(spec, num_experts=8, activation_bytes=0)
    plain = peer_costs(spec_of("moe-7b"), num_experts=8, activation_bytes=0)
    assert peer.up_bytes == (shared + 8 * one) * 4100 // 4096
    assert peer.down_bytes == shared * 2 + 24 * one * 4100 // 4096
    assert peer.host_bytes == plain.host_bytes  # bases are FP32
    assert peer.last_bytes == peer.shared_bytes + plain.own_bytes  # no expert's debt is left


def test_bases_and_what_is_put_aside_are_in_host_memory():
    trained = 890_836_992 + 8 * 201_326_592
    assert (
        peer_costs(spec_of("moe-7b"), num_experts=8, activation_bytes=0).host_bytes == 8 * trained
    )


def test_what_a_lossy_push_owes_is_on_disk():
    """Twice: owed already, and owed if the push counts."""
    plain, lossy = spec_of("moe-7b"), compressed(spec_of("moe-7b"), "INT8", "FP32")
    trained, total = 890_836_992 + 8 * 201_326_592, preset_config("moe-7b").sizes.total
    disk = [peer_costs(s, num_experts=8, activation_bytes=0).disk_bytes for s in (plain, lossy)]
    checkpoints = (plain.checkpoint.keep_last + 1) * (4 * total + 8 * trained)
    assert disk == [checkpoints + 8 * total, checkpoints + 8 * total + 8 * trained]


def test_checkpointing_keeps_a_layers_input_instead_of_its_activations():
    spec = spec_of("moe-7b")
    model, tokens = spec.model.resolve(), spec.training.micro_tokens
    trainer = spec.trainer.model_copy(update={"activation_checkpointing": True})
    logits = tokens * model.vocabulary * 12
    without = estimated_activation_bytes(spec) - logits
    within = estimated_activation_bytes(spec.model_copy(update={"trainer": trainer})) - logits
    one_layer, inputs = without // model.num_layers, tokens * model.num_layers * model.width * 4
    assert within == one_layer + inputs


@pytest.mark.parametrize("downlink", ["BF16", "INT8"])
def test_replicated_peers_get_all_in_the_downlinks_codec(downlink):
    plain = with_algorithm("moe-7b", name="FedAvg")
    spec = compressed(plain, "FP32", downlink)
    total = preset_config("moe-7b").sizes.total
    share = {"BF16": 2, "INT8": 4100 / 4096}[downlink]
    peer = peer_costs(spec, num_experts=32, activation_bytes=0)
    assert peer.down_bytes == pytest.approx(total * share, abs=1)
    assert peer.up_bytes == total * 4


def test_a_merged_round_gives_all_experts_in_the_downlinks_codec():
    merging = with_algorithm("moe-7b", merge={"everyRounds": 5})
    spec, one = compressed(merging, "BF16", "FP32"), 201_326_592
    peer = peer_costs(spec, num_experts=8, activation_bytes=0)
    assert peer.down_bytes + peer.merge_bytes == 890_836_992 * 4 + 32 * one * 4


def test_merging_ends_with_its_warm_up():
    spec = with_algorithm("moe-tiny", merge={"everyRounds": 5, "warmupRounds": 10})
    costs = [peer_costs(spec, num_experts=2, activation_bytes=0)] * 4
    assert round_costs(spec, costs).num_merges == 1  # at round 10 alpha is 0
