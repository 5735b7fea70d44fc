"""MemberPass: one pass over all members: their rights, their invitations, their status. I/O."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from spes_operator.clock import Clock
from spes_operator.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    SpesError,
)
from spes_operator.hub.access import agent_binding, served_invitation
from spes_operator.hub.members import Access, member_status
from spes_operator.hub.roster import Roster
from spes_operator.hub.view import MemberSeen
from spes_operator.isolation import Isolation
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.names import (
    AGENT_ROLE,
    ANNOTATION_INVITATION,
    HEARTBEAT_LEASE,
    HUB_OWNER,
    JOIN_TOKEN_SECRET,
    LABEL_JOB_UID,
    member_namespace,
    member_of_namespace,
)
from spes_operator.reasons import ACCESS_NOT_GIVEN, NOT_INVITED

logger = logging.getLogger(__name__)

# Rights that could not be given are tried again after this: a person must act first.
_RETRY = timedelta(seconds=30)


class _Wanted(NamedTuple):
    """What decides about a member's rights; another invitation may mean another namespace."""

    uid: str
    invitation: str
    accepted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    wanted: _Wanted
    access: Access
    at: float


class MemberPass:
    """All members of one hub; gives each its rights once after a start and at every change."""

    def __init__(self, api: KubeApi, roster: Roster, clock: Clock) -> None:
        """Nothing is read yet."""
        self._api = api
        self._roster = roster
        self._clock = clock
        self._given: dict[str, _Given] = {}
        self._members: dict[str, MemberSeen] = {}

    @property
    def seen(self) -> tuple[MemberSeen, ...]:
        """All members, as the last pass saw them."""
        return tuple(self._members.values())

    def hear(self, lease: JsonObject) -> bool:
        """Take notice of a heartbeat as it comes; answers whether it may change a status at once.

        Whose it is, is said by the namespace: what else is in a Lease is the member's own word.
        """
        metadata = lease["metadata"]
        seen = self._members.get(member_of_namespace(metadata["namespace"]))
        if seen is None or metadata["name"] != HEARTBEAT_LEASE:
            return seen is None
        renew_time = str(lease.get("spec", {}).get("renewTime", ""))
        now = self._clock.monotonic()
        self._roster.heartbeats.observe(seen.name, renew_time, now=now, interval=seen.interval)
        return seen.is_silent

    async def reconcile(self) -> None:
        """One pass.

        Raises:
            UnavailableError: The API is away.
            SpesError: What concerns one member was refused; the others were looked at.
        """
        now = self._clock.monotonic()
        members = await self._roster.observe(now=now)
        self._remember(members)
        jobs = await self._jobs()
        isolation = Isolation()
        for seen in members:
            with isolation.each():
                await self._look_at(seen, jobs.get(member_namespace(seen.name), ()))
        isolation.check()

    def _remember(self, members: Sequence[MemberSeen]) -> None:
        """These, and nobody who is gone."""
        self._members = {seen.name: seen for seen in members}
        self._roster.heartbeats.keep_only(self._members)
        for name in self._given.keys() - self._members.keys():
            del self._given[name]

    async def _look_at(self, seen: MemberSeen, assignments: Sequence[str]) -> None:
        access = await self._access(seen)
        closed = await self._close_invitation(seen)
        status = member_status(seen, access=access, assignments=assignments, now=self._clock.now())
        if closed:
            status = status.model_copy(update={"closed_invitation": closed})
        if status != seen.cluster.status:
            document = status.model_dump(by_alias=True, mode="json", exclude_none=True)
            uid = seen.cluster.metadata.uid
            await self._api.patch_status("MemberCluster", "", seen.name, document, uid=uid)

    async def _jobs(self) -> Mapping[str, list[str]]:
        """Namespace -> the UID of its job for each assignment in it."""
        jobs: dict[str, list[str]] = defaultdict(list)
        for item in (await self._api.list("TrainerAssignment")).items:
            metadata = item["metadata"]
            jobs[metadata["namespace"]].append(metadata.get("labels", {}).get(LABEL_JOB_UID, ""))
        return jobs

    async def _access(self, seen: MemberSeen) -> Access:
        """Give or take the agent's role if need be."""
        metadata, accepted = seen.cluster.metadata, seen.cluster.spec.accepted
        invitation = metadata.annotations.get(ANNOTATION_INVITATION, "")
        wanted = _Wanted(metadata.uid, invitation, accepted)
        given, now = self._given.get(seen.name), self._clock.monotonic()
        if given is not None and given.wanted == wanted:
            waits = now - given.at < _RETRY.total_seconds()
            if not given.access.problem or waits:
                return given.access
        access = await (self._give(seen.name) if accepted else self._take(seen.name))
        self._given[seen.name] = _Given(wanted=wanted, access=access, at=now)
        return access

    async def _give(self, member: str) -> Access:
        try:
            await self._api.apply(HUB_OWNER, agent_binding(member))
        except NotFoundError:
            text = f"namespace {member_namespace(member)} is missing; run: spes invite {member}"
            return Access(problem=NOT_INVITED, message=text)
        except (ConflictError, ForbiddenError, InvalidError) as error:
            return _not_given(member, error)
        logger.info("rights given member=%s role=%s", member, AGENT_ROLE)
        return Access()

    async def _take(self, member: str) -> Access:
        try:
            await self._api.delete("RoleBinding", member_namespace(member), AGENT_ROLE)
        except (ConflictError, ForbiddenError, InvalidError) as error:
            return _not_given(member, error)
        return Access()

    async def _close_invitation(self, seen: MemberSeen) -> str:
        """Void the token of an invitation that is not needed any more; answers which one it was."""
        invitation = served_invitation(seen)
        if invitation:
            await self._api.delete("Secret", member_namespace(seen.name), JOIN_TOKEN_SECRET)
            logger.info("invitation closed member=%s", seen.name)
        return invitation


def _not_given(member: str, error: SpesError) -> Access:
    logger.warning("rights not changed member=%s error=%s", member, error)
    return Access(problem=ACCESS_NOT_GIVEN, message=str(error))
