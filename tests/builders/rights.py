"""The rights of hub and members as the chart gives them, on a real API server."""

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from builders.control_plane import ControlPlane
from spes_operator.k8s.api import JsonObject

FILES = Path(__file__).parents[2] / "helm/spes/files"
HUB_NAMESPACE = "spes-system"
# The API server compiles a policy some time after it was written.
POLICY_SECONDS = 30.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Account:
    """A ServiceAccount."""

    name: str
    namespace: str

    @property
    def subject(self) -> dict[str, str]:
        """As a binding names it."""
        return {"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}

    def kubeconfig(self, plane: ControlPlane, url: str = "") -> Path:
        """A kubeconfig with a token of its own; `url`: of a door before the API server."""
        token = plane.folder / f"{self.namespace}-{self.name}.token"
        token.touch(0o600)
        token.write_text(plane.kubectl("create", "token", self.name, "-n", self.namespace))
        door = url.rpartition(":")[2]
        return plane.kubeconfig_with_token(f"{self.namespace}:{self.name}{door}", token, url)


HUB = Account(name="spes-hub", namespace=HUB_NAMESPACE)


def install_hub_rights(plane: ControlPlane) -> None:
    """The hub's account, all roles, and the admission policies, in force."""
    make_namespaces(plane, HUB_NAMESPACE)
    for name in (
        "hub-clusterrole",
        "hub-in-own-namespace-role",
        "hub-in-job-namespace-role",
        "hub-in-member-clusterrole",
        "member-agent-clusterrole",
        "admission-policy",
    ):
        plane.kubectl("apply", "--server-side", "-f", str(FILES / f"{name}.yaml"))
    make_account(plane, HUB)
    apply(
        plane,
        binding("spes-hub", HUB),
        binding("spes-hub-in-own-namespace", HUB, namespace=HUB_NAMESPACE),
    )
    _await_policies(plane)


def install_member_rights(plane: ControlPlane, account: Account) -> None:
    """The agent's account in its own cluster, with its rights; its namespace exists."""
    plane.kubectl("apply", "--server-side", "-f", str(FILES / "member-local-role.yaml"))
    make_account(plane, account)
    apply(
        plane,
        binding("spes-member-local", account, namespace=account.namespace),
        binding("spes-member-identity", account),
        binding("spes-member-nodes", account),
    )


def allow_jobs(plane: ControlPlane, namespace: str) -> None:
    """Let the hub run sync servers in a namespace."""
    apply(plane, binding("spes-hub-in-job-namespace", HUB, namespace=namespace))


def make_namespaces(plane: ControlPlane, *names: str) -> None:
    """Namespaces, unless they exist."""
    apply(
        plane,
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names),
    )


def make_account(plane: ControlPlane, account: Account) -> None:
    """The ServiceAccount itself."""
    metadata = {"name": account.name, "namespace": account.namespace}
    apply(plane, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})


def binding(role: str, account: Account, *, namespace: str = "") -> JsonObject:
    """A binding of a ClusterRole: in a namespace, or in the whole cluster."""
    name = f"{role}-{account.namespace}" if not namespace else role
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": name} | ({"namespace": namespace} if namespace else {}),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [account.subject],
    }


def apply(plane: ControlPlane, *objects: JsonObject) -> None:
    """Write objects as cluster admin."""
    document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(document))


def _await_policies(plane: ControlPlane) -> None:
    """Until each policy refuses what it must, also to accounts that have every right."""
    metadata = {"name": "probe", "namespace": HUB_NAMESPACE}
    container = {"name": "a", "image": "a"}
    labels = {"app": "probe"}
    probes = {
        "spes-hub-bindings": binding("spes-hub", HUB, namespace=HUB_NAMESPACE),
        "spes-hub-secrets": {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata | {"annotations": {"kubernetes.io/service-account.name": "a"}},
            "type": "kubernetes.io/service-account-token",
        },
        "spes-hub-pods": {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": metadata,
            "spec": {
                "serviceName": "a",
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        },
    }
    for policy, obj in probes.items():
        _await_refusal(plane, f"{HUB.namespace}:{HUB.name}", policy, json.dumps(obj), "create")
    spec = {"expirationSeconds": 8 * 86_400}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"/api/v1/namespaces/{HUB_NAMESPACE}/serviceaccounts/{HUB.name}/token"
    agent = "spes-member-probe:agent"
    _await_refusal(
        plane, agent, "spes-member-tokens", json.dumps(request), "create", f"--raw={path}"
    )


def _await_refusal(
    plane: ControlPlane, account: str, policy: str, body: str, *command: str
) -> None:
    everything = (f"--as=system:serviceaccount:{account}", "--as-group=system:masters")
    dry = () if command[-1].startswith("--raw") else ("--dry-run=server",)
    deadline = time.monotonic() + POLICY_SECONDS
    while time.monotonic() < deadline:
        try:
            plane.kubectl(*command, *everything, *dry, "-f", "-", stdin=body)
        except subprocess.CalledProcessError as error:
            if policy in error.stderr:
                return
            raise
        time.sleep(_POLL_SECONDS)
    raise TimeoutError(f"policy {policy} is not in force after {POLICY_SECONDS} s")
