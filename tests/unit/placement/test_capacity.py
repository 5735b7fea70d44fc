"""Experts that fit into a device."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spes_api.loading import load_job, load_members
from spes_api.model import preset_config
from spes_operator.placement.capacity import CANNOT_JOIN, capacity, state_bytes
from spes_operator.placement.costs import estimated_activation_bytes
from spes_operator.placement.slots import slot_activation_bytes, slot_capacity

EXAMPLES = Path(__file__).parents[3] / "examples"


def fitting(preset, memory, activation, precision="FP32", limit=None):
    return capacity(
        memory_bytes=int(memory),
        activation_bytes=int(activation),
        sizes=preset_config(preset).sizes,
        precision=precision,
        limit=limit,
    )


@pytest.mark.parametrize(
    ("memory", "precision", "experts"),
    [
        (12e9, "FP32", CANNOT_JOIN),
        (16e9, "FP32", 5),
        (16e9, "BF16", 0),
        (24e9, "FP32", 15),
        (24e9, "BF16", 10),
    ],
)
def test_moe_1b_on_known_devices(memory, precision, experts):
    assert fitting("moe-1b", memory, 3e9, precision) == experts


def test_a_device_holds_no_more_experts_than_there_are():
    assert fitting("moe-1b", 1e12, 3e9) == 16
    assert fitting("moe-1b", 1e12, 3e9, limit=5) == 5


def test_capacities_of_the_members_example():
    slots = {
        peer: slot
        for member in load_members(EXAMPLES / "members.yaml").members
        for peer, slot in member.peers
    }
    assert {
        peer: fitting("moe-tiny", slot.memory_bytes, slot.activation_bytes)
        for peer, slot in slots.items()
    } == {"uni-a.0": 8, "uni-b.0": 4, "uni-c.0": 2, "uni-d.0": 4}


@given(memory=st.integers(0, 10**9), activation=st.integers(0, 10**8))
def test_what_fits_fits_and_one_more_does_not(memory, activation):
    sizes = preset_config("moe-tiny").sizes
    experts = fitting("moe-tiny", memory, activation)
    usable = memory * 9 // 10 - activation
    if experts >= 0:
        assert state_bytes(sizes, num_owned=experts, precision="FP32") <= usable
    if experts < sizes.num_experts:
        assert state_bytes(sizes, num_owned=experts + 1, precision="FP32") > usable


def test_the_jobs_activations_go_before_the_slots_and_these_before_the_estimate():
    spec = load_job(EXAMPLES / "moe-tiny.yaml").spec
    told = spec.model_copy(
        update={"trainer": spec.trainer.model_copy(update={"activation_bytes": 7})}
    )
    assert slot_activation_bytes(told, 5) == 7
    assert slot_activation_bytes(spec, 5) == 5
    assert slot_activation_bytes(spec, None) == estimated_activation_bytes(spec)
    assert slot_capacity(spec, memory_bytes=40 * 2**20, activation_bytes=16 * 2**20) == 4
