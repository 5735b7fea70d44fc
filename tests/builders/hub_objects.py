"""Objects on a hub as its controller and its members leave them."""

import asyncio
from datetime import datetime

from builders.hub_world import KEY, MEMORY, job_document
from spes_operator.hub.ownership import Ownership
from spes_operator.k8s.events import Event, post
from spes_operator.k8s.memory import MemoryApi
from spes_operator.names import LABEL_JOB, LABEL_JOB_UID, ObjectKey

TIME = "2026-01-01T12:00:00Z"


def condition(kind, status, reason, message=""):
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": 1,
        "lastTransitionTime": TIME,
    }


class HubObjects:
    """Blocking: for tests that read from top to bottom."""

    def __init__(self, api=None):
        self.api = api or MemoryApi()

    def run(self, coroutine):
        return asyncio.run(coroutine)

    def job(self, *, status=None, **spec):
        """The job; answers its UID."""

        async def put():
            made = await self.api.apply("user", job_document(**spec))
            await self.api.patch_status("SpesJob", *KEY, status or {})
            return made["metadata"]["uid"]

        return self.run(put())

    def member(self, name, *, spec=None, status=None, slots=(8,), ready="True"):
        """A member that lends slots with memory for so many experts."""
        words = {"True": "Heartbeat", "Unknown": "HeartbeatLost", "False": "NeverSeen"}
        told = "" if ready == "True" else "its heartbeat does not arrive"
        seen = {
            "slots": len(slots),
            "gpus": len(slots),
            "version": "1.2.0",
            "lastHeartbeatObserved": TIME,
            "conditions": [condition("Ready", ready, words[ready], told)],
        }
        report = {
            "clusterID": f"uid-{name}",
            "slots": [
                {"name": str(i), "memoryBytes": MEMORY[room], "activationBytes": 16 * 2**20}
                for i, room in enumerate(slots)
            ],
        }

        async def put():
            cluster = {"kind": "MemberCluster", "metadata": {"name": name}}
            cluster["spec"] = {"accepted": True} | (spec or {})
            cluster["apiVersion"] = "spes.dev/v1alpha1"
            await self.api.apply("user", cluster)
            await self.api.patch_status(
                "MemberCluster", "", name, seen if status is None else status
            )
            namespace = f"spes-member-{name}"
            own = {"kind": "MemberReport", "metadata": {"namespace": namespace, "name": "report"}}
            await self.api.apply("member", own | {"apiVersion": "spes.dev/v1alpha1"})
            await self.api.patch_status("MemberReport", namespace, "report", report)

        self.run(put())

    def report_as(self, name, other):
        """Let a member say that it is the cluster of another one."""

        async def put():
            report = await self.api.get("MemberReport", f"spes-member-{name}", "report")
            status = report["status"] | {"clusterID": f"uid-{other}"}
            await self.api.patch_status("MemberReport", f"spes-member-{name}", "report", status)

        self.run(put())

    def assignment(self, peer, uid, *conditions, desired="Run", **status):
        """That of a peer, with what its member says of it."""
        member, _, slot = peer.partition(".")
        namespace, name = f"spes-member-{member}", f"moe-tiny-{slot}-{uid[:4]}"

        async def put():
            await self.api.apply(
                "hub",
                {
                    "apiVersion": "spes.dev/v1alpha1",
                    "kind": "TrainerAssignment",
                    "metadata": {
                        "namespace": namespace,
                        "name": name,
                        "labels": {LABEL_JOB: KEY.name, LABEL_JOB_UID: uid},
                    },
                    "spec": {
                        "jobUID": uid,
                        "slot": slot,
                        "desired": desired,
                        "template": {},
                        "templateHash": "h",
                        "joinSecret": f"{name}-join",
                        "sync": {"endpoint": "hub:7443", "caBundle": ""},
                    },
                },
            )
            told = {"conditions": [condition(*one) for one in conditions]} | status
            await self.api.patch_status("TrainerAssignment", namespace, name, told)

        self.run(put())

    def event(self, uid, reason, message, *, time=TIME, kind="Normal"):
        """One about the job."""
        event = Event(
            kind="SpesJob",
            namespace=KEY.namespace,
            name=KEY.name,
            uid=uid,
            time=datetime.fromisoformat(time),
            type=kind,
            reason=reason,
            message=message,
        )
        self.run(post(self.api, "hub", event))

    def volume(self, uid, *, job=KEY.name):
        """The claim of a sync server."""
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "namespace": KEY.namespace,
                "name": f"{job}-{uid[:8]}",
                "labels": {LABEL_JOB: job, LABEL_JOB_UID: uid},
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "20Gi"}},
            },
        }
        self.run(self.api.create("hub", claim))

    def ownership(self, uid, ownership: Ownership):
        """The stored one."""
        document = ownership.to_config_map(ObjectKey(*KEY), uid)
        self.run(self.api.create("hub", document))


TRAINING = {
    "round": 12,
    "ownershipEpoch": 3,
    "tokens": 450_000,
    "loss": 3.4125,
    "members": {"ready": 2, "desired": 2},
    "experts": {"total": 8, "owned": 8, "parked": 0},
    "ownership": [
        {"peer": "uni-a.0", "experts": "0-4"},
        {"peer": "uni-b.0", "experts": "5-7"},
    ],
    "conditions": [condition("Ready", "True", "Training", "2 peers train")],
}
