"""SPES on kind clusters as people install it: the chart, `spes`, kubectl; a hub and its members.

Each member is a cluster of its own. Members and hub share one Docker network, so a member reaches
the hub's API server and its sync servers' ports by the address of the hub's node.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
SLOW_SECONDS = 300.0
_CLI_SECONDS = 120
_POLL_SECONDS = 1.0
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


class KindFederation:
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
        rollout = ("rollout", "status", "deployment/spes-hub", "--timeout=5m")
        self.hub.kubectl("-n", HUB_NAMESPACE, *rollout, seconds=_INSTALL_SECONDS)

    def add_member(self, name: str, *, workers: int = 0) -> KindCluster:
        """A member's cluster with its GPU, on the last node; nothing is installed."""
        member = self._cluster(name, mounts=self._mounts, workers=workers)
        self.members[name] = member.__enter__()
        member.load(self._images.operator, self._images.trainer)
        member.lend_gpu(member.nodes[-1], _LABELS)
        return member

    def install_member(self, name: str) -> None:
        """Invite it, create its Secret, install the chart, accept it."""
        member = self.members[name]
        hub = f"https://{self.hub.address()}:{_API_PORT}"
        self.spes("invite", name, "--server", hub)
        member.kubectl("create", "namespace", MEMBER_NAMESPACE)
        join_file = self.folder / f"join-{name}.yaml"
        member.kubectl("-n", MEMBER_NAMESPACE, "create", "-f", str(join_file))
        join_file.unlink()
        tolerations = [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]
        config = {
            "nodes": {"resources": {"memory": "2Gi"}},
            "datasets": [{"name": _TEXT, "hostPath": {"path": _TEXT_FOLDER}}],
            "heartbeatSeconds": HEARTBEAT_SECONDS,
        }
        values = {
            "mode": "member",
            "join": {"existingSecret": JOIN_SECRET},
            "hub": {"cidrs": [f"{self.hub.address()}/32"]},
            "member": {
                "config": config,
                "resources": _RESOURCES,
                "nodeSelector": {"kubernetes.io/hostname": member.nodes[0]},
                "tolerations": tolerations,
            },
        }
        self._install(member, MEMBER_NAMESPACE, values)
        self.spes("accept", name)
        beat = json.dumps({"spec": {"heartbeat": {"intervalSeconds": HEARTBEAT_SECONDS}}})
        self.hub.kubectl("patch", "membercluster", name, "--type=merge", "-p", beat)
        rollout = ("rollout", "status", "deployment/spes-member", "--timeout=5m")
        member.kubectl("-n", MEMBER_NAMESPACE, *rollout, seconds=_INSTALL_SECONDS)

    def submit(self, job: JsonObject) -> None:
        """`kubectl apply` a SpesJob."""
        self.hub.kubectl("-n", JOB_NAMESPACE, "apply", "-f", "-", stdin=yaml.safe_dump(job))

    def job(self, name: str) -> JsonObject:
        """The SpesJob as `kubectl get` has it."""
        return self.hub.get("-n", JOB_NAMESPACE, "spesjob", name)

    def shown(self, name: str) -> str:
        """What a person sees of the job and of the members."""
        jobs = self.hub.kubectl("-n", JOB_NAMESPACE, "get", "spesjob", name, "-o", "wide")
        return f"{jobs}\n{self.hub.kubectl('get', 'memberclusters')}"

    def wait_job(
        self, name: str, holds: Callable[[JsonObject], Any], *, seconds: float = SLOW_SECONDS
    ) -> JsonObject:
        """The SpesJob once it `holds`; the failure shows it as it was last."""
        found: JsonObject = {}

        def look() -> bool:
            found.clear()
            found.update(self.job(name))
            return bool(holds(found))

        wait_until(look, lambda: f"{self.shown(name)}\n{found.get('status')}", seconds=seconds)
        return found

    def wait_owners(self, name: str, *members: str, seconds: float = SLOW_SECONDS) -> JsonObject:
        """The SpesJob once exactly these members own all its experts."""
        return self.wait_job(
            name,
            lambda job: owners(job) == set(members) and is_covered(job),
            seconds=seconds,
        )

    def wait_rounds(self, name: str, more: int, *, seconds: float = SLOW_SECONDS) -> JsonObject:
        """The SpesJob after so many further rounds."""
        wanted = round_of(self.job(name)) + more
        return self.wait_job(name, lambda job: round_of(job) >= wanted, seconds=seconds)

    def trainer(self, member: str) -> JsonObject | None:
        """The member's trainer pod that is not being removed."""
        pods = self.members[member].get(
            *("-n", MEMBER_NAMESPACE, "pods", "-l", "app.kubernetes.io/name=spes-trainer")
        )["items"]
        alive = [
            pod
            for pod in pods
            if "deletionTimestamp" not in pod["metadata"]
            and pod["status"]["phase"] in ("Pending", "Running")
        ]
        return alive[0] if alive else None

    def wait_trainer(self, member: str, *, other_than: str = "") -> str:
        """The name of the member's trainer pod, once one is ready."""
        found: list[JsonObject | None] = []

        def look() -> bool:
            found[:] = [self.trainer(member)]
            pod = found[0]
            return pod is not None and pod["metadata"]["name"] != other_than and is_ready(pod)

        wait_until(look, lambda: f"{found}", seconds=SLOW_SECONDS)
        assert found[0] is not None
        return str(found[0]["metadata"]["name"])

    def cut(self, member: str) -> None:
        """Nothing goes from the member's pods to the hub any more."""
        self._between(member, "--insert")

    def heal(self, member: str) -> None:
        """Take the cut back."""
        self._between(member, "--delete")

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
        for cluster in (*self.members.values(), self.hub):
            cluster.remove()
        subprocess.run(
            ["docker", "network", "rm", NETWORK], capture_output=True, check=False, timeout=60
        )

    def _between(self, member: str, action: str) -> None:
        cluster, hub = self.members[member], self.hub.address()
        for node in cluster.nodes:
            cluster.on_node(
                node,
                "iptables",
                "--wait",
                action,
                "FORWARD",
                "--destination",
                hub,
                "--jump",
                "DROP",
            )

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


def owners(job: JsonObject) -> set[str]:
    """Members that own experts, as the SpesJob says."""
    rows = job.get("status", {}).get("ownership", ())
    return {row["peer"].partition(".")[0] for row in rows if row["experts"]}


def is_covered(job: JsonObject) -> bool:
    """Every expert has an owner."""
    experts = job["status"]["experts"]
    return bool(experts["owned"] == experts["total"])


def round_of(job: JsonObject) -> int:
    """The last committed round; 0 before the first."""
    return int(job.get("status", {}).get("round", 0))


def is_ready(obj: JsonObject) -> bool:
    """Its condition Ready holds."""
    conditions = obj.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def wait_until(holds: Callable[[], bool], told: Callable[[], str], *, seconds: float) -> None:
    """Poll until `holds()`, by whole seconds: each look starts a kubectl."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not in {seconds:.0f} s. {told()}"
        time.sleep(_POLL_SECONDS)


def _write_text(folder: Path) -> Path:
    """Real text: the sources of a few modules of Python's own library."""
    folder.mkdir()
    library = Path(json.__file__).parents[1]
    for path in sorted(library.glob("*.py"))[:_FILES]:
        shutil.copy(path, folder / path.name)
    return folder
