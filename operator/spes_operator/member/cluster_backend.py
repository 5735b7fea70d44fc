"""A member's own cluster over its API server: MemberBackend with Jobs, pods and Secrets.

Reads anew at each call and writes only what it is told. A trainer whose Job is gone is listed for
as long as one of its pods is: until then its slot, volume and Session are taken.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence

from spes_operator.errors import AlreadyExistsError
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.k8s.feed import Feed
from spes_operator.k8s.workloads import LocalJob, Stop
from spes_operator.member.inventory import Placed
from spes_operator.member.job_manifest import (
    LABEL_OF_POD,
    LABEL_SLOT,
    OURS,
    TRAINERS,
    job_manifest,
    read_job,
    read_leftover_pod,
)
from spes_operator.member.pod_facts import has_ended, job_status, waits_for_a_pod
from spes_operator.member.pod_manifest import PodSettings, work_claim
from spes_operator.names import MEMBER_OWNER

logger = logging.getLogger(__name__)

# Selects the Secrets that are copies of the hub's, not the agent's own.
_JOIN = OURS | {"spes.dev/secret": "join"}


class ClusterBackend:
    """One namespace of the member's cluster."""

    def __init__(self, api: KubeApi, feed: Feed, settings: PodSettings) -> None:
        """Nothing is read yet.

        Args:
            api: The member's API server.
            feed: Brings changes of Jobs and pods there.
            settings: Of every trainer's pod.
        """
        self._api = api
        self._feed = feed
        self._settings = settings
        self._namespace = settings.namespace
        self._deletable: frozenset[str] = frozenset()
        self.placed: Mapping[str, Placed] = {}
        """Slot -> where its trainer's pod is, as of the last listing."""

    async def jobs(self) -> tuple[LocalJob, ...]:
        """Every trainer that has a Job or a pod that has not ended."""
        found = (await self._api.list("Job", self._namespace, TRAINERS)).items
        pods = (await self._api.list("Pod", self._namespace, TRAINERS)).items
        by_job: dict[str, list[JsonObject]] = defaultdict(list)
        for pod in pods:
            by_job[pod["metadata"]["labels"].get(LABEL_OF_POD, "")].append(pod)
        self.placed = _placed(pods)
        self._deletable = frozenset(
            job["metadata"]["name"] for job in found if "deletionTimestamp" not in job["metadata"]
        )
        events = await self._events(found, by_job)
        listed = {}
        for job in found:
            name = job["metadata"]["name"]
            status = job_status(job, by_job.pop(name, []), events.get(name, []))
            listed[name] = read_job(job, status)
        for name, left in by_job.items():
            alive = [pod for pod in left if not has_ended(pod)]
            if name and alive:
                listed[name] = read_leftover_pod(alive[0])
        return tuple(listed[name] for name in sorted(listed))

    async def _events(
        self, jobs: Sequence[JsonObject], pods: Mapping[str, list[JsonObject]]
    ) -> Mapping[str, list[JsonObject]]:
        """Events by name of the Job; asked for only when one has no pod, which is seldom."""
        names = {job["metadata"]["name"] for job in jobs}
        if not any(waits_for_a_pod(job, pods.get(job["metadata"]["name"], [])) for job in jobs):
            return {}
        found: dict[str, list[JsonObject]] = defaultdict(list)
        for event in (await self._api.list("Event", self._namespace)).items:
            about = event["involvedObject"]
            if about.get("kind") == "Job" and about.get("name") in names:
                found[about["name"]].append(event)
        return found

    async def create(self, job: LocalJob) -> None:
        """Make its Job, and before that its volume if it has one that stays.

        Raises:
            AlreadyExistsError: A Job of that name is there.
            ForbiddenError: It would exceed a quota, or the agent lacks a right.
            InvalidError: The API server does not take such a Job.
        """
        if self._settings.work_volume.kind == "pvc":
            await self._keep_claim(job)
        await self._api.create(MEMBER_OWNER, job_manifest(job, self._settings))

    async def _keep_claim(self, job: LocalJob) -> None:
        """The volume belongs to the join Secret, which lives as long as the assignment."""
        owners = []
        for mount in job.secret_mounts:
            secret = await self._api.get("Secret", self._namespace, mount.secret)
            metadata = secret["metadata"]
            owners.append(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                }
            )
        claim = work_claim(job, self._settings, OURS)
        claim["metadata"]["ownerReferences"] = owners
        try:
            await self._api.create(MEMBER_OWNER, claim)
        except AlreadyExistsError:
            logger.debug("volume is kept claim=%s", claim["metadata"]["name"])

    async def stop(self, stop: Stop) -> None:
        """Delete the Job; its pods follow with the grace that is in their spec."""
        if stop.name in self._deletable:
            await self._api.delete("Job", self._namespace, stop.name)
            self._deletable -= {stop.name}
            logger.info("job deleted job=%s", stop.name)

    async def changes(self) -> AsyncIterator[None]:
        """Yield whenever a Job or a pod changed; several changes may come as one."""
        changed = asyncio.Event()
        handlers = dict.fromkeys(("Job", "Pod"), lambda _: changed.set())
        feeding = asyncio.create_task(self._feed.run(handlers, self._namespace))
        feeding.add_done_callback(lambda _: changed.set())  # a feed that fails is to be noticed
        try:
            while True:
                await changed.wait()
                if feeding.done():
                    feeding.result()
                changed.clear()
                yield
        finally:
            feeding.cancel()
            await asyncio.wait([feeding])

    async def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """Name -> annotations of every Secret made by `put_secret`."""
        listing = await self._api.list("Secret", self._namespace, _JOIN)
        return {
            item["metadata"]["name"]: item["metadata"].get("annotations", {})
            for item in listing.items
        }

    async def put_secret(
        self, name: str, data: Mapping[str, bytes], annotations: Mapping[str, str]
    ) -> None:
        """Create or replace it; a kubelet brings the change into running pods within a minute."""
        await self._api.apply(
            MEMBER_OWNER,
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "namespace": self._namespace,
                    "name": name,
                    "labels": _JOIN,
                    "annotations": dict(annotations),
                },
                "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
            },
        )

    async def delete_secret(self, name: str) -> None:
        """Remove it, and with it the volume of its trainer."""
        await self._api.delete("Secret", self._namespace, name)


def _placed(pods: Sequence[JsonObject]) -> dict[str, Placed]:
    return {
        pod["metadata"]["labels"][LABEL_SLOT]: Placed(
            node=pod["spec"]["nodeName"], is_ending="deletionTimestamp" in pod["metadata"]
        )
        for pod in pods
        if "nodeName" in pod["spec"] and not has_ended(pod)
    }
