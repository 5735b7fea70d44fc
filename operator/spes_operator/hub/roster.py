"""Roster: every member as the hub sees it, read for one pass of whatever asks. I/O only."""

from __future__ import annotations

from datetime import timedelta

from spes_api.kinds import MemberCluster, MemberReport

from spes_operator.hub.heartbeats import Heartbeats
from spes_operator.hub.twins import with_twins
from spes_operator.hub.view import MemberSeen
from spes_operator.k8s.api import KubeApi
from spes_operator.k8s.typed import Models
from spes_operator.names import (
    HEARTBEAT_LEASE,
    LABEL_MEMBER,
    MEMBER_REPORT,
    ObjectKey,
    member_namespace,
)


class Roster:
    """All members; jobs and members share it, so that each object is parsed once a version."""

    def __init__(self, api: KubeApi, heartbeats: Heartbeats) -> None:
        """Nothing is read yet."""
        self._api = api
        self.heartbeats = heartbeats
        self._clusters = Models(MemberCluster)
        self._reports = Models(MemberReport)

    async def observe(self, *, now: float) -> tuple[MemberSeen, ...]:
        """Every member, in order of name."""
        reports = {
            report.metadata.namespace: report
            for report in await self._reports.read(self._api)
            if report.metadata.name == MEMBER_REPORT
        }
        leases = {
            lease["metadata"]["namespace"]: str(lease.get("spec", {}).get("renewTime", ""))
            for lease in (await self._api.list("Lease", "", {LABEL_MEMBER: None})).items
            if lease["metadata"]["name"] == HEARTBEAT_LEASE
        }
        members = []
        for cluster in await self._clusters.read(self._api):
            name, namespace = cluster.metadata.name, member_namespace(cluster.metadata.name)
            interval = timedelta(seconds=cluster.spec.heartbeat.interval_seconds)
            renew_time = leases.get(namespace)
            if renew_time:
                self.heartbeats.observe(name, renew_time, now=now, interval=interval)
            members.append(
                MemberSeen(
                    cluster=cluster,
                    report=reports.get(namespace),
                    report_problem=self._reports.problems.get(
                        ObjectKey(namespace, MEMBER_REPORT), ""
                    ),
                    silent_for=self.heartbeats.silent_for(name, now=now),
                    back_for=self.heartbeats.back_for(name, now=now),
                    has_beaten=bool(renew_time),
                    renewed=self.heartbeats.renewed(name),
                )
            )
        return with_twins(members)
