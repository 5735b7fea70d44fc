"""SPES on kind clusters as people install it: the chart, `spes`, kubectl; a hub and its members.

Each member is a cluster of its own. Members and hub share one Docker network, so a member reaches
the hub's API server and its sync servers' ports by the address of the hub's node.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from builders.chart import CHART, built_helm
from builders.kind_cluster import NETWORK, KindCluster, Mount, run
from spes_operator.k8s.api import JsonObject
from spes_operator.names import JOIN_SECRET

HUB_NAMESPACE, MEMBER_NAMESPACE, JOB_NAMESPACE = "spes-system", "spes", "research"
HEARTBEAT_SECONDS = 5
_TEXT = "text"
_TEXT_FOLDER = "/srv/datasets/text"
_FRAMEWORKS = "/opt/frameworks"
_PRODUCT, _MEMORY = "STAND-IN", "64"
_LABELS = {"nvidia.com/gpu.product": _PRODUCT, "nvidia.com/gpu.memory": _MEMORY}
_API_PORT = 6443
_RESOURCES = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
# Steps of an installation, on a loaded machine.
_INSTALL_SECONDS = 300
_CLI_SECONDS = 120
_FILES = 60


@dataclass(frozen=True, kw_only=True)
class Images:
    """What is loaded into the nodes; the operator's also runs sync servers."""

    operator: str
    trainer: str
    node: str
    frameworks: Path

    @classmethod
    def of_environment(cls) -> "Images | None":
        """As hack/kind/e2e.sh says; None if it did not start this."""
        names = ("OPERATOR_IMAGE", "TRAINER_IMAGE", "NODE_IMAGE", "FRAMEWORKS")
        given = [os.environ.get(f"SPES_E2E_{name}") for name in names]
        if any(one is None for one in given):
            return None
        operator, trainer, node, frameworks = (str(one) for one in given)
        return cls(operator=operator, trainer=trainer, node=node, frameworks=Path(frameworks))


