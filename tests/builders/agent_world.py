"""One real agent between two real API servers, the hub's side played by hand.

The agent runs with the rights that the chart gives, on both sides; the test is admin on both.
"""

import base64
import json
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Any, Self

import yaml
from builders.control_plane import ControlPlane
from builders.hub_program import free_port
from builders.live_objects import LiveObjects, condition, until
from builders.operator_program import OperatorProgram
from builders.rights import (
    Account,
    apply,
    binding,
    install_member_rights,
    make_account,
    make_namespaces,
)
from spes_operator.k8s.api import JsonObject
from spes_operator.names import member_namespace

LOCAL_ACCOUNT = "spes-member"
# Of a check, which asks once; for a loaded machine.
_CHECK_SECONDS = 90
_SLOT = {"name": "a", "memory": "1Gi"}
# The job's fields that a test does not care about.
_SYNC = {"endpoint": "sync.example:7443", "caBundle": "PEM"}


class AgentWorld:
    """A member that is invited; its agent does not run at first."""

    def __init__(self, hub: ControlPlane, member: ControlPlane, folder: Path) -> None:
        """Make its namespaces, accounts and invitation. The hub has definitions and rights."""
        self.hub, self.member, self.folder = hub, member, folder
        self.name = f"uni-{uuid.uuid4().hex[:6]}"
        self.at_hub = member_namespace(self.name)
        self.namespace = f"spes-{self.name}"
        self._agent_account = Account(name="agent", namespace=self.at_hub)
        self.on_hub, self.here = LiveObjects(hub.kubeconfig), LiveObjects(member.kubeconfig)
        make_namespaces(hub, self.at_hub)
        make_account(hub, self._agent_account)
        apply(hub, binding("spes-member-candidate", self._agent_account, namespace=self.at_hub))
        make_namespaces(member, self.namespace)
        member.kubectl(
            *("label", "namespace", self.namespace),
            "pod-security.kubernetes.io/enforce=restricted",
        )
        account = Account(name=LOCAL_ACCOUNT, namespace=self.namespace)
        install_member_rights(member, account)
        self._kubeconfig = account.kubeconfig(member)
        self.invitation = folder / "invitation"
        self.invite()
        self._probe_port, self._metrics_port = free_port(), free_port()
        self.agent = self._program({})

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the agent, at once: what a clean end takes is kopf's."""
        if self.agent.is_running():
            self.agent.kill()
        self.on_hub.close()
        self.here.close()
        self.hub.kubectl("delete", "namespace", self.at_hub, "--wait=false")
        self.member.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def invite(self) -> None:
        """Write an invitation with a token of ten minutes, the shortest there is."""
        token = self.folder / "invited.token"
        token.touch(0o600)
        token.write_text(
            self.hub.kubectl("create", "token", "agent", "-n", self.at_hub, "--duration=600s")
        )
        written = self.hub.kubeconfig_with_token(f"agent-{self.name}", token)
        document = yaml.safe_load(written.read_text())
        user = document["users"][0]["user"]
        user.pop("tokenFile")
        user["token"] = token.read_text().strip()
        self.invitation.touch(0o600)
        self.invitation.write_text(yaml.safe_dump(document))

    def accept(self) -> None:
        """Give the agent its rights, as the hub does."""
        apply(self.hub, binding("spes-member-agent", self._agent_account, namespace=self.at_hub))

    def configure(self, **config: Any) -> None:
        """Give the agent, which does not run, other settings."""
        self.agent = self._program(config)

    def _program(self, config: dict[str, Any]) -> OperatorProgram:
        given = {
            "namespace": self.namespace,
            "image": "trainer:1",
            "slots": [_SLOT],
            "state": str(self.folder / "state"),
            "heartbeatSeconds": 1,
            "address": "127.0.0.1",
            "probePort": self._probe_port,
            "metricsPort": self._metrics_port,
        }
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(given | config))
        self._options = (
            *("--name", self.name, "--hub-kubeconfig", str(self.invitation)),
            *("--kubeconfig", str(self._kubeconfig), "--config", str(path)),
        )
        return OperatorProgram(self.folder, "agent", "member", *self._options)

    def check(self) -> subprocess.CompletedProcess[str]:
        """What `spes-operator check` says of the agent's way to its hub."""
        return subprocess.run(
            [str(Path(sys.executable).with_name("spes-operator")), "check", *self._options],
            capture_output=True,
            text=True,
            check=False,
            timeout=_CHECK_SECONDS,
        )

    def assign(self, name: str = "tiny-a", **spec: Any) -> None:
        """Write an assignment with its one-time token, as the hub does."""
        metadata = {"namespace": self.at_hub, "name": f"{name}-join"}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata | {"annotations": {"spes.dev/token-id": "t1"}},
            "data": {"token": base64.b64encode(b"t1.secret").decode()},
        }
        self.on_hub.apply(secret)
        given = {
            "jobUID": "uid-1",
            "slot": "a",
            "desired": "Run",
            "template": {"gracePeriodSeconds": 5},
            "templateHash": "h1",
            "joinSecret": f"{name}-join",
            "sync": _SYNC,
        }
        self.on_hub.apply(
            {
                "apiVersion": "spes.dev/v1alpha1",
                "kind": "TrainerAssignment",
                "metadata": {"namespace": self.at_hub, "name": name},
                "spec": given | spec,
            }
        )

    def jobs(self) -> list[JsonObject]:
        """Jobs in the member's cluster."""
        return self.here.list("Job", self.namespace)

    def wait_job(self) -> JsonObject:
        """The one Job, once it is there."""
        until(lambda: len(self.jobs()) == 1, self.agent.log)
        return self.jobs()[0]

    def pods(self) -> list[JsonObject]:
        """Pods in the member's cluster."""
        return self.here.list("Pod", self.namespace)

    def wait_pod(self) -> JsonObject:
        """The one pod, once it is there."""
        until(lambda: len(self.pods()) == 1, self.agent.log)
        return self.pods()[0]

    def set_pod_status(self, pod: JsonObject, **status: Any) -> None:
        """Play the kubelet."""
        self.member.kubectl(
            *("patch", "pod", pod["metadata"]["name"], "-n", self.namespace),
            *("--subresource=status", "--type=merge", "-p", json.dumps({"status": status})),
        )

    def wait_condition(self, kind: str, reason: str, name: str = "tiny-a") -> JsonObject:
        """A condition of the assignment, once it has that reason."""
        found = self.on_hub.wait(
            "TrainerAssignment",
            self.at_hub,
            name,
            lambda item: condition(item, kind).get("reason") == reason,
        )
        return condition(found, kind)

    def is_alive(self) -> bool:
        """What a liveness probe sees."""
        return self._answers(self._probe_port, "healthz")

    def is_ready(self) -> bool:
        """What a readiness probe sees."""
        return self._answers(self._metrics_port, "readyz")

    def metric(self, series: str) -> float:
        """The value of a series."""
        url = f"http://127.0.0.1:{self._metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return float(next(line for line in lines if line.startswith(f"{series} ")).split()[-1])

    def _answers(self, port: int, path: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5):
                return True
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def report(self) -> JsonObject:
        """What the member says about itself, once it does."""
        found = self.on_hub.wait(
            "MemberReport", self.at_hub, "report", lambda item: item.get("status")
        )
        status: JsonObject = found["status"]
        return status
