"""Defaults that depend on other fields, names, and what every model refuses."""

import pytest
from pydantic import ValidationError
from spes_api import job as job_module
from spes_api.algorithm import AlgorithmSpec, MergeSpec, OuterSpec
from spes_api.job import SpesJobSpec
from spes_api.kinds import TrainerAssignment
from spes_api.model import preset_config
from spes_api.status import OwnershipRow


def spec(**sync):
    return SpesJobSpec.model_validate(
        {
            "model": {"preset": "moe-tiny"},
            "data": {"sources": [{"builtin": "python-stdlib"}]},
            "training": {
                "maxTokens": 1_000_000,
                "batchTokens": 4096,
                "optimizer": {"learningRate": 0.01},
            },
            "sync": sync or {"everySteps": 10},
        }
    )


def test_absent_fields_are_resolved_from_others():
    training = spec().training
    assert training.warmup_tokens == 20_000
    assert training.micro_tokens == 4096


@pytest.mark.parametrize(
    ("sync", "weights"),
    [
        ({"everySteps": 10}, "Uniform"),
        ({"everySeconds": 10}, "Tokens"),
        ({"everySteps": 10, "everySeconds": 10}, "Tokens"),
    ],
)
def test_peers_that_stop_by_time_are_weighted_by_tokens(sync, weights):
    assert spec(**sync).weights == weights


def test_fednova_weighs_all_alike_whenever_they_stop():
    assert (
        spec(everySeconds=10)
        .model_copy(update={"algorithm": AlgorithmSpec(name="FedNova")})
        .weights
        == "Uniform"
    )


def test_canonical_json_is_sorted_and_compact():
    text = spec().canonical_json()
    assert text.startswith('{"data":{"sources":[{"builtin":"python-stdlib"}]},"model":{')
    assert " " not in text
    assert "null" not in text


def test_a_server_of_the_version_before_is_told_no_default_that_it_does_not_know():
    """The API server writes new fields into stored jobs; nobody has asked for them."""
    stored = spec(everySteps=10, mode="Rounds", compression={"entropy": "None"})
    assert stored.canonical_json() == spec().canonical_json()
    assert SpesJobSpec.model_validate_json(stored.canonical_json()) == stored


def test_defaults_of_merging_and_of_the_outer_step_are_the_papers():
    algorithm = AlgorithmSpec.model_validate({"merge": {}})
    assert algorithm.merge == MergeSpec(alpha=0.1, donors=4, every_rounds=6, warmup_rounds=250)
    assert (algorithm.outer_step, algorithm.replicated) == (None, False)
    assert AlgorithmSpec(name="DiLoCo").outer_step == OuterSpec(learning_rate=0.7, momentum=0.9)
    assert AlgorithmSpec(name="FedAvg").outer_step is None


@pytest.mark.parametrize("name", ["FedAvg", "DiLoCo", "Centralised"])
def test_experts_have_owners_with_spes_alone(name):
    assert AlgorithmSpec(name=name).replicated


def test_models_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        spec().suspend = True


def test_everything_that_is_promised_can_be_imported():
    assert all(hasattr(job_module, name) for name in job_module.__all__)


@pytest.mark.parametrize("peer", ["../etc", "a/b", "", ".a", "a.", "A.0", "a" * 64, "a\n"])
def test_a_peer_is_never_a_path(peer):
    with pytest.raises(ValidationError):
        OwnershipRow(peer=peer, experts="0")


def test_an_assignment_knows_its_peer():
    assignment = TrainerAssignment.model_validate(
        {
            "metadata": {"name": "moe-tiny-0", "namespace": "spes-member-uni-a"},
            "spec": {
                "jobUID": "u-1",
                "slot": "0",
                "template": {},
                "templateHash": "abc",
                "joinSecret": "moe-tiny-0-join",
                "sync": {"endpoint": "127.0.0.1:1", "caBundle": ""},
            },
        }
    )
    assert assignment.peer == "uni-a.0"
    assert assignment.model_dump(by_alias=True)["spec"]["jobUID"] == "u-1"


def test_heads_of_the_9b_are_shared_and_wider_than_the_width_over_heads_says():
    shape = preset_config("moe-9b")
    assert (shape.kv_heads, shape.head_size, shape.qk_norm) == (8, 128, "PerHead")
    assert preset_config("moe-1b").kv_heads == 12
