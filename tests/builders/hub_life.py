"""The life of one job under one hub: a real process over a real API server, a door before it.

Its sync server is a real one, played where no node runs its pod; its members are `played_members`.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from builders.control_plane import ControlPlane
from builders.hub_program import HubProgram, PlayedServer
from builders.hub_world import job_document
from builders.live_objects import LiveObjects, until
from builders.many_agents import cluster_namespace, objects_of
from builders.played_members import IMAGE, Place, PlayedMember, PlayedMembers
from builders.rights import HUB, apply, binding, make_namespaces
from builders.sync_journal import SyncJournal
from builders.tiny_job import owners
from builders.write_gate import WriteGate
from spes_operator.k8s.api import JsonObject
from spes_operator.names import member_namespace, sync_pod_name

JOB = "tiny"
SITES = ("uni-a", "uni-b")
# For a machine that is busy with other tests.
SLOW_SECONDS = 240.0
_PORT = 7443
_SPEC: dict[str, Any] = {
    "data": {"sequenceTokens": 8},
    "training": {"maxTokens": 10**9, "batchTokens": 16},
    "members": {"min": 1},
    "sync": {"everySteps": 5},
}


class HubLife:
    """Everything but the job is there within the block."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        """Make namespaces and members of its own; the hub's rights are installed."""
        folder.mkdir()
        self._suffix = f"-{uuid.uuid4().hex[:5]}"
        self.namespace, self.own = f"research{self._suffix}", f"hub{self._suffix}"
        self.plane = plane
        self.objects = LiveObjects(plane.kubeconfig)
        make_namespaces(plane, self.namespace, self.own)
        apply(plane, binding("spes-hub-in-own-namespace", HUB, namespace=self.own))
        for site in SITES:
            self._invite(site)
        self.gate = WriteGate(plane)
        self.hub = self.another_hub(folder)
        self._server = PlayedServer(self.objects, plane, folder)
        self.journal = SyncJournal(path=folder / "sync" / "journal.jsonl")
        place = Place(plane=plane, server=(self._server.address, _PORT), folder=folder)
        self.members = PlayedMembers(place, *map(self.member, SITES))

    def __enter__(self) -> Self:
        """Start agents and hub."""
        self.members.__enter__()
        self.hub.program.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End every program, and all they made."""
        self.members.__exit__()
        self.hub.program.stop()
        self._server.stop()
        self.gate.__exit__()
        for site in SITES:
            self.plane.kubectl("delete", "membercluster", self.member(site), "--wait=false")
        places = [member_namespace(self.member(site)) for site in SITES]
        self.plane.kubectl("delete", "namespace", self.namespace, self.own, *places, "--wait=false")
        self.objects.close()

    def another_hub(self, folder: Path) -> HubProgram:
        """A program with the same task, not started yet."""
        hub = HubProgram(self.plane, folder, self.namespace, url=self.gate.url, own=self.own)
        hub.configure(hub.settings | {"images": {"trainer": IMAGE, "sync": "sync:1"}})
        return hub

    def member(self, site: str) -> str:
        """Its name at the hub."""
        return f"{site}{self._suffix}"

    def played(self, site: str) -> PlayedMember:
        """Its agent and trainer."""
        return self.members.members[self.member(site)]

    def peer(self, site: str) -> str:
        """Its one peer."""
        return f"{self.member(site)}.0"

    def plain(self, text: str) -> str:
        """Without what tells this life's names from those of another one."""
        return text.replace(self._suffix, "")

    def submit(self, **spec: Any) -> None:
        """Apply the SpesJob, and run its sync server once there is a pod for it."""
        document = job_document(**_SPEC | spec)
        document["metadata"] = {"namespace": self.namespace, "name": JOB}
        self.objects.apply(document)
        pod = self.namespace, sync_pod_name(JOB)
        self.wait(lambda: self.objects.find("Pod", *pod) is not None)
        self._server.start(self.namespace, JOB)

    def train(self, **spec: Any) -> None:
        """Submit the job, until both members have trained a few rounds."""
        self.submit(**spec)
        self.wait(lambda: self.owned_by(*SITES) and self.journal.rounds() > 1)

    def job(self) -> JsonObject:
        """The SpesJob as it is."""
        return self.objects.get("SpesJob", self.namespace, JOB)

    def job_if_any(self) -> JsonObject | None:
        """The SpesJob, or None."""
        return self.objects.find("SpesJob", self.namespace, JOB)

    def cordon(self, site: str) -> None:
        """Ask for a member to be drained."""
        self.objects.change(
            *("MemberCluster", "", self.member(site)),
            lambda member: member["spec"].update(unschedulable=True),
        )

    def assignments(self, site: str) -> list[JsonObject]:
        """Of a member."""
        return self.objects.list("TrainerAssignment", member_namespace(self.member(site)))

    def owned_by(self, *sites: str) -> bool:
        """Whether exactly these own all experts, by the job's word and in the last round."""
        return owners(self.job()) == {self.peer(one) for one in sites} == {*self.journal.owners()}

    def events(self) -> list[JsonObject]:
        """About the job."""
        found = self.objects.list("Event", self.namespace)
        return [event for event in found if event["involvedObject"]["kind"] == "SpesJob"]

    def wait(self, holds: Callable[[], bool], told: Callable[[], object] = lambda: "") -> None:
        """Until it holds; the failure shows how things stand, and what `told()` says then."""
        until(holds, lambda: f"{told()}\n{self._how_it_is()}", seconds=SLOW_SECONDS)

    def _how_it_is(self) -> str:
        trainers = {name: one.peer for name, one in self.members.members.items()}
        told = {name: peer and repr(peer.error) for name, peer in trainers.items()}
        journal, job = self.journal.entries()[-5:], self.job_if_any() or {}
        return f"{self.hub.program.log()[-3000:]}\n{told}\n{journal}\n{job.get('status')}"

    def kill_hub(self) -> None:
        """SIGKILL, from any thread; `HubProgram` notices later."""
        os.kill(self.hub.program.pid, signal.SIGKILL)

    def _invite(self, site: str) -> None:
        name = self.member(site)
        for obj in objects_of(name, {}):
            if obj["kind"] == "MemberCluster":
                obj["spec"]["heartbeat"] = {"intervalSeconds": 1}
            if obj["metadata"]["name"] != cluster_namespace(name):  # its cluster is played
                self.objects.apply(obj)
