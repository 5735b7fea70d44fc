"""The member's settings file, and what each part of the agent makes of it."""

from datetime import timedelta

import pytest
import yaml
from pydantic import ValidationError
from spes_api.errors import ConfigError
from spes_api.loading import load_file
from spes_operator.daemon.member_config import MemberConfig
from spes_operator.daemon.member_settings import inventory_settings, limits, pod_settings

FULL = """
namespace: gpus
image: trainer@sha256:1
slots:
  - {name: a, memory: 16Gi, activation: 2Gi, resources: {cpu: "4"}, env: {OMP_NUM_THREADS: "4"}}
datasets:
  - {name: corpus, claim: corpus, manifestSha256: "%s"}
  - {name: weights, image: "weights:1"}
  - {name: local, hostPath: {path: /mnt/data}}
workVolume: {type: pvc, size: 20Gi, storageClass: fast}
tolerations: [{key: spot, operator: Exists}]
limits: {images: [other], queues: [q], maxJobs: 2}
env: {https_proxy: "http://proxy:3128"}
orphanAfterSeconds: 600
""" % ("ab" * 32)


@pytest.fixture
def full(tmp_path):
    (tmp_path / "config.yaml").write_text(FULL)
    return load_file(tmp_path / "config.yaml", MemberConfig)


def test_declared_slots_are_lent_and_nodes_are_not_looked_at(full):
    settings = inventory_settings(full, "1.2")
    (slot,) = settings.slots
    assert (slot.name, slot.memory_bytes, slot.activation_bytes) == ("a", 16 * 2**30, 2 * 2**30)
    assert slot.env == {"OMP_NUM_THREADS": "4"}
    assert settings.nodes is None
    assert settings.datasets == {"corpus": "ab" * 32, "weights": "", "local": ""}


def test_without_slots_nodes_are_looked_at():
    settings = inventory_settings(MemberConfig(image="i"), "1.2")
    assert settings.nodes.gpus_per_slot == 1
    assert settings.nodes.tolerations == ({"key": "nvidia.com/gpu", "operator": "Exists"},)


def test_datasets_become_volumes(full):
    assert pod_settings(full).datasets == {
        "corpus": {"persistentVolumeClaim": {"claimName": "corpus", "readOnly": True}},
        "weights": {"image": {"reference": "weights:1"}},
        "local": {"hostPath": {"path": "/mnt/data", "type": "Directory"}},
    }


def test_every_trainer_gets_the_members_environment(full):
    assert pod_settings(full).env == {"https_proxy": "http://proxy:3128"}


def test_limits_are_narrow_by_default():
    found = limits(MemberConfig(image="i"))
    assert found.images == {"", "i"}
    assert (found.priority_classes, found.queues) == (frozenset(), frozenset())
    assert found.node_selector_keys == {"nvidia.com/gpu.product", "nvidia.com/gpu.memory"}
    assert found.orphan_after == timedelta(minutes=30)


def test_limits_are_as_wide_as_the_admin_says(full):
    found = limits(full)
    assert found.images == {"", "trainer@sha256:1", "other"}
    assert (found.queues, found.max_jobs) == ({"q"}, 2)
    assert found.orphan_after == timedelta(minutes=10)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "image"),
        ("{image: i, imgae: j}", "imgae"),
        ("{image: i, slots: [{name: a, memory: much}]}", "memory"),
        (
            "{image: i, slots: [{name: a, memory: 1}, {name: a, memory: 1}]}",
            "slots must not name one twice",
        ),
        ("{image: i, datasets: [{name: a}]}", "must hold one of claim, hostPath, image"),
        ("{image: i, workVolume: {type: nfs}}", "workVolume.type"),
    ],
)
def test_mistakes_are_named(tmp_path, text, problem):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=problem):
        load_file(tmp_path / "config.yaml", MemberConfig)


def test_whole_settings_are_frozen(full):
    with pytest.raises(ValidationError, match="frozen"):
        full.image = "other"


def test_every_key_of_the_file_is_known(full):
    written = full.model_dump(by_alias=True)
    assert yaml.safe_load(FULL).keys() <= written.keys()
