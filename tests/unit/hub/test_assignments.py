"""Names of assignments and the hash of their template: both must stay equal over releases."""

from spes_api.kinds import TrainerTemplate
from spes_operator.hub.template import template_hash
from spes_operator.names import assignment_name


def test_template_hash_stays_equal_over_releases():
    """Another value here would restart every running trainer at an upgrade."""
    assert template_hash(TrainerTemplate()) == "44136fa355"
    full = TrainerTemplate(
        image="x", num_proc_per_node=8, resources={"gpu": "8"}, grace_period_seconds=5
    )
    assert template_hash(full) == "7dfd6f0383"


def test_assignment_names_are_short_and_differ():
    long = "a" * 40
    names = {assignment_name(long, uid, slot) for uid in ("u1", "u2") for slot in ("0", "1")}
    assert len(names) == 4
    assert all(len(name) <= 40 for name in names)
    assert assignment_name("moe-tiny", "u1", "0").startswith("moe-tiny-0-")
