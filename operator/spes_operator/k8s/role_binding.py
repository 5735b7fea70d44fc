"""A RoleBinding as SPES writes it: one account gets one ClusterRole in one namespace. Pure."""

from __future__ import annotations

from spes_operator.k8s.api import JsonObject
from spes_operator.names import ObjectKey

_GROUP = "rbac.authorization.k8s.io"


def role_binding(namespace: str, role: str, account: ObjectKey) -> JsonObject:
    """The ServiceAccount `account` may do in `namespace` what ClusterRole `role` says."""
    subject = {"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {"namespace": namespace, "name": role},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }
