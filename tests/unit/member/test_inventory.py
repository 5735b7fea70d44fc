"""Which slots the nodes of a cluster make."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spes_operator.member.inventory import NodePolicy, Placed, slots_of_nodes

A100 = "NVIDIA-A100-SXM4-80GB"
TOLERATED = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def node(name="n1", *, product=A100, mib="81920", gpus="2", ready="True", **spec):
    return {
        "metadata": {
            "name": name,
            "labels": {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": mib},
        },
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "64", "nvidia.com/gpu": gpus},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def names(nodes, placed=None, *, ending=(), **policy):
    trainers = {slot: Placed(at, slot in ending) for slot, at in (placed or {}).items()}
    return [slot.name for slot in slots_of_nodes(nodes, NodePolicy(**policy), trainers)]


def test_mixed_gpus_make_slots_by_model():
    nodes = [node(), node("n2", gpus="1"), node("n3", product="Tesla-T4", mib="15360", gpus="1")]
    slots = slots_of_nodes(nodes, NodePolicy(resources={"cpu": "8"}), {})
    assert [slot.name for slot in slots] == [
        *("a100-sxm4-80gb-0", "a100-sxm4-80gb-1", "a100-sxm4-80gb-2"),
        "tesla-t4-0",
    ]
    assert slots[0].memory_bytes == 80 * 2**30
    assert slots[0].resources == {"cpu": "8", "nvidia.com/gpu": "1"}
    assert slots[3].node_selector == {"nvidia.com/gpu.product": "Tesla-T4"}


def test_slot_of_several_gpus_has_their_memory_and_never_spans_nodes():
    nodes = [node(gpus="3"), node("n2", gpus="3")]
    slots = slots_of_nodes(nodes, NodePolicy(gpus_per_slot=2), {})
    assert [slot.memory_bytes for slot in slots] == [2 * 80 * 2**30] * 2


def test_smallest_gpu_of_a_model_counts():
    nodes = [node(gpus="1"), node("n2", gpus="1", mib="40960")]
    assert {s.memory_bytes for s in slots_of_nodes(nodes, NodePolicy(), {})} == {40 * 2**30}


@pytest.mark.parametrize(
    "changes",
    [
        {"unschedulable": True},
        {"ready": "False"},
        {"ready": "Unknown"},
        {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]},
        {"taints": [{"key": "nvidia.com/gpu", "effect": "NoExecute"}]},
        {"gpus": "0"},
        {"mib": "many"},
        {"product": ""},
    ],
    ids=str,
)
def test_unusable_node_lends_nothing(changes):
    assert names([node(**changes)], tolerations=[TOLERATED]) == []


def test_cluster_without_gpus_lends_nothing():
    plain = {"metadata": {"name": "n"}, "status": node()["status"] | {"allocatable": {}}}
    assert names([plain]) == []


@pytest.mark.parametrize(
    "taint",
    [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
        {"key": "spot", "effect": "PreferNoSchedule"},
    ],
)
def test_tolerated_taints_do_not_matter(taint):
    assert len(names([node(taints=[taint])], tolerations=[TOLERATED])) == 2


def test_toleration_of_one_value_tolerates_no_other():
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    right, wrong = ({"key": "team", "value": value} for value in "ab")
    assert len(names([node(taints=[taint])], tolerations=[right])) == 2
    assert names([node(taints=[taint])], tolerations=[wrong]) == []


def test_cordoned_node_takes_the_slot_that_ran_on_it():
    nodes = [node(gpus="1"), node("n2", gpus="1", unschedulable=True), node("n3", gpus="1")]
    placed = {f"a100-sxm4-80gb-{index}": f"n{index + 1}" for index in range(3)}
    assert names(nodes, placed) == ["a100-sxm4-80gb-0", "a100-sxm4-80gb-2"]


def test_free_node_gives_another_slot_for_a_lost_one():
    nodes = [node(gpus="1", unschedulable=True), node("n2", gpus="1")]
    assert names(nodes, {"a100-sxm4-80gb-0": "n1"}) == ["a100-sxm4-80gb-1"]


def test_a_trainer_of_a_silent_node_is_replaced_where_there_is_room():
    """Its slot stays, and with it its experts, until the hub's own limit."""
    nodes = [node(gpus="1", ready="Unknown"), node("n2", gpus="1"), node("n3", gpus="1")]
    placed = {"a100-sxm4-80gb-0": "n1", "a100-sxm4-80gb-1": "n2"}
    assert names(nodes, placed) == ["a100-sxm4-80gb-0", "a100-sxm4-80gb-1"]


def test_a_pod_that_only_its_silent_node_could_end_keeps_no_room():
    """Its Job makes no other one before; so the free node is offered under another number."""
    nodes = [node(gpus="1", ready="Unknown"), node("n2", gpus="1")]
    placed = {"a100-sxm4-80gb-0": "n1"}
    assert names(nodes, placed) == ["a100-sxm4-80gb-0"]
    assert names(nodes, placed, ending={"a100-sxm4-80gb-0"}) == ["a100-sxm4-80gb-1"]
    assert names([node(gpus="1")], placed, ending={"a100-sxm4-80gb-0"}) == ["a100-sxm4-80gb-0"]


@pytest.mark.parametrize("key", ["not-ready", "unreachable"])
def test_kubernetes_own_taints_of_a_silent_node_change_nothing(key):
    taint = {"key": f"node.kubernetes.io/{key}", "effect": "NoExecute"}
    nodes = [node(gpus="1", ready="Unknown", taints=[taint]), node("n2", gpus="1")]
    assert names(nodes, {"a100-sxm4-80gb-0": "n1"}) == ["a100-sxm4-80gb-0"]


def test_without_room_elsewhere_a_silent_nodes_slot_is_lost_at_once():
    nodes = [node(gpus="1", ready="Unknown"), node("n2", gpus="1")]
    placed = {"a100-sxm4-80gb-0": "n1", "a100-sxm4-80gb-1": "n2"}
    assert names(nodes, placed) == ["a100-sxm4-80gb-1"]


def test_a_silent_node_that_was_taken_away_is_not_waited_for():
    nodes = [node(gpus="1", ready="Unknown", unschedulable=True), node("n2", gpus="1")]
    assert names(nodes, {"a100-sxm4-80gb-0": "n1"}) == ["a100-sxm4-80gb-1"]


def test_no_more_gpus_are_lent_than_allowed():
    assert len(names([node(gpus="8")], gpus_per_slot=2, max_gpus=5)) == 2


def test_long_names_of_products_stay_apart():
    long = "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition"
    found = names([node(product=long, gpus="1"), node("n2", product=f"{long}-2", gpus="1")])
    assert len(set(found)) == 2
    assert max(map(len, found)) <= 40


@given(
    gpus=st.lists(st.integers(0, 4), max_size=6),
    placed=st.dictionaries(st.integers(0, 30), st.integers(0, 8), max_size=12),
)
def test_as_many_slots_as_gpus_each_with_another_name(gpus, placed):
    nodes = [node(f"n{index}", gpus=str(count)) for index, count in enumerate(gpus)]
    where = {f"a100-sxm4-80gb-{slot}": f"n{at}" for slot, at in placed.items()}
    found = names(nodes, where)
    assert len(set(found)) == len(found) == sum(gpus)
    lost = {slot for slot, at in where.items() if int(at[1:]) >= len(gpus)}
    assert not lost & set(found)
