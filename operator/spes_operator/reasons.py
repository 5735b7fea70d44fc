"""Condition types and the reasons of conditions and events: what users read first. Pure.

Each reason says in its comment when it appears.
"""

from __future__ import annotations

# Condition types of a SpesJob.
READY = "Ready"
VALIDATED = "Validated"
QUORUM_REACHED = "QuorumReached"
PROGRESSING = "Progressing"
DEGRADED = "Degraded"
SUSPENDED = "Suspended"
COMPLETE = "Complete"
FAILED = "Failed"

# Condition types of a MemberCluster (and READY).
ACCEPTED = "Accepted"
JOINED = "Joined"
CLOCK_SYNCED = "ClockSynced"
CREDENTIALS_VALID = "CredentialsValid"
CORDONED = "Cordoned"
DRAINING = "Draining"

# Condition types of a TrainerAssignment (and DEGRADED).
APPLIED = "Applied"
POD_READY = "PodReady"
FINISHED = "Finished"
# Of an assignment and of a MemberCluster.
DRAINED = "Drained"

# All is as wanted; the condition says nothing more.
AS_EXPECTED = "AsExpected"
# The spec cannot be carried out.
INVALID_SPEC = "InvalidSpec"
# Fewer peers than members.min are there.
NOT_ENOUGH_MEMBERS = "NotEnoughMembers"
# The peers' memory cannot hold all experts.
NO_CAPACITY = "NoGPUCapacity"
# A member lacks a dataset of the job.
DATASET_MISSING = "DatasetMissing"
# Trainers or the sync server start.
WAITING_FOR_PODS = "WaitingForPods"
# The first version of the model is being made.
SEEDING = "Seeding"
# Rounds are committed.
TRAINING = "Training"
# A round waits for more pushes, or for disk space.
ROUND_HELD = "RoundHeld"
# The sync server does not answer.
SYNC_UNREACHABLE = "SyncServerUnreachable"
# The sync server refuses its plan; it will not take it later either.
PLAN_REFUSED = "PlanRefused"
# The ownership ConfigMap was changed by somebody else.
OWNERSHIP_DAMAGED = "OwnershipDamaged"
# An object of the job does not follow its schema.
OBJECT_UNREADABLE = "ObjectUnreadable"
# The hub's account lacks a right that the job needs.
HUB_FORBIDDEN = "HubForbidden"
# The API server refuses an object of the job.
WRITE_REFUSED = "WriteRefused"
# A member has been silent for unreachableAfterSeconds.
MEMBER_UNREACHABLE = "MemberUnreachable"
# Experts of a lost peer are on their way to others.
REASSIGNING = "Reassigning"
# Experts of a lost peer stay for now: mode Manual, mass loss, or a hub that just started.
REASSIGNMENT_HELD = "ReassignmentHeld"
# A peer was preempted or its slot is no longer offered.
POD_PREEMPTED = "PodPreempted"
# Experts have no owner because memory does not suffice.
EXPERTS_PARKED = "ExpertsParked"
# spec.suspend is set.
SUSPEND_REQUESTED = "SuspendRequested"
# maxTokens are trained.
MAX_TOKENS_REACHED = "MaxTokensReached"
# The member's limits forbid the assignment.
VETOED_BY_MEMBER = "VetoedByMember"
# The slot is not among those the member offers.
SLOT_NOT_OFFERED = "SlotNotOffered"
# Another job of that name, not ours, is in the way.
NAME_CONFLICT = "NameConflict"
# The one-time token has not arrived yet.
WAITING_FOR_TOKEN = "WaitingForToken"  # noqa: S105 - a name
# The trainer's process runs, its Session does not yet.
STARTING = "Starting"
# No node of the member has room for the trainer's pod, or may take it.
UNSCHEDULABLE = "Unschedulable"
# The trainer's image cannot be had.
IMAGE_PULL_FAILED = "ImagePullFailed"
# The member's quota does not leave room for the trainer's pod.
QUOTA_EXCEEDED = "QuotaExceeded"
# The member's cluster refuses to make the trainer's pod, for another reason than its quota.
POD_CREATION_FAILED = "PodCreationFailed"
# The trainer waits in its queue.
QUEUED = "Queued"
# The trainer's Session is live.
SESSION_LIVE = "SessionLive"
# The trainer ended after the server's Stop.
COMPLETED = "Completed"
# The trainer ended for good without having finished.
TRAINER_FAILED = "TrainerFailed"
# The job trained for activeDeadlineSeconds and is not complete.
DEADLINE_EXCEEDED = "DeadlineExceeded"
# The job describes its trainers' pods in another way: one after the other is replaced.
REPLACING_TRAINERS = "ReplacingTrainers"
# The trainer failed more often than its limit.
BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"

