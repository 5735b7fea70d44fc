"""SPES at work on kind clusters: jobs, trainers and faults, as a person gives and sees them."""

import base64
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from builders.kind_cluster import KindCluster
from builders.kind_installation import JOB_NAMESPACE, MEMBER_NAMESPACE, KindInstallation
from builders.kind_objects import is_covered, is_ready, owners, round_of, wait_until
from spes_operator.k8s.api import JsonObject

SLOW_SECONDS = 300.0
_TRAINERS = "app.kubernetes.io/name=spes-trainer"
# An image without shell has no tar; its Python has.
_PACK = (
    "t = tarfile.open(fileobj=b, mode='w'); t.add('{}', arcname='.'); t.close(); "
    "print(base64.b64encode(b.getvalue()).decode())"
)


class KindFederation(KindInstallation):
    """What was installed, and what is done to it."""

    def submit(self, job: JsonObject) -> None:
        """`kubectl apply` a SpesJob."""
        self.hub.kubectl("-n", JOB_NAMESPACE, "apply", "-f", "-", stdin=yaml.safe_dump(job))

    def kill(self, cluster: KindCluster, namespace: str, labels: str) -> None:
        """Let pods vanish without a word."""
        now = ("--grace-period=0", "--force", "--wait=false")
        cluster.kubectl("-n", namespace, "delete", "pods", "-l", labels, *now)

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
        pods = self.members[member].get(*("-n", MEMBER_NAMESPACE, "pods", "-l", _TRAINERS))["items"]
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

    def wait_no_trainers(self, member: str) -> None:
        """Until the member's cluster has no Job of a trainer, and no pod."""
        cluster = self.members[member]
        trainers = ("-n", MEMBER_NAMESPACE, "get", "jobs,pods", "-l", _TRAINERS)
        wait_until(
            lambda: not cluster.kubectl(*trainers, "-o", "name").strip(),
            lambda: cluster.kubectl(*trainers),
            seconds=SLOW_SECONDS,
        )

    def checkpoint(self, name: str, folder: Path) -> Path:
        """The model as a Hugging Face folder, exported by the sync server's pod."""
        pod, taken = f"{name}-sync-0", "/sync/taken"
        inside = ("-n", JOB_NAMESPACE, "exec", pod, "--")
        self.hub.kubectl(*inside, "spes-sync", "export", "/sync", "--to", taken, seconds=240)
        pack = f"import tarfile, sys, base64, io; b = io.BytesIO(); {_PACK.format(taken)}"
        packed = base64.b64decode(self.hub.kubectl(*inside, "python", "-c", pack, seconds=240))
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        return folder

    def reaches(self, member: str, host: str, port: int) -> bool:
        """Whether the member's trainer gets a TCP connection there."""
        connect = (
            f"import socket; s = socket.socket(); s.settimeout(5); "
            f"print(s.connect_ex(({host!r}, {port})))"
        )
        inside = ("-n", MEMBER_NAMESPACE, "exec", self.wait_trainer(member), "--", "python", "-c")
        return self.members[member].kubectl(*inside, connect).strip() == "0"

    def cut(self, member: str) -> None:
        """Nothing goes from the member's pods to the hub any more."""
        self._between(member, "--insert")

    def heal(self, member: str) -> None:
        """Take the cut back."""
        self._between(member, "--delete")

    def _between(self, member: str, action: str) -> None:
        """Before any other rule of the nodes, those of network policies among them."""
        cluster, hub = self.members[member], self.hub.address()
        rule = ("PREROUTING", "--destination", hub, "--jump", "DROP")
        for node in cluster.nodes:
            cluster.on_node(node, "iptables", "--wait", "--table", "raw", action, *rule)