class KindInstallation:
    """The hub's cluster and the members', and what is installed in them."""

    def __init__(self, folder: Path, images: Images) -> None:
        """Nothing is there at first; the folder gets kubeconfigs, join files and the text."""
        self.folder, self._images = folder, images
        self._mounts = (
            Mount(source=images.frameworks, target=_FRAMEWORKS, in_containers=True),
            Mount(source=_write_text(folder / _TEXT), target=_TEXT_FOLDER),
        )
        self.hub = self._cluster("hub", mounts=())
        self.members: dict[str, KindCluster] = {}

    def make_hub(self) -> None:
        """The hub's cluster, with the images and the jobs' namespace."""
        self.hub.__enter__()
        self.hub.load(self._images.operator)
        self.hub.kubectl("create", "namespace", JOB_NAMESPACE)

    def install_hub(self, **resources: JsonObject) -> None:
        """Install the chart, or upgrade it with other resources of the hub."""
        config = {
            "jobNamespaces": [JOB_NAMESPACE],
            "exposure": {"nodePort": {"externalHost": self.hub.address()}},
            "sync": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        }
        values = {"mode": "hub", "hub": {"config": config, "resources": _RESOURCES | resources}}
        self._install(self.hub, HUB_NAMESPACE, values)
        self._wait_rollout(self.hub, HUB_NAMESPACE, "spes-hub")

    def add_member(self, name: str, *, workers: int = 0) -> KindCluster:
        """A member's cluster with its GPU, on the last node; nothing is installed."""
        member = self._cluster(name, mounts=self._mounts, workers=workers)
        self.members[name] = member.__enter__()
        member.load(self._images.operator, self._images.trainer)
        member.lend_gpu(member.nodes[-1], _LABELS)
        return member

    def install_member(self, name: str) -> None:
        """Invite it, create its Secret, install the chart, accept it; its agent is ready then."""
        member = self.members[name]
        hub = f"https://{self.hub.address()}:{_API_PORT}"
        self.spes("invite", name, "--server", hub)
        member.kubectl("create", "namespace", MEMBER_NAMESPACE)
        join_file = self.folder / f"join-{name}.yaml"
        member.kubectl("-n", MEMBER_NAMESPACE, "create", "-f", str(join_file))
        join_file.unlink()
        self.install_member_chart(name)
        self.spes("accept", name)
        self.change("membercluster", name, {"heartbeat": {"intervalSeconds": HEARTBEAT_SECONDS}})
        self._wait_rollout(member, MEMBER_NAMESPACE, "spes-member")

    def install_member_chart(self, name: str, **resources: JsonObject) -> None:
        """Install the chart, or upgrade it with other resources of the agent."""
        member = self.members[name]
        config = {
            "nodes": {"resources": {"memory": "3Gi"}},
            "datasets": [{"name": _TEXT, "hostPath": {"path": _TEXT_FOLDER}}],
            "heartbeatSeconds": HEARTBEAT_SECONDS,
        }
        agent = {
            "config": config,
            "resources": _RESOURCES | resources,
            # Not where the GPU is, so that the agent outlives a drain of that node.
            "nodeSelector": {"kubernetes.io/hostname": member.nodes[0]},
            "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        }
        values = {
            "mode": "member",
            "join": {"existingSecret": JOIN_SECRET},
            "hub": {"cidrs": [f"{self.hub.address()}/32"]},
            "member": agent,
        }
        self._install(member, MEMBER_NAMESPACE, values)

    def remove_member(self, name: str) -> None:
        """Its cluster is gone, and the hub forgets it."""
        self.members.pop(name).remove()
        self.hub.kubectl("delete", "membercluster", name, "--timeout=120s")

    def installed(self) -> Iterator[tuple[KindCluster, str]]:
        """Where the chart is, members first."""
        yield from ((member, MEMBER_NAMESPACE) for member in self.members.values())
        yield self.hub, HUB_NAMESPACE

    def change(self, kind: str, name: str, spec: JsonObject) -> None:
        """`kubectl patch` fields of the spec of a SpesJob or MemberCluster."""
        patch = ("--type=merge", "-p", json.dumps({"spec": spec}))
        self.hub.kubectl("-n", JOB_NAMESPACE, "patch", kind, name, *patch)

    def spes(self, *arguments: str) -> str:
        """What a command of `spes` prints, called by the hub's admin."""
        command = [sys.executable, "-m", "spes_operator.cli", *arguments]
        done = subprocess.run(
            [*command, "--kubeconfig", str(self.hub.kubeconfig)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=_CLI_SECONDS,
        )
        assert done.returncode == 0, f"spes {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def helm(self, cluster: KindCluster, *arguments: str, stdin: str | None = None) -> str:
        """What helm prints."""
        command = [str(built_helm()), "--kubeconfig", str(cluster.kubeconfig), *arguments]
        return run(*command, stdin=stdin, seconds=_INSTALL_SECONDS)

    def close(self) -> None:
        """Remove every cluster, and the network between them."""
        with contextlib.ExitStack() as last_to_first:
            last_to_first.callback(_remove_network)
            for cluster in (self.hub, *self.members.values()):
                last_to_first.callback(cluster.remove)

    def _wait_rollout(self, cluster: KindCluster, namespace: str, deployment: str) -> None:
        rollout = ("rollout", "status", f"deployment/{deployment}", "--timeout=5m")
        cluster.kubectl("-n", namespace, *rollout, seconds=_INSTALL_SECONDS)

    def _install(self, cluster: KindCluster, namespace: str, values: JsonObject) -> None:
        self.helm(
            cluster,
            *("upgrade", "--install", "spes", str(CHART), "--namespace", namespace),
            *("--create-namespace", "--values", "-"),
            stdin=yaml.safe_dump(values | {"images": self._image_values()}),
        )

    def _image_values(self) -> JsonObject:
        def value(image: str) -> JsonObject:
            repository, _, tag = image.rpartition(":")
            return {"repository": repository, "tag": tag}

        return {
            "operator": value(self._images.operator),
            "trainer": value(self._images.trainer),
        }

    def _cluster(self, name: str, *, mounts: Sequence[Mount], workers: int = 0) -> KindCluster:
        return KindCluster(
            name=name,
            folder=self.folder,
            workers=workers,
            node_image=self._images.node,
            mounts=mounts,
        )


def _remove_network() -> None:
    """Unless it is gone, or was never made."""
    subprocess.run(
        ["docker", "network", "rm", NETWORK], capture_output=True, check=False, timeout=60
    )


def _write_text(folder: Path) -> Path:
    """Real text: the sources of a few modules of Python's own library."""
    folder.mkdir()
    library = Path(json.__file__).parents[1]
    for path in sorted(library.glob("*.py"))[:_FILES]:
        shutil.copy(path, folder / path.name)
    return folder
