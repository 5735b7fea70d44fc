"""Finds and removes what deleted jobs left behind. I/O; the order is decided by `removal`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import TypeAlias

from spes_operator.errors import ConflictError, ForbiddenError, UnavailableError
from spes_operator.hub.removal import Leftover, plan_removal
from spes_operator.hub.settings import HubSettings
from spes_operator.hub.sync_host import GRACE
from spes_operator.hub.sync_link import SyncLink
from spes_operator.isolation import Isolation
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.k8s.events import Event, post
from spes_operator.names import HUB_OWNER, LABEL_JOB_UID, ObjectKey, member_namespace
from spes_operator.reasons import JOB_DELETED

logger = logging.getLogger(__name__)

# UID of a job -> the job and the link to its sync server.
Links: TypeAlias = Mapping[str, tuple[ObjectKey, SyncLink]]


class Garbage:
    """Leftovers by the UID of their job; remembers only when peers were asked to end."""

    def __init__(self, api: KubeApi, settings: HubSettings) -> None:
        """Nothing is read yet."""
        self._api = api
        self._clock = settings.clock
        self._servers = settings.host.leftovers
        self._job_namespaces = settings.job_namespaces
        self._asked_at: dict[str, float] = {}

    async def collect(self, links: Links) -> timedelta | None:
        """One pass over all leftovers; answers when to look again, None if nothing is left."""
        jobs = {job["metadata"]["uid"] for job in (await self._api.list("SpesJob")).items}
        found: dict[str, dict[str, list[ObjectKey]]] = {}
        for kind, namespace in await self._places():
            for obj in await self._derived(kind, namespace):
                metadata = obj["metadata"]
                if (uid := metadata["labels"][LABEL_JOB_UID]) not in jobs:
                    key = ObjectKey(metadata["namespace"], metadata["name"])
                    found.setdefault(uid, {}).setdefault(kind, []).append(key)
        self._asked_at = {uid: at for uid, at in self._asked_at.items() if uid in found}
        isolation, waits = Isolation(), []
        for uid, kinds in found.items():
            with isolation.each():
                waits.append(await self._remove(uid, kinds, links.get(uid)))
        isolation.check()
        return min((wait for wait in waits if wait is not None), default=None)

    async def _places(self) -> list[tuple[str, str]]:
        """Kind and namespace of everything that may be left."""
        members = (await self._api.list("MemberCluster")).items
        inside = [member_namespace(member["metadata"]["name"]) for member in members]
        kinds = ("Secret", "ConfigMap", *self._servers)
        return [
            ("TrainerAssignment", ""),
            *(("Secret", namespace) for namespace in inside),
            *((kind, namespace) for namespace in self._job_namespaces for kind in kinds),
        ]

    async def _derived(self, kind: str, namespace: str) -> list[JsonObject]:
        """What was derived from any job; a namespace that the hub may not read holds nothing."""
        try:
            return (await self._api.list(kind, namespace, {LABEL_JOB_UID: None})).items
        except ForbiddenError as error:
            logger.info("not looked at kind=%s namespace=%s error=%s", kind, namespace, error)
            return []

    async def _remove(
        self,
        uid: str,
        kinds: Mapping[str, list[ObjectKey]],
        server: tuple[ObjectKey, SyncLink] | None,
    ) -> timedelta | None:
        job, link = server or (None, None)
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
            try:
                await link.control.drain(removal.drain)
            except (UnavailableError, ConflictError) as error:
                logger.warning("deleted job cannot be drained uid=%s error=%s", uid, error)
            with Isolation().each():  # a namespace that ends takes no Event
                await self._say(job)
        isolation = Isolation()
        for kind, key in removal.delete:
            with isolation.each():
                await self._api.delete(kind, key.namespace, key.name)
        isolation.check()
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
