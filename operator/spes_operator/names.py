"""Every name that two parts of SPES must spell alike: ids, labels, derived object names.

Pure. Event reasons and condition types are in `reasons`.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple, NewType

# "<member>.<slot>": one training participant.
PeerId = NewType("PeerId", str)
ExpertId = NewType("ExpertId", int)

# Field owners of the hub and of a member: one writer per field.
HUB_OWNER = "spes-hub"
MEMBER_OWNER = "spes-member"

# UID of the SpesJob that an object was derived from; how leftovers of gone jobs are found.
LABEL_JOB_UID = "spes.dev/job-uid"
LABEL_JOB = "spes.dev/job"
# Which part of SPES an object or pod is.
LABEL_COMPONENT = "spes.dev/component"
# Hash of what the hub applied, so that it applies nothing twice.
ANNOTATION_CONTENT = "spes.dev/content"
# The member a Lease belongs to.
LABEL_MEMBER = "spes.dev/member"
# On a SpesJob: any new value lets held or manual reassignment happen once.
ANNOTATION_REASSIGN = "spes.dev/reassign"
# On a SpesJob: members that it leaves, with commas between them.
ANNOTATION_DRAIN = "spes.dev/drain"
# On a MemberCluster: which invitation is the last one, and until when the credential was valid that
# its agent had reported by then.
ANNOTATION_INVITATION = "spes.dev/invitation"
ANNOTATION_REPLACES = "spes.dev/replaces"
# On a join Secret: what may be known about the token inside.
ANNOTATION_TOKEN_ID = "spes.dev/token-id"  # noqa: S105 - a name
ANNOTATION_TOKEN_SHA256 = "spes.dev/token-sha256"  # noqa: S105 - a name
ANNOTATION_TOKEN_EXPIRES = "spes.dev/token-expires"  # noqa: S105 - a name
ANNOTATION_TOKEN_PEER = "spes.dev/token-peer"  # noqa: S105 - a name

# Of nodes, by NVIDIA's GPU feature discovery; memory in MiB
# (https://github.com/NVIDIA/k8s-device-plugin/tree/main/docs/gpu-feature-discovery).
LABEL_GPU_PRODUCT = "nvidia.com/gpu.product"
LABEL_GPU_MEMORY = "nvidia.com/gpu.memory"

# The member's Lease and MemberReport in its namespace on the hub.
HEARTBEAT_LEASE = "heartbeat"
MEMBER_REPORT = "report"

# The hub's own account.
HUB_ACCOUNT = "spes-hub"
HUB_NAMESPACE = "spes-system"
# There: the audiences of the API server, for which agents may have tokens.
AUDIENCES_CONFIG_MAP = "spes-api-audiences"
# The member's account on the hub, and the Secret that the token of its invitation is bound to.
AGENT_ACCOUNT = "agent"
JOIN_TOKEN_SECRET = "join-token"  # noqa: S105 - a name
# In the member's cluster: the token that its agent renews.
HUB_CREDENTIAL_SECRET = "spes-hub-credential"  # noqa: S105 - a name
# Roles in a member's namespace: before it is accepted, after that, and the hub's own.
CANDIDATE_ROLE = "spes-member-candidate"
AGENT_ROLE = "spes-member-agent"
HUB_IN_MEMBER_ROLE = "spes-hub-in-member"
# Secret of an invitation in the member's own cluster, and its keys.
JOIN_SECRET = "spes-join"  # noqa: S105 - a name
JOIN_NAME_KEY = "name"
JOIN_KUBECONFIG_KEY = "kubeconfig"

# The hub's certificate authorities, in its own namespace.
HUB_CA_SECRET = "spes-hub-ca"  # noqa: S105 - a name

# Files of mounted Secrets.
TOKEN_FILE = "token"  # noqa: S105 - a name
CA_FILE = "ca.crt"
TLS_CERT_FILE = "tls.crt"
TLS_KEY_FILE = "tls.key"
CLIENT_CA_FILE = "client-ca.crt"

_MEMBER_NAMESPACE = "spes-member-"
# Longest metadata.name of the kinds of spes.dev.
_MAX_NAME = 40
_DIGEST = 8


class ObjectKey(NamedTuple):
    """Where an object is; cluster-scoped ones have namespace ""."""

    namespace: str
    name: str


def member_namespace(member: str) -> str:
    """The namespace of `member` on the hub."""
    return _MEMBER_NAMESPACE + member


def member_of_namespace(namespace: str) -> str:
    """The member whose namespace on the hub it is; empty: nobody's."""
    name = namespace.removeprefix(_MEMBER_NAMESPACE)
    return name if name != namespace else ""


def peer_id(member: str, slot: str) -> PeerId:
    """The peer that runs in `slot` of `member`."""
    return PeerId(f"{member}.{slot}")


def member_of(peer: PeerId) -> str:
    """The member a peer runs in."""
    return peer.rpartition(".")[0]


def slot_of(peer: PeerId) -> str:
    """The slot a peer runs in."""
    return peer.rpartition(".")[2]


def assignment_name(job: str, job_uid: str, slot: str) -> str:
    """Name of the assignment of a job to a slot: readable, and unique also if cut."""
    digest = hashlib.sha256(f"{job_uid}/{slot}".encode()).hexdigest()[:_DIGEST]
    readable = f"{job}-{slot}"[: _MAX_NAME - _DIGEST - 1].rstrip("-")
    return f"{readable}-{digest}"


def join_secret_name(assignment: str) -> str:
    """Secret with the one-time token of an assignment."""
    return f"{assignment}-join"


def ownership_name(job: str) -> str:
    """ConfigMap that is the commit point of ownership."""
    return f"{job}-ownership"


def sync_server_name(job: str) -> str:
    """Workload of the job's sync server."""
    return f"{job}-sync"


def sync_service_name(job: str) -> str:
    """Service before the sync server; it must begin with a letter, which a job's name need not."""
    return f"sync-{job}"


def sync_tls_name(job: str) -> str:
    """Secret with the sync server's certificate."""
    return f"{job}-sync-tls"


def sync_client_ca_name(job: str) -> str:
    """Secret with the authority of those who may drive the sync server."""
    return f"{job}-sync-client-ca"


def sync_pod_name(job: str) -> str:
    """The one pod of the sync server's StatefulSet."""
    return f"{sync_server_name(job)}-0"


def sync_volume_name(job: str, job_uid: str) -> str:
    """Claim of the sync server's volume: of this job alone, not of its namesakes."""
    return f"{job}-{job_uid[:_DIGEST]}"