# Reasons of a MemberCluster's conditions.
# The admin has not accepted it.
NOT_ACCEPTED = "NotAccepted"
# It is accepted, but was never invited: it has no namespace.
NOT_INVITED = "NotInvited"
# It is accepted, but the hub could not give it its rights.
ACCESS_NOT_GIVEN = "AccessNotGiven"
# It never reported.
NEVER_SEEN = "NeverSeen"
# What it reports does not follow its schema.
REPORT_UNREADABLE = "ReportUnreadable"
# Its heartbeat arrives.
HEARTBEAT = "Heartbeat"
# Its heartbeat does not arrive.
HEARTBEAT_LOST = "HeartbeatLost"
# It is back; heard for a while before it counts.
RETURNING = "Returning"
# Another cluster answers under its name.
CLUSTER_ID_DIFFERS = "ClusterIDDiffers"
# Its cluster takes part under another name already.
CLUSTER_TAKEN = "ClusterTaken"
# Its clock and the hub's differ; nothing depends on it.
CLOCK_DIFFERS = "ClockDiffers"
# No beat was heard yet that would show its clock.
NOT_HEARD = "NotHeard"
# Its agent still uses the token of its invitation.
NO_CREDENTIAL = "NoCredential"
# Its agent has a token of its own, but would lose it at a restart.
CREDENTIAL_NOT_KEPT = "CredentialNotKept"
# The token of its agent ends soon: it was not renewed for days.
CREDENTIAL_ENDS_SOON = "CredentialEndsSoon"
# The token of its agent has ended: it needs a new invitation.
CREDENTIAL_EXPIRED = "CredentialExpired"
# spec.unschedulable is set.
CORDON_REQUESTED = "CordonRequested"

# Events beside changes of conditions.
# spec.suspend was taken back.
RESUMED = "Resumed"
# Peers joined a job for the first time.
MEMBER_JOINED = "MemberJoined"
# Peers that had been in the job are back.
MEMBER_RETURNED = "MemberReturned"
# Peers left the job.
MEMBER_LEFT = "MemberLeft"
# One batch of moves.
EXPERTS_MOVED = "ExpertsMoved"
# The first placement.
EXPERTS_PLACED = "ExpertsPlaced"
# The hub started and re-reads the state of a running job.
HUB_RECOVERING = "HubRecovering"
# The sync server's volume was lost: the model is seeded again by a peer.
VOLUME_LOST = "VolumeLost"
# A member refused or cannot run an assignment.
ASSIGNMENT_REFUSED = "AssignmentRefused"
# Every trainer runs as the job describes it now.
TRAINERS_REPLACED = "TrainersReplaced"
# The job finished ttlSecondsAfterFinished ago and is deleted.
TTL_EXPIRED = "TTLExpired"
# The job was deleted; its peers stop.
JOB_DELETED = "JobDeleted"
# In the member's cluster: the hub does not know its token any more; a new invitation is needed.
HUB_CREDENTIAL_REFUSED = "HubCredentialRefused"
# In the member's cluster: the hub has not answered for a while.
HUB_UNREACHABLE = "HubUnreachable"
# In the member's cluster: the hub does not renew its token.
CREDENTIAL_RENEWAL_REFUSED = "CredentialRenewalRefused"
