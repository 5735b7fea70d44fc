"""One kind cluster: made, asked with kubectl as a person asks, broken from its nodes, and removed.

What it needs (a Docker daemon, `kind`, `kubectl`, a node image) is brought by `hack/kind`.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import yaml
from spes_operator.k8s.api import JsonObject

# Of every cluster, container and network: whatever is left of a run is found by it.
PREFIX = "spes-e2e-"
NETWORK = "spes-e2e"
GPU = "nvidia.com/gpu"
# Far above the usual, for a loaded machine.
_CREATE_SECONDS = 420
_COMMAND_SECONDS = 180
# A containerd gives every container the mounts of this file.
_CONTAINER_BASE = "/etc/containerd/cri-base.json"


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A folder of this machine on every node of a cluster."""

    source: Path
    target: str
    in_containers: bool = False
    """In every container too, at the same path."""


@dataclass(frozen=True, kw_only=True)
class KindCluster:
    """A running cluster."""

    name: str
    folder: Path
    """Of its kubeconfig."""
    workers: int = 0
    node_image: str = ""
    """Empty: kind's own choice."""
    mounts: Sequence[Mount] = field(default=())

    def __enter__(self) -> Self:
        """Itself, made anew."""
        self.remove()
        try:
            self._create()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove it."""
        self.remove()

    @property
    def kubeconfig(self) -> Path:
        """Of its admin, from this machine."""
        return self.folder / f"{self.name}.kubeconfig"

    @property
    def nodes(self) -> list[str]:
        """The control plane first; containers are named as their nodes."""
        names = ["control-plane", *("worker" + (str(n) if n > 1 else "") for n in self._numbers())]
        return [f"{self._full_name}-{name}" for name in names]

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = 120) -> str:
        """What kubectl prints, as cluster admin.

        Raises:
            AssertionError: It failed; holds what it says.
        """
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]
        return run(*command, stdin=stdin, seconds=seconds)

    def get(self, *arguments: str) -> JsonObject:
        """`kubectl get ... -o json`."""
        found: JsonObject = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    def load(self, *images: str) -> None:
        """Bring images of the Docker daemon to every node."""
        run("kind", "load", "docker-image", *images, "--name", self._full_name, seconds=600)

    def address(self, node: str = "") -> str:
        """Of a node, by default of the control plane, in the clusters' network."""
        address = f'{{{{(index .NetworkSettings.Networks "{NETWORK}").IPAddress}}}}'
        return run("docker", "inspect", "--format", address, node or self.nodes[0]).strip()

    def on_node(self, node: str, *command: str, stdin: str | None = None) -> str:
        """What a command in the node's container prints."""
        return run("docker", "exec", "--interactive", node, *command, stdin=stdin)

    def memory_of(self, container: str) -> int:
        """Bytes that the only container of that name on the control plane's node works with."""
        said = json.loads(self.on_node(self.nodes[0], "crictl", "stats", "--output", "json"))
        (found,) = (
            one["memory"]["workingSetBytes"]["value"]
            for one in said["stats"]
            if one["attributes"]["metadata"]["name"] == container and "memory" in one
        )
        return int(found)

    def lend_gpu(self, node: str, labels: Mapping[str, str]) -> None:
        """Let a node say that it has one GPU, as a device plugin would."""
        self.kubectl("label", "--overwrite", "node", node, *(f"{k}={v}" for k, v in labels.items()))
        gpus = {GPU: "1"}
        patch = json.dumps({"status": {"capacity": gpus, "allocatable": gpus}})
        self.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", patch)

    def remove(self) -> None:
        """Delete it, whatever is left of it."""
        run("kind", "delete", "cluster", "--name", self._full_name, seconds=_COMMAND_SECONDS)

    @property
    def _full_name(self) -> str:
        return PREFIX + self.name

    def _numbers(self) -> range:
        return range(1, self.workers + 1)

    def _create(self) -> None:
        command = ["env", f"KIND_EXPERIMENTAL_DOCKER_NETWORK={NETWORK}"]
        command += ["kind", "create", "cluster", "--quiet", "--name", self._full_name]
        command += ["--config", "-", "--kubeconfig", str(self.kubeconfig), "--wait", "5m"]
        command += ["--image", self.node_image] if self.node_image else []
        run(*command, stdin=yaml.safe_dump(self._config()), seconds=_CREATE_SECONDS)
        for node in self.nodes:
            self._mount_in_containers(node)

    def _config(self) -> JsonObject:
        mounts = [
            {"hostPath": str(one.source), "containerPath": one.target, "readOnly": True}
            for one in self.mounts
        ]
        roles = ["control-plane", *("worker" for _ in self._numbers())]
        return {
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "nodes": [{"role": role, "extraMounts": mounts} for role in roles],
        }

    def _mount_in_containers(self, node: str) -> None:
        shared = [
            {
                "destination": one.target,
                "source": one.target,
                "type": "bind",
                "options": ["rbind", "ro"],
            }
            for one in self.mounts
            if one.in_containers
        ]
        if not shared:
            return
        base = json.loads(self.on_node(node, "cat", _CONTAINER_BASE))
        base["mounts"] += shared
        self.on_node(node, "tee", _CONTAINER_BASE, stdin=json.dumps(base))
        self.on_node(node, "systemctl", "restart", "containerd")


def run(*command: str, stdin: str | None = None, seconds: float = _COMMAND_SECONDS) -> str:
    """What a command prints.

    Raises:
        AssertionError: It failed; holds the end of what it says.
    """
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, timeout=seconds
    )
    said = (done.stdout + done.stderr)[-4000:]
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{said}"
    return done.stdout
