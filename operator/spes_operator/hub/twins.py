"""Members that are one and the same cluster: the first one is used, the others are not. Pure.

A cluster that is lent twice would be trusted, and its GPUs counted, twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spes_operator.hub.view import MemberSeen


def with_twins(members: Sequence[MemberSeen]) -> tuple[MemberSeen, ...]:
    """The members, each with the name of another one that is its cluster already.

    A member whose cluster is pinned comes before those that only report it; then the one that was
    made first.
    """
    holders: dict[str, str] = {}
    for member in sorted(members, key=_precedence):
        if cluster := _cluster_of(member):
            holders.setdefault(cluster, member.name)
    return tuple(
        member
        if (holder := holders.get(_cluster_of(member), member.name)) == member.name
        else replace(member, twin=holder)
        for member in members
    )


def _cluster_of(member: MemberSeen) -> str:
    """Whom the hub takes it for; empty: it has not said yet."""
    return member.pinned_id or (member.report.status.cluster_id if member.report else "")


def _precedence(member: MemberSeen) -> tuple[bool, str, str]:
    return not member.pinned_id, member.cluster.metadata.creation_timestamp, member.name
