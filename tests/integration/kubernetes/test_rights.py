"""docs/reference/rights.md, tried line by line with each account's own token."""

import asyncio
import contextlib
import json
from datetime import timedelta
from pathlib import Path

import pytest
from builders.api_worlds import SCENARIO_SECONDS
from builders.attempts import Attempt, read_attempts
from builders.rights import (
    HUB,
    Account,
    allow_jobs,
    apply,
    binding,
    install_hub_rights,
    install_member_rights,
    make_account,
    make_namespaces,
)
from spes_operator.errors import AlreadyExistsError, ForbiddenError, NotFoundError
from spes_operator.k8s.api import JsonObject
from spes_operator.k8s.connection import Connection

# A control plane starts within the first test, and its policies take a while to be in force.
pytestmark = pytest.mark.timeout(240)

ATTEMPTS = read_attempts(Path(__file__).parents[3] / "docs/reference/rights.md")
ACCOUNTS = {
    f"{account.namespace}:{account.name}": account
    for account in (
        HUB,
        Account(name="agent", namespace="spes-member-uni-a"),
        Account(name="agent", namespace="spes-member-uni-b"),
        Account(name="spes-member", namespace="spes"),
    )
}


@pytest.fixture(scope="module")
def kubeconfigs(hub_control_plane) -> dict[str, Path]:
    """Account -> its kubeconfig."""
    plane = hub_control_plane
    install_hub_rights(plane)
    make_namespaces(plane, "research", "spes", "spes-member-uni-a", "spes-member-uni-b")
    for account in list(ACCOUNTS.values())[1:3]:
        make_account(plane, account)
        apply(plane, binding("spes-member-candidate", account, namespace=account.namespace))
        apply(plane, binding("spes-hub-in-member", HUB, namespace=account.namespace))
    accepted = ACCOUNTS["spes-member-uni-a:agent"]
    apply(plane, binding("spes-member-agent", accepted, namespace=accepted.namespace))
    install_member_rights(plane, ACCOUNTS["spes:spes-member"])
    allow_jobs(plane, "research")
    plane.kubectl("get", "--raw", "/apis/spes.dev/v1alpha1/spesjobs")  # waits for its storage
    apply(plane, *objects())
    return {name: account.kubeconfig(plane) for name, account in ACCOUNTS.items()}


def objects() -> list[JsonObject]:
    """What the attempts are aimed at."""
    aims = (
        ("memberclusters/uni-a", "everywhere"),
        ("memberclusters/uni-b", "everywhere"),
        ("memberreports/report", "spes-member-uni-a"),
        ("memberreports/report", "spes-member-uni-b"),
        ("trainerassignments/moe", "spes-member-uni-a"),
        ("secrets/join-token", "spes-member-uni-a"),
        ("secrets/moe-sync-tls", "research"),
        ("secrets/admin", "kube-system"),
        ("configmaps/moe-ownership", "research"),
    )
    return [Attempt(verb="apply", what=what, where=where).body for what, where in aims]


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=str)
def test_the_api_server_answers_as_the_page_says(attempt, kubeconfigs):
    assert asyncio.run(answer(attempt, kubeconfigs[attempt.who])) == attempt.answer


async def answer(attempt: Attempt, kubeconfig: Path) -> str:
    """ "allowed", "refused" for want of a right, or the policy that refused, with a star."""
    connection = await Connection.open(kubeconfig)
    try:
        async with asyncio.timeout(SCENARIO_SECONDS):
            if attempt.verb == "watch":
                stream = connection.stream(attempt.request, silence=timedelta(seconds=5))
                async with contextlib.aclosing(stream):
                    async for _ in stream:
                        break
            else:
                await connection.send(attempt.request)
    except (AlreadyExistsError, NotFoundError):
        return "allowed"  # to make what is there, to ask for what is not
    except ForbiddenError as error:
        text = str(error)
        if "ValidatingAdmissionPolicy" in text:
            return text.split("ValidatingAdmissionPolicy '")[1].split("'")[0] + "*"
        assert "cannot" in text or "not currently held" in text or "escalat" in text, text
        return "refused"
    finally:
        await connection.close()
    return "allowed"


@pytest.mark.usefixtures("kubeconfigs")
def test_policies_fit_the_objects_they_judge(hub_control_plane):
    """The API server checks their expressions against the schemas and warns of what cannot be."""
    policies = json.loads(
        hub_control_plane.kubectl("get", "validatingadmissionpolicies", "-o", "json")
    )
    assert policies["items"]
    for policy in policies["items"]:
        assert not policy["status"].get("typeChecking", {}).get("expressionWarnings"), policy
