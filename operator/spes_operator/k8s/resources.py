"""Where each kind lives in the REST API of an API server. Pure; called by `cluster`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from spes_api.definitions import DEFINITIONS
from spes_api.schema_base import API_VERSION


class Resource(NamedTuple):
    """One kind."""

    api_version: str
    plural: str
    namespaced: bool = True


# Every kind that SPES reads or writes.
RESOURCES: Mapping[str, Resource] = {
    definition.model.__name__: Resource(
        API_VERSION, definition.plural, definition.scope == "Namespaced"
    )
    for definition in DEFINITIONS
} | {
    "Certificate": Resource("cert-manager.io/v1", "certificates"),
    "ConfigMap": Resource("v1", "configmaps"),
    "Event": Resource("v1", "events"),
    "Job": Resource("batch/v1", "jobs"),
    "Lease": Resource("coordination.k8s.io/v1", "leases"),
    "Namespace": Resource("v1", "namespaces", namespaced=False),
    "Node": Resource("v1", "nodes", namespaced=False),
    "PersistentVolumeClaim": Resource("v1", "persistentvolumeclaims"),
    "Pod": Resource("v1", "pods"),
    "ResourceQuota": Resource("v1", "resourcequotas"),
    "RoleBinding": Resource("rbac.authorization.k8s.io/v1", "rolebindings"),
    "Secret": Resource("v1", "secrets"),
    "Service": Resource("v1", "services"),
    "ServiceAccount": Resource("v1", "serviceaccounts"),
    "StatefulSet": Resource("apps/v1", "statefulsets"),
}


def path_of(kind: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The path of an object, or of all objects of a kind where `name` is empty.

    A namespace is left out for kinds that have none; without one the path is of all namespaces.
    """
    resource = RESOURCES[kind]
    root = "api" if "/" not in resource.api_version else "apis"
    within = ("namespaces", namespace) if resource.namespaced and namespace else ()
    parts = (*within, resource.plural, name, subresource)
    quoted = "/".join(quote(part, safe="") for part in parts if part)
    return f"/{root}/{resource.api_version}/{quoted}"
