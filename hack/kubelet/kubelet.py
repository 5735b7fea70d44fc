"""Kubelet: all nodes of one cluster. Gives pods their nodes, and pods on present nodes a worker.

Level-triggered: after any change it looks at everything again. Orders, which only tests give, make
nodes and pods suffer what machines suffer.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from spes_operator.errors import ConflictError, NotFoundError, SpesError

from kubelet.cluster import Cluster
from kubelet.errors import OrderError, UnsupportedPodError
from kubelet.mirror import Mirror
from kubelet.nodes import Node
from kubelet.pod_spec import Json, read_pod
from kubelet.pod_status import Fate
from kubelet.proxies import Proxies
from kubelet.scheduling import choose_node
from kubelet.volumes import PodFolder, claim_folder
from kubelet.worker import PodWorker, Site

logger = logging.getLogger(__name__)

_KINDS = ("Pod", "Node", "Secret", "ConfigMap", "PersistentVolumeClaim", "Service")
_DEBOUNCE_SECONDS = 0.02
_RETRY_SECONDS = 1.0
_SHUTDOWN = Fate(
    reason="Terminated",
    message="Pod was terminated in response to imminent node shutdown.",
    disruption="TerminationByKubelet",
    failed=True,
)


class Kubelet:
    """The nodes of one cluster, and the pods on them."""

    def __init__(
        self, cluster: Cluster, folder: Path, nodes: Sequence[Node], image: Mapping[str, str]
    ) -> None:
        """Play `nodes`; everything lies in `folder`; `image`: the environment that images set."""
        self._cluster = cluster
        self._pods_folder = folder / "pods"
        self._claims = folder / "claims"
        self._nodes = {node.name: node for node in nodes}
        self._dirty = asyncio.Event()
        self.mirror = Mirror(cluster.api, _KINDS, self._dirty.set)
        self.proxies = Proxies(lambda: self.mirror.all("Pod"))
        self._site = Site(cluster=cluster, lookup=self.mirror.get, image_environment=image)
        self._workers: dict[str, PodWorker] = {}
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._done: set[str] = set()
        self._bound: dict[str, str] = {}
        self._addresses = _addresses()
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled; no process is left then."""
        self._claims.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.mirror.follow())
                for node in self._nodes.values():
                    await node.start()
                tasks.create_task(self._work())
        finally:
            for node in self._nodes.values():
                node.fall_silent()
            await self._vanish(list(self._workers))
            self.proxies.close()

    async def _work(self) -> None:
        while True:
            await self._dirty.wait()
            await asyncio.sleep(_DEBOUNCE_SECONDS)
            self._dirty.clear()
            if not self.mirror.complete:
                continue
            try:
                await self._sync()
            except SpesError as error:
                logger.warning("pass failed error=%s", error)
                asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._dirty.set)
            self.ready.set()

    async def _sync(self) -> None:
        """One pass over everything."""
        await self._reap()
        await self._bind_claims()
        await self._schedule()
        for pod in self.mirror.all("Pod"):
            await self._follow_pod(pod)
        for worker in self._workers.values():
            worker.inputs_changed()
        await self.proxies.follow(self.mirror.all("Service"))

    async def _reap(self) -> None:
        """Forget pods that are gone; kill those that were removed by force."""
        present = {pod["metadata"]["uid"] for pod in self.mirror.all("Pod")}
        self._done &= present
        self._bound = {uid: node for uid, node in self._bound.items() if uid in present}
        await self._vanish([uid for uid in self._workers if uid not in present])
        for uid, run in list(self._runs.items()):
            if run.done():
                run.result()
                self._done.add(uid)
                await self._vanish([uid])

    async def _follow_pod(self, raw: Json) -> None:
        metadata, node = raw["metadata"], self._nodes.get(raw["spec"].get("nodeName", ""))
        if node is None or not node.present:
            return
        uid, grace = metadata["uid"], metadata.get("deletionGracePeriodSeconds")
        if uid not in self._workers and uid not in self._done and grace != 0:
            await self._adopt(raw)
        if uid in self._workers and grace is not None:
            self._workers[uid].delete(timedelta(seconds=grace))
        elif grace:  # no process to wait for
            await self._cluster.forget(raw)

    async def _adopt(self, raw: Json) -> None:
        metadata = raw["metadata"]
        try:
            pod = read_pod(raw)
        except UnsupportedPodError as error:
            status = {"phase": "Failed", "reason": "UnsupportedPod", "message": str(error)}
            await self._cluster.merge_status(raw, status)
            self._done.add(metadata["uid"])
            return
        folder = PodFolder(
            path=self._pods_folder / f"{pod.namespace}_{pod.name}_{pod.uid}", claims=self._claims
        )
        address = raw.get("status", {}).get("podIP") or next(self._addresses)
        worker = PodWorker(pod, folder, address, self._site)
        self._workers[pod.uid] = worker
        self._runs[pod.uid] = asyncio.create_task(worker.run())
        self._runs[pod.uid].add_done_callback(lambda _: self._dirty.set())

    async def _vanish(self, uids: Sequence[str]) -> None:
        """End workers at once; their processes are killed, and nobody is told."""
        runs = [self._runs.pop(uid) for uid in uids]
        for uid in uids:
            del self._workers[uid]
        for run in runs:
            run.cancel()
        if runs:
            await asyncio.wait(runs)

    async def _schedule(self) -> None:
        pods = self.mirror.all("Pod")
        placed = [self._as_bound(pod) for pod in pods]
        for index, pod in enumerate(placed):
            metadata = pod["metadata"]
            if pod["spec"].get("nodeName") or "deletionTimestamp" in metadata:
                continue
            if pod["spec"].get("schedulingGates"):
                continue
            node, why = choose_node(pod, self.mirror.all("Node"), placed)
            if node:
                await self._bind(pod, node)
                placed[index] = self._as_bound(pod)
            else:
                await self._cannot_place(pod, why)

    def _as_bound(self, pod: Json) -> Json:
        """The pod with the node it was given, also when the mirror has not seen it yet."""
        node = self._bound.get(pod["metadata"]["uid"])
        return pod if node is None else {**pod, "spec": {**pod["spec"], "nodeName": node}}

    async def _bind(self, pod: Json, node: str) -> None:
        try:
            await self._cluster.bind(pod, node)
        except (ConflictError, NotFoundError) as error:
            logger.info("pod not bound name=%s cause=%s", pod["metadata"]["name"], error)
            return
        self._bound[pod["metadata"]["uid"]] = node

    async def _cannot_place(self, pod: Json, why: str) -> None:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": why,
        }
        known = pod.get("status", {}).get("conditions", ())
        if not any(condition.items() <= one.items() for one in known):
            await self._cluster.merge_status(pod, {"conditions": [condition]})

    async def _bind_claims(self) -> None:
        """Give each claim its folder; remove folders of claims that are gone."""
        claims = self.mirror.all("PersistentVolumeClaim")
        kept = {claim_folder(self._claims, claim) for claim in claims}
        for folder in set(self._claims.iterdir()) - kept:
            shutil.rmtree(folder, ignore_errors=True)
        for claim in claims:
            claim_folder(self._claims, claim).mkdir(mode=0o700, exist_ok=True)
            if claim.get("status", {}).get("phase") != "Bound":
                requests = claim["spec"].get("resources", {}).get("requests", {})
                status = {
                    "phase": "Bound",
                    "accessModes": claim["spec"].get("accessModes", []),
                    "capacity": requests,
                }
                await self._cluster.merge_status(claim, status)

    def signal(self, namespace: str, name: str, number: signal.Signals) -> None:
        """Order: send a signal to a pod's process."""
        for worker in self._workers.values():
            if (worker.pod.namespace, worker.pod.name) == (namespace, name):
                worker.signal(number)
                return
        raise OrderError(f"no pod {namespace}/{name} on these nodes")

    async def lose(self, name: str) -> None:
        """Order: a node's power goes. Its processes are killed, and it says nothing."""
        self._node(name).fall_silent()
        await self._vanish(self._on(name))

    async def shut_down(self, name: str) -> None:
        """Order: a machine is taken back with notice. Its pods end with their grace, then it."""
        node = self._node(name)
        await node.say_goodbye()
        uids = self._on(name)
        for uid in uids:
            self._workers[uid].end(self._workers[uid].pod.grace, _SHUTDOWN)
        while any(uid in self._workers and self._workers[uid].lives for uid in uids):
            await asyncio.sleep(_DEBOUNCE_SECONDS)
        node.fall_silent()
        await self._vanish(self._on(name))

    async def start(self, name: str) -> None:
        """Order: a node that was lost or shut down is there again."""
        node = self._node(name)
        if not node.present:
            await node.start()
            self._dirty.set()

    def _node(self, name: str) -> Node:
        if name not in self._nodes:
            raise OrderError(f"no node {name!r} (expected one of {', '.join(self._nodes)})")
        return self._nodes[name]

    def _on(self, node: str) -> list[str]:
        return [uid for uid, worker in self._workers.items() if worker.pod.node == node]


def _addresses() -> Iterator[str]:
    """Addresses of pods, from a range of 127.0.0.0/8 that other clusters here hardly have."""
    high, low = random.randint(16, 250), random.randint(0, 255)  # noqa: S311 - no secret
    while True:
        for last in range(1, 255):
            yield f"127.{high}.{low}.{last}"
