"""What the arms have in common, and that each is a job that `spes run` takes."""

from __future__ import annotations

import pytest
from bench.science.design import (
    ARMS,
    FULL,
    PILOT,
    QUICK,
    STEP_TOKENS,
    job_of,
    members_of,
)
from spes_api.job import SpesJob
from spes_api.members import MembersFile
from spes_operator.placement.capacity import capacity

EVERY_ARM = pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS)
SHORT = "alone"


def job(arm, length=FULL):
    return SpesJob.model_validate(
        job_of(arm, seed=1, num_steps=length.num_steps, learning_rate=0.01)
    )


@EVERY_ARM
def test_every_arm_has_the_same_tokens_in_the_same_steps(arm):
    training = job(arm).spec.training
    share = 4 if arm.name == SHORT else 1
    assert training.max_tokens == FULL.num_steps * STEP_TOKENS // share
    assert training.batch_tokens * arm.num_peers == STEP_TOKENS // share


@EVERY_ARM
@pytest.mark.parametrize("length", [FULL, QUICK], ids=["full", "quick"])
def test_rounds_are_whole_and_wait_for_everyone(arm, length):
    spec = job(arm, length).spec
    assert length.num_steps % spec.sync.every_steps == 0
    assert spec.sync.quorum == 1.0
    assert spec.sync.every_seconds is None
    assert spec.members.min == spec.members.max == arm.num_peers


@EVERY_ARM
def test_only_one_placement_of_the_experts_is_possible(arm):
    """Its speeds decide where experts lie, unless all have room for their share alone."""
    spec = job(arm).spec
    sizes = spec.model.resolve().sizes
    room = [
        capacity(
            memory_bytes=slot.memory_bytes,
            activation_bytes=0,
            sizes=sizes,
            precision=spec.training.precision,
            limit=spec.experts.max_per_peer,
        )
        for member in MembersFile.model_validate(members_of(arm)).members
        for slot in member.slots
    ]
    assert sum(room) == sizes.num_experts


@EVERY_ARM
def test_an_arm_differs_from_spes_in_what_it_is_named_for(arm):
    ours, spes = (job(each).spec.model_dump(exclude_defaults=True) for each in (arm, ARMS["spes"]))
    changed = {key for key in ours if ours[key] != spes.get(key)}
    allowed = {
        "spes-int8": {"sync"},
        "spes-h20": {"sync", "training"},  # when it evaluates
        "spes-h40": {"sync", "training"},
        "spes-n2": {"members", "experts", "training"},
        "spes-n8": {"members", "experts", "training"},
        "centralised": {"algorithm", "members", "experts", "training"},
        "alone": {"algorithm", "members", "experts", "training"},
        "spes": set(),
        "spes-again": set(),
    }
    assert changed <= allowed.get(arm.name, {"algorithm"})


@pytest.mark.parametrize("length", [FULL, QUICK], ids=["full", "quick"])
def test_every_run_has_a_second_round_to_count_bytes_in(length):
    assert all(length.num_steps >= 2 * ARMS[name].every_steps for name in length.arms)


def test_lengths_name_arms_that_exist():
    assert {*FULL.arms, *QUICK.arms, *PILOT} <= ARMS.keys()
