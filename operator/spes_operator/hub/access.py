"""What a member's account may do, and until when its invitation is good. Pure.

Before acceptance the account has the candidate's role alone, which the invitation binds. The hub
binds the agent's role while the member is accepted, and voids the invitation's token once the agent
keeps one of its own.
"""

from __future__ import annotations

from spes_operator.hub.view import MemberSeen
from spes_operator.k8s.api import JsonObject
from spes_operator.k8s.role_binding import role_binding
from spes_operator.names import (
    AGENT_ACCOUNT,
    AGENT_ROLE,
    ANNOTATION_INVITATION,
    ANNOTATION_REPLACES,
    ObjectKey,
    member_namespace,
)


def agent_binding(member: str) -> JsonObject:
    """The RoleBinding that gives a member's agent its role in the member's namespace."""
    namespace = member_namespace(member)
    return role_binding(namespace, AGENT_ROLE, ObjectKey(namespace, AGENT_ACCOUNT))


def served_invitation(seen: MemberSeen) -> str:
    """The open invitation that has served its purpose, empty if there is none.

    A renewed invitation finds a report of the credential that it replaces: that one proves nothing.
    """
    annotations = seen.cluster.metadata.annotations
    invitation = annotations.get(ANNOTATION_INVITATION, "")
    if not invitation or invitation == seen.cluster.status.closed_invitation:
        return ""
    if seen.report is None or seen.is_another_cluster or seen.twin:
        return ""
    credential = seen.report.status.credential
    if credential is None or not credential.persisted:
        return ""
    is_new = credential.expires_at != annotations.get(ANNOTATION_REPLACES, "")
    return invitation if is_new else ""
