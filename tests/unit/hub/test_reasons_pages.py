"""docs/reference/conditions.md and events.md name every reason that there is, and no other."""

import ast
import re
from pathlib import Path

import pytest
from spes_operator import reasons

ROOT = Path(__file__).parents[3]
CODE = ROOT / "operator/spes_operator"
# Reason -> its name in the code; condition types are among them.
WORDS = {value: name for name, value in vars(reasons).items() if name.isupper()}
KINDS = {
    "SpesJob": ("hub/conditions", "hub/causes", "hub/obstacles", "hub/troubles"),
    "MemberCluster": ("hub/members", "hub/member_pass"),
    "TrainerAssignment": (
        "member/status",
        "member/limits",
        "member/rejections",
        "member/pod_facts",
    ),
}
# Of a peer's condition Finished, passed on as it is.
PASSED_ON = {"BackoffLimitExceeded"}


def tables(page, section=""):
    """First column -> rows, for each table of a page or of one of its sections."""
    text = (ROOT / "docs/reference" / page).read_text()
    if section:
        text = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.M | re.S)[1]
    head, found = "", {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            head = ""
        elif not head:
            head = cells[0]
        elif not cells[0].startswith("---"):
            found.setdefault(head, []).append(cells)
    return found


def named(rows):
    names = [row[0].strip("`") for row in rows]
    assert len(names) == len(set(names))
    return set(names)


TYPES = {kind: named(tables("conditions.md", kind)["Condition"]) for kind in KINDS}
ALL_TYPES = set().union(*TYPES.values())


def used_in(*modules):
    """The reasons that modules import; condition types left out."""
    found = set()
    for module in modules:
        for node in ast.walk(ast.parse((CODE / f"{module}.py").read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "spes_operator.reasons":
                found |= {getattr(reasons, alias.name) for alias in node.names}
    return found - ALL_TYPES


@pytest.mark.parametrize("kind", KINDS)
def test_every_reason_of_a_condition_is_on_the_page(kind):
    extra = PASSED_ON if kind == "SpesJob" else set()
    assert named(tables("conditions.md", kind)["Reason"]) == used_in(*KINDS[kind]) | extra


def test_every_event_is_on_the_page():
    of_jobs = used_in("hub/events", "hub/garbage", *KINDS["SpesJob"][:3]) | PASSED_ON
    assert named(tables("events.md")["Reason"]) == (
        of_jobs - {"AsExpected"}
        | {"AssignmentRefused"}
        | {"HubCredentialRefused", "HubUnreachable", "CredentialRenewalRefused"}
    )


def test_events_have_a_type_of_kubernetes():
    for row in tables("events.md")["Reason"]:
        assert re.match("Normal|Warning", row[1]), row


def test_the_pages_and_the_list_of_reasons_name_the_same():
    told = named(tables("events.md")["Reason"]) | ALL_TYPES
    for kind in KINDS:
        told |= named(tables("conditions.md", kind)["Reason"])
    assert told == WORDS.keys()


def test_no_reason_is_a_type_of_a_condition():
    for kind in KINDS:
        assert not named(tables("conditions.md", kind)["Reason"]) & ALL_TYPES
