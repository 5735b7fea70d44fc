"""docs/reference/rights.md names every right there is; each of its lines is tried elsewhere."""

from pathlib import Path

import pytest
import yaml
from builders.attempts import read_attempts
from builders.rights import FILES

PAGE = Path(__file__).parents[3] / "docs/reference/rights.md"
HUB, AGENT, LOCAL = "spes-system:spes-hub", "spes-member-uni-a:agent", "spes:spes-member"
# Role -> who has it, and where it is bound.
ROLES = {
    "spes-hub": (HUB, None),
    "spes-hub-in-own-namespace": (HUB, "spes-system"),
    "spes-hub-in-job-namespace": (HUB, "research"),
    "spes-hub-in-member": (HUB, "spes-member-uni-a"),
    "spes-member-candidate": ("spes-member-uni-b:agent", "spes-member-uni-b"),
    "spes-member-agent": (AGENT, "spes-member-uni-a"),
    "spes-member-local": (LOCAL, "spes"),
    "spes-member-identity": (LOCAL, "everywhere"),
    "spes-member-nodes": (LOCAL, "everywhere"),
}


def roles():
    documents = [
        one for path in FILES.glob("*role.yaml") for one in yaml.safe_load_all(path.read_text())
    ]
    return {one["metadata"]["name"]: one["rules"] for one in documents}


def shown(who, where):
    """(verb, resource) of every line that says "allowed"; to apply is to create and to patch."""
    found = set()
    for attempt in read_attempts(PAGE):
        if (attempt.who, attempt.answer) != (who, "allowed") or where not in (None, attempt.where):
            continue
        plural, *rest = attempt.what.split("/")
        resource = "/".join([plural, *rest[1:]])
        verbs = ("create", "patch") if attempt.verb == "apply" else (attempt.verb,)
        found |= {(verb, resource) for verb in verbs}
    return found


def test_every_role_is_known():
    assert roles().keys() == ROLES.keys()


@pytest.mark.parametrize("role", ROLES)
def test_every_right_is_on_the_page(role):
    who, where = ROLES[role]
    rights = {
        (verb, resource)
        for rule in roles()[role]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb != "bind"  # it shows in the lines about rolebindings
    }
    assert rights - shown(who, where) == set()


def test_no_right_is_for_everything():
    for name, rules in roles().items():
        for rule in rules:
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]], name
