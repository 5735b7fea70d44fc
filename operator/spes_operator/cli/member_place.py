"""A member's place on the hub: namespace, account and the rights that an invitation gives. Pure.

Called by `invite`.
"""

from __future__ import annotations

from collections.abc import Iterator

from spes_operator.k8s.api import JsonObject
from spes_operator.k8s.role_binding import role_binding
from spes_operator.names import (
    AGENT_ACCOUNT,
    CANDIDATE_ROLE,
    HUB_ACCOUNT,
    HUB_IN_MEMBER_ROLE,
    HUB_NAMESPACE,
    JOIN_TOKEN_SECRET,
    LABEL_MEMBER,
    ObjectKey,
    member_namespace,
)

# No pod has any business in a member's namespace on the hub.
_POD_SECURITY = "pod-security.kubernetes.io/enforce"


def member_objects(cluster: JsonObject) -> Iterator[JsonObject]:
    """Everything but the token, in order; it goes when the MemberCluster `cluster` is deleted."""
    member = cluster["metadata"]["name"]
    namespace = member_namespace(member)
    owner = {key: cluster[key] for key in ("apiVersion", "kind")}
    yield {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": namespace,
            "labels": {LABEL_MEMBER: member, _POD_SECURITY: "restricted"},
            "ownerReferences": [owner | {"name": member, "uid": cluster["metadata"]["uid"]}],
        },
    }
    yield {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"namespace": namespace, "name": AGENT_ACCOUNT},
        "automountServiceAccountToken": False,
    }
    yield role_binding(namespace, CANDIDATE_ROLE, ObjectKey(namespace, AGENT_ACCOUNT))
    yield role_binding(namespace, HUB_IN_MEMBER_ROLE, ObjectKey(HUB_NAMESPACE, HUB_ACCOUNT))


def join_token_secret(member: str) -> JsonObject:
    """The Secret that the token is bound to: it is void when this is gone. It holds nothing."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": member_namespace(member), "name": JOIN_TOKEN_SECRET},
        "type": "Opaque",
    }
