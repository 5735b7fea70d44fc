"""Attempts on an API server, as lines of a page say them: a verb, what, where, with what."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spes_operator.k8s.api import JsonObject
from spes_operator.k8s.connection import Request
from spes_operator.k8s.resources import RESOURCES

_EVERYWHERE = "everywhere"
# Plural -> where it lives and its kind: what SPES uses, and what only an attacker would want.
_KINDS: Mapping[str, tuple[str, str]] = {
    resource.plural: (resource.api_version, kind) for kind, resource in RESOURCES.items()
} | {
    "clusterroles": ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    "clusterrolebindings": ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    "customresourcedefinitions": ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    "validatingadmissionpolicies": (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
    ),
}
_METHODS: Mapping[str, Any] = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "apply": "PATCH",
    "patch": "PATCH",
    "delete": "DELETE",
}
_CONTENT = {"apply": "application/apply-patch+yaml", "patch": "application/merge-patch+json"}
_LABELS = {"app": "a"}
_POD = {"automountServiceAccountToken": False, "containers": [{"name": "a", "image": "a"}]}
_TOKEN_VOLUME = {"name": "a", "projected": {"sources": [{"serviceAccountToken": {"path": "a"}}]}}
# What an object of a kind must have to be one, and what makes it a dangerous one.
_BODIES: Mapping[str, JsonObject] = {
    "a token of an account": {
        "type": "kubernetes.io/service-account-token",
        "metadata": {"annotations": {"kubernetes.io/service-account.name": "agent"}},
    },
    "jobs": {"spec": {"template": {"spec": _POD | {"restartPolicy": "Never"}}}},
    "services": {"spec": {"ports": [{"port": 1}]}},
    "persistentvolumeclaims": {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
    },
    "trainerassignments": {
        "spec": {
            "jobUID": "1",
            "slot": "0",
            "template": {},
            "templateHash": "a",
            "joinSecret": "a",
            "sync": {"endpoint": "a:1", "caBundle": "a"},
        }
    },
}


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One line of a page."""

    who: str = ""
    verb: str
    what: str
    where: str
    extra: str = ""
    answer: str = ""

    def __str__(self) -> str:
        """As a sentence, for the name of a test."""
        return f"{self.who} {self.verb} {self.what} {self.where} {self.extra}".strip()

    @property
    def request(self) -> Request:
        """The request; it changes nothing, even where it is allowed."""
        plural, *rest = self.what.split("/")
        api_version, _ = _KINDS[plural]
        within = [] if self.where == _EVERYWHERE else ["namespaces", self.where]
        # A POST goes to the collection, or to a subresource of a named object.
        named = rest if self.verb != "create" or len(rest) > 1 else []
        root = "apis" if "/" in api_version else "api"
        query = {"dryRun": "All"} if _METHODS[self.verb] != "GET" else {}
        if self.verb == "watch":
            query = {"watch": "true", "timeoutSeconds": "1"}
        if self.verb == "apply":
            query |= {"fieldManager": "a"}
        return Request(
            method=_METHODS[self.verb],
            path="/" + "/".join([root, api_version, *within, plural, *named]),
            query=query,
            body=None if _METHODS[self.verb] in ("GET", "DELETE") else self.body,
            content_type=_CONTENT.get(self.verb, "application/json"),
        )

    @property
    def body(self) -> JsonObject:
        """What is sent; for create, update and apply the whole object."""
        plural, *name = self.what.split("/")
        if self.verb == "patch":
            return {"status": {}} if name[-1] == "status" else {"metadata": {"labels": _LABELS}}
        if name[-1] == "token":
            tokens = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
            return tokens | {"spec": _TOKENS[self.extra]}
        api_version, kind = _KINDS[plural]
        where = {} if self.where == _EVERYWHERE else {"namespace": self.where}
        fields = dict(self._fields(plural))
        metadata = {"name": name[0]} | where | fields.pop("metadata", {})
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata} | fields

    def _fields(self, plural: str) -> JsonObject:
        if plural in ("rolebindings", "clusterrolebindings"):
            return _BINDINGS[self.extra](self.where)
        if plural == "statefulsets":
            return _stateful_set(_POD_CHANGES[self.extra])
        if plural == "events":
            return {"involvedObject": {"kind": "Pod", "name": "a", "namespace": self.where}}
        return _BODIES.get(self.extra or plural, {})


_TOKENS: Mapping[str, JsonObject] = {
    "": {},
    "604800 s": {"expirationSeconds": 604_800},
    "604801 s": {"expirationSeconds": 604_801},
    "audience vault": {"expirationSeconds": 3600, "audiences": ["vault"]},
    "audiences ours and vault": {
        "expirationSeconds": 3600,
        "audiences": ["https://kubernetes.default.svc.cluster.local", "vault"],
    },
}
_POD_CHANGES: Mapping[str, JsonObject] = {
    "no token in its pods": {},
    "the token of its account": {"automountServiceAccountToken": True},
    "a projected token": {"volumes": [_TOKEN_VOLUME]},
}


def _stateful_set(change: JsonObject) -> JsonObject:
    template = {"metadata": {"labels": _LABELS}, "spec": _POD | change}
    selector = {"matchLabels": _LABELS}
    return {"spec": {"serviceName": "a", "selector": selector, "template": template}}


def _role(name: str, *subjects: dict[str, str]) -> JsonObject:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    return {"roleRef": reference, "subjects": list(subjects)}


def _account(namespace: str, name: str = "agent") -> dict[str, str]:
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


_AGENT_ROLE = "spes-member-agent"
_EVERYBODY = {
    "kind": "Group",
    "name": "system:authenticated",
    "apiGroup": "rbac.authorization.k8s.io",
}
_BINDINGS: Mapping[str, Callable[[str], JsonObject]] = {
    "the member's agent": lambda where: _role(_AGENT_ROLE, _account(where)),
    "another member's agent": lambda _: _role(_AGENT_ROLE, _account("spes-member-uni-x")),
    "the hub itself": lambda _: _role(_AGENT_ROLE, _account("spes-system", "spes-hub")),
    "everybody": lambda _: _role(_AGENT_ROLE, _EVERYBODY),
    "ClusterRole cluster-admin": lambda where: _role("cluster-admin", _account(where)),
}


def read_attempts(page: Path) -> list[Attempt]:
    """Every line of every table of a page; the heading above it says who tries."""
    attempts, who = [], ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            account, namespace = line.split("`")[1::2]
            who = f"{namespace}:{account}"
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] != "Verb":
            verb, what, where, extra, answer = cells
            attempts.append(
                Attempt(who=who, verb=verb, what=what, where=where, extra=extra, answer=answer)
            )
    return attempts
