"""Finds and removes what deleted jobs left behind. I/O; the order is decided by `removal`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta

from spes_operator.clock import Clock
from spes_operator.errors import ConflictError, UnavailableError
from spes_operator.hub.removal import Leftover, plan_removal
from spes_operator.hub.sync_host import GRACE
from spes_operator.hub.sync_link import SyncLink
from spes_operator.k8s.api import KubeApi
from spes_operator.k8s.events import Event, post
from spes_operator.names import HUB_OWNER, LABEL_JOB, LABEL_JOB_UID, ObjectKey
from spes_operator.reasons import JOB_DELETED

logger = logging.getLogger(__name__)

_KINDS = ("TrainerAssignment", "Secret", "ConfigMap")


class Garbage:
    """Leftovers by the UID of their job; remembers only when peers were asked to end."""

    def __init__(self, api: KubeApi, clock: Clock, servers: Sequence[str]) -> None:
        """`servers`: kinds of what sync servers consist of."""
        self._api = api
        self._servers = servers
        self._clock = clock
        self._asked_at: dict[str, float] = {}

    async def collect(self, links: Mapping[ObjectKey, SyncLink]) -> timedelta | None:
        """One pass over all leftovers; answers when to look again, None if nothing is left."""
        jobs = {job["metadata"]["uid"] for job in (await self._api.list("SpesJob")).items}
        found: dict[str, dict[str, list[ObjectKey]]] = {}
        owners: dict[str, ObjectKey] = {}
        for kind in (*_KINDS, *self._servers):
            for obj in (await self._api.list(kind)).items:
                metadata = obj["metadata"]
                uid = metadata.get("labels", {}).get(LABEL_JOB_UID, "")
                if uid and uid not in jobs:
                    key = ObjectKey(metadata["namespace"], metadata["name"])
                    found.setdefault(uid, {}).setdefault(kind, []).append(key)
                    if kind in self._servers:
                        name = metadata["labels"].get(LABEL_JOB, "")
                        owners[uid] = ObjectKey(metadata["namespace"], name)
        waits = [
            await self._remove(uid, kinds, owners.get(uid), links) for uid, kinds in found.items()
        ]
        return min((wait for wait in waits if wait is not None), default=None)

    async def _remove(
        self,
        uid: str,
        kinds: Mapping[str, list[ObjectKey]],
        job: ObjectKey | None,
        links: Mapping[ObjectKey, SyncLink],
    ) -> timedelta | None:
        link = links.get(job) if job else None
        now = self._clock.monotonic()
        state = link.state if link else None
        asked_at = self._asked_at.get(uid)
        removal = plan_removal(
            Leftover(
                job_uid=uid,
                assignments=tuple(kinds.get("TrainerAssignment", ())),
                secrets=tuple(kinds.get("Secret", ())),
                config_maps=tuple(kinds.get("ConfigMap", ())),
                servers=tuple((kind, key) for kind in self._servers for key in kinds.get(kind, ())),
                sync=state if state and state.job_uid == uid else None,
                grace=GRACE,
                asked_for=None if asked_at is None else timedelta(seconds=now - asked_at),
            )
        )
        if removal.drain is not None and link is not None and job is not None:
            self._asked_at[uid] = now
            await self._say(job)
            try:
                await link.control.drain(removal.drain)
            except (UnavailableError, ConflictError) as error:
                logger.warning("deleted job cannot be drained uid=%s error=%s", uid, error)
        for kind, key in removal.delete:
            await self._api.delete(kind, key.namespace, key.name)
        if removal.delete:
            self._asked_at.pop(uid, None)
            logger.info("leftovers removed uid=%s objects=%d", uid, len(removal.delete))
        return removal.again_in

    async def _say(self, job: ObjectKey) -> None:
        event = Event(
            reason=JOB_DELETED,
            message="the job was deleted; its peers push what they have and stop",
            kind="SpesJob",
            namespace=job.namespace,
            name=job.name,
            time=self._clock.now(),
        )
        await post(self._api, HUB_OWNER, event)
