"""SPES at work on a bed: the hub's program, members' agents, and one job namespace of its own.

Everything is asked of the objects and of the sync server's journal; nothing is patched from within.
"""

import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import yaml
from builders.bed import GPU, Bed, Site
from builders.live_objects import is_true, until
from builders.operator_program import OperatorProgram
from builders.rights import HUB, Account, allow_jobs, install_member_rights, make_namespaces
from builders.sync_journal import SyncJournal
from builders.tiny_job import make_job, owners, write_words
from builders.write_gate import WriteGate
from spes_operator.k8s.api import JsonObject
from spes_operator.names import (
    JOIN_KUBECONFIG_KEY,
    JOIN_SECRET,
    member_namespace,
)

# A machine that is busy with other tests takes a minute to start a few trainers.
SLOW_SECONDS = 240.0
_CLI_SECONDS = 60.0
_LOCAL_NAMESPACE = "spes"


class Federation:
    """A hub with its members; nothing runs at first."""

    def __init__(self, bed: Bed, folder: Path, *, suffix: str | None = None) -> None:
        """Make its namespaces; `suffix` tells its members from those of other tests."""
        self.bed = bed
        self._folder = folder
        self._suffix = f"-{uuid.uuid4().hex[:5]}" if suffix is None else suffix
        self.namespace = f"research{self._suffix}"
        self.objects = bed.hub.objects
        self.gate = WriteGate(bed.hub.plane)
        make_namespaces(bed.hub.plane, self.namespace)
        allow_jobs(bed.hub.plane, self.namespace)
        self._words = write_words(folder / "words")
        self.hub = OperatorProgram(folder, "hub", *self._hub_options())
        self.agents: dict[str, OperatorProgram] = {}

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End every program, and all they made."""
        for program in (self.hub, *self.agents.values()):
            program.stop()
        for site in self.agents:
            self._remove_member(site)
        self.bed.hub.plane.kubectl("delete", "namespace", self.namespace, "--wait=false")
        self.gate.__exit__()

    def member(self, site: str) -> str:
        """The name at the hub of the member in that cluster."""
        return f"{site}{self._suffix}"

    def peer(self, site: str) -> str:
        """The one peer of that member."""
        return f"{self.member(site)}.{GPU['nvidia.com/gpu.product'].lower()}-0"

    def site(self, site: str) -> Site:
        """The member's cluster."""
        return self.bed.members[site]

    def invite(self, site: str) -> None:
        """Invite a cluster, accept it, and start its agent."""
        name, place = self.member(site), self.bed.members[site]
        folder = self._folder / name
        folder.mkdir()
        self.spes("invite", name, "--auto-accept", "--server", self.bed.hub.plane.url)
        self._change_member(site, {"heartbeat": {"intervalSeconds": 1}})
        local = self.local_namespace(site)
        make_namespaces(place.plane, local)
        join_file = self._folder / f"join-{name}.yaml"
        place.plane.kubectl("create", "-n", local, "-f", str(join_file))
        document = yaml.safe_load(join_file.read_text())
        assert document["metadata"]["name"] == JOIN_SECRET
        kubeconfig = folder / "hub.kubeconfig"
        kubeconfig.touch(0o600)
        kubeconfig.write_text(document["stringData"][JOIN_KUBECONFIG_KEY])
        account = Account(name="spes-member", namespace=local)
        install_member_rights(place.plane, account)
        config = folder / "config.yaml"
        config.write_text(yaml.safe_dump(self._agent_config(local, folder)))
        self.agents[site] = OperatorProgram(
            self._folder,
            f"agent-{name}",
            *("member", "--name", name, "--hub-kubeconfig", str(kubeconfig)),
            *("--kubeconfig", str(account.kubeconfig(place.plane)), "--config", str(config)),
        )
        self.agents[site].start()

    def submit(self, name: str = "tiny", **spec: Any) -> JsonObject:
        """Apply a SpesJob."""
        return self.objects.apply(make_job(self.namespace, name, **spec))

    def set_reassignment(self, settings: Mapping[str, int], name: str = "tiny") -> None:
        """How long the job waits for whom it does not hear."""
        self.objects.change(
            *("SpesJob", self.namespace, name),
            lambda job: job["spec"]["reassignment"].update(settings),
        )

    def cordon(self, site: str, *, unschedulable: bool = True) -> None:
        """Ask for a member to be drained, or take that back."""
        self._change_member(site, {"unschedulable": unschedulable})

    def has_job(self, name: str = "tiny") -> bool:
        """Whether there is such a SpesJob."""
        return self.objects.find("SpesJob", self.namespace, name) is not None

    def job(self, name: str = "tiny") -> JsonObject:
        """The SpesJob as it is."""
        return self.objects.get("SpesJob", self.namespace, name)

    def wait_job(
        self,
        holds: Callable[[JsonObject], Any],
        name: str = "tiny",
        *,
        seconds: float = SLOW_SECONDS,
    ) -> JsonObject:
        """The SpesJob once it `holds`."""
        return self.objects.wait("SpesJob", self.namespace, name, holds, seconds=seconds)

    def wait_owners(
        self, *sites: str, name: str = "tiny", seconds: float = SLOW_SECONDS
    ) -> JsonObject:
        """The SpesJob once exactly these members own all experts, and a round with them is open."""
        peers = {self.peer(site) for site in sites}
        found = self.wait_job(lambda job: owners(job) == peers, name, seconds=seconds)
        journal = self.journal(name)
        until(
            lambda: set(journal.owners()) == peers,
            lambda: f"{journal.entries()[-5:]}",
            seconds=seconds,
        )
        return found

    def wait_rounds(self, more: int = 2, name: str = "tiny") -> None:
        """Wait for further committed rounds."""
        journal = self.journal(name)
        wanted = journal.rounds() + more
        until(
            lambda: journal.rounds() >= wanted,
            lambda: f"{journal.entries()[-5:]}\n{self.job(name)['status']}",
            seconds=SLOW_SECONDS,
        )

    def wait_counted(self, site: str, since: datetime, name: str = "tiny") -> dict[str, Any]:
        """The first version after `since` with work of that member."""
        journal, peer = self.journal(name), self.peer(site)
        until(
            lambda: journal.first_counting(peer, since) is not None,
            lambda: f"{journal.entries()[-8:]}\n{self.job(name)['status']}",
            seconds=SLOW_SECONDS,
        )
        found = journal.first_counting(peer, since)
        assert found is not None
        return found

    def volume(self, name: str = "tiny") -> str:
        """The claim of the job's sync server."""
        return f"{name}-{self.job(name)['metadata']['uid'][:8]}"

    def journal(self, name: str = "tiny") -> SyncJournal:
        """Of the job's sync server, on its volume."""
        claim = self.objects.wait(
            "PersistentVolumeClaim", self.namespace, self.volume(name), lambda claim: claim
        )
        return SyncJournal(path=self.bed.hub.kubelet.claim(claim) / "journal.jsonl")

    def assignments(self, site: str) -> list[JsonObject]:
        """TrainerAssignments of a member."""
        return self.objects.list("TrainerAssignment", member_namespace(self.member(site)))

    def local_jobs(self, site: str) -> list[JsonObject]:
        """Jobs in the member's cluster."""
        return self.site(site).objects.list("Job", self.local_namespace(site))

    def trainer_pod(self, site: str, *, ready: bool = True) -> str:
        """The name of the member's one pod, once it is there and ready."""
        objects = self.site(site).objects
        found: list[str] = []

        def look() -> bool:
            found[:] = [
                pod["metadata"]["name"]
                for pod in objects.list("Pod", self.local_namespace(site))
                if "deletionTimestamp" not in pod["metadata"]
                and pod.get("status", {}).get("phase") in ("Pending", "Running")
                and (is_true(pod, "Ready") or not ready)
            ]
            return len(found) == 1

        until(look, lambda: f"{found}\n{self.agents[site].log()[-2000:]}", seconds=SLOW_SECONDS)
        return found[0]

    def local_namespace(self, site: str) -> str:
        """Where the agent and its trainers are, in the member's cluster."""
        assert site in self.bed.members
        return f"{_LOCAL_NAMESPACE}{self._suffix}"

    def events(self, reason: str = "", namespace: str | None = None) -> list[JsonObject]:
        """Events on the hub, in order."""
        found = self.objects.list("Event", self.namespace if namespace is None else namespace)
        found = [event for event in found if reason in ("", event["reason"])]
        return sorted(found, key=lambda event: event["eventTime"] or "")

    def wait_event(self, reason: str, since: datetime | None = None) -> JsonObject:
        """An Event of that reason, after `since`."""
        found: list[JsonObject] = []

        def look() -> bool:
            found[:] = [
                event
                for event in self.events(reason)
                if since is None or event_time(event) >= since
            ]
            return bool(found)

        until(look, lambda: f"{[event['reason'] for event in self.events()]}", seconds=SLOW_SECONDS)
        return found[0]

    def spes(self, *arguments: str) -> str:
        """What a command of `spes` prints, called by the hub's admin."""
        done = subprocess.run(
            [
                *(sys.executable, "-m", "spes_operator.cli", *arguments),
                *("--kubeconfig", str(self.bed.hub.plane.kubeconfig)),
            ],
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=_CLI_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _change_member(self, site: str, spec: Mapping[str, Any]) -> None:
        self.objects.change(
            "MemberCluster", "", self.member(site), lambda member: member["spec"].update(spec)
        )

    def _hub_options(self) -> list[str]:
        config = self._folder / "hub.yaml"
        settings = {
            "namespace": HUB.namespace,
            "jobNamespaces": [self.namespace],
            "images": {"trainer": "trainer", "sync": "sync"},
            "exposure": {"nodePort": {"externalHost": "127.0.0.1"}},
            "address": "127.0.0.1",
            "probePort": 0,
            "metricsPort": 0,
        }
        config.write_text(yaml.safe_dump(settings))
        plane = self.bed.hub.plane
        token = self._folder / "hub.token"
        token.touch(0o600)
        token.write_text(plane.kubectl("create", "token", HUB.name, "-n", HUB.namespace))
        kubeconfig = plane.kubeconfig_with_token(f"hub{self._suffix}", token, self.gate.url)
        return ["hub", "--kubeconfig", str(kubeconfig), "--config", str(config)]

    def _agent_config(self, namespace: str, folder: Path) -> dict[str, Any]:
        return {
            "namespace": namespace,
            "image": "trainer",
            "datasets": [{"name": "words", "hostPath": {"path": str(self._words)}}],
            "workVolume": {"type": "pvc", "size": "1Gi"},
            "heartbeatSeconds": 1,
            "state": str(folder / "state"),
            "address": "127.0.0.1",
            "probePort": 0,
            "metricsPort": 0,
        }

    def _remove_member(self, site: str) -> None:
        hub, place = self.bed.hub.plane, self.bed.members[site].plane
        name = self.member(site)
        hub.kubectl("delete", "membercluster", name, "--wait=false", "--ignore-not-found")
        hub.kubectl("delete", "namespace", member_namespace(name), "--wait=false")
        place.kubectl("delete", "namespace", self.local_namespace(site), "--wait=false")


def event_time(event: JsonObject) -> datetime:
    """When it happened."""
    return datetime.fromisoformat(event["eventTime"])


def now() -> datetime:
    """For figures: the clock that the journal and the Events are written by, on one machine."""
    return datetime.now(UTC)
