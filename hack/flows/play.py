"""The play: join, train, preempt, reassign, return, delete, over a hub and two members.

Prints a page of Markdown: a timeline made from Events and from the sync server's journal, and what
kubectl and `spes status` show in between. Needs `make controlplane` and nothing of a cluster.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from builders.bed import Bed
from builders.control_plane import find_binaries
from builders.control_planes import ControlPlanes
from builders.federation import Federation, now
from builders.live_objects import until
from builders.tiny_job import REASSIGN_SECONDS
from spes_operator.names import HEARTBEAT_LEASE, member_namespace

from flows import figures
from flows.timeline import Moment, lines, of_events, of_journal

_INTRO = """# What happens when members come and go

`make flows` plays this on one machine: three Kubernetes API servers with their controllers, for a
hub and two members, nodes that run pods as processes, a sync server and two trainers of a tiny
model. Members beat every second here, not every ten, and experts move after {reassign} seconds of
silence, not 180. All that follows is what it printed.
"""


class Play:
    """The federation, and what was done to it and seen of it."""

    def __init__(self, federation: Federation) -> None:
        """Nothing has happened yet."""
        self._federation = federation
        self._began = now()
        self._told: list[Moment] = []
        self._tables: list[str] = []

    def join(self) -> None:
        """A hub, and a member that is invited and accepted."""
        self._do("the hub's program starts; uni-a is invited and accepted, and its agent starts")
        self._federation.hub.start()
        self._federation.invite("uni-a")

    def train(self) -> tuple[float, int]:
        """A job starts with one member, and takes in a second one."""
        federation = self._federation
        self._do("kubectl apply -f tiny.yaml")
        federation.submit()
        federation.wait_owners("uni-a")
        federation.wait_rounds(3)
        since = now()
        self._do("uni-b is invited and accepted, and its agent starts")
        federation.invite("uni-b")
        federation.wait_owners("uni-a", "uni-b")
        federation.wait_counted("uni-b", since)
        federation.wait_rounds(10)
        self._show("Both members train")
        return figures.of_newcomer(federation.journal(), federation.peer("uni-b"), since)

    def preempt(self) -> None:
        """A machine is taken back with notice, and returned."""
        federation, site = self._federation, self._federation.site("uni-b")
        self._do("uni-b's node is taken away with notice")
        site.kubelet.shut_down(site.node)
        federation.wait_owners("uni-a")
        federation.wait_counted("uni-a", now())
        self._show("uni-b's node was taken away")
        self._do("uni-b's node is back")
        site.kubelet.start(site.node)
        federation.wait_owners("uni-a", "uni-b")

    def reassign(self) -> tuple[float, float]:
        """A member falls silent, loses its experts, and returns."""
        federation, site = self._federation, self._federation.site("uni-b")
        federation.wait_counted("uni-b", now())
        namespace, pod = federation.local_namespace("uni-b"), federation.trainer_pod("uni-b")
        self._do("uni-b falls silent: agent and trainer")
        federation.agents["uni-b"].freeze()
        site.kubelet.pause(namespace, pod)
        federation.wait_owners("uni-a")
        federation.wait_counted("uni-a", now())
        self._show("uni-b is silent")
        silence = figures.Silence(
            last_heartbeat=self._last_heartbeat("uni-b"),
            peer=federation.peer("uni-b"),
            other=federation.peer("uni-a"),
        )
        found = figures.of_silence(federation.journal(), silence, now())
        self._do("uni-b is heard again")
        site.kubelet.resume(namespace, pod)
        federation.agents["uni-b"].thaw()
        federation.wait_owners("uni-a", "uni-b")
        federation.wait_counted("uni-b", now())
        self._show("uni-b is back")
        return found

    def delete(self) -> None:
        """The job goes; its pods end."""
        federation = self._federation
        journal = federation.journal()  # its volume stays
        self._do("kubectl delete spesjob tiny")
        federation.objects.delete("SpesJob", federation.namespace, "tiny")
        for site in federation.agents:
            until(lambda site=site: federation.local_jobs(site) == [], seconds=240)  # type: ignore[misc]  # a default binds now
        federation.objects.wait_gone("Pod", federation.namespace, "tiny-sync-0", seconds=240)
        self._told += of_journal(journal.entries())
        self._do("no trainer and no sync server is left")
        self._show("The job is deleted")

    def page(self, newcomer: tuple[float, int], silence: tuple[float, float]) -> str:
        """All of it as Markdown."""
        events = self._federation.events()
        moments = [*self._told, *of_events(events)]
        table = [
            "| What | Measured |",
            "|---|---|",
            f"| from the last sign of life to ownership committed again | {silence[0]:.1f} s "
            f"(reassignAfterSeconds is {REASSIGN_SECONDS}) |",
            f"| from the last sign of life to work under it committed | {silence[1]:.1f} s |",
            f"| from a newcomer's caught-up to its first counted push | {newcomer[0]:.1f} s, "
            f"round {newcomer[1]} after it |",
        ]
        parts = [
            _INTRO.format(reassign=REASSIGN_SECONDS),
            "## Timeline\n",
            "Seconds since the start; `>` is what was done to the federation.\n",
            _fenced("\n".join(lines(moments, self._began))),
            "## How long it took\n",
            "\n".join(table) + "\n",
            "## What kubectl and spes show\n",
            *self._tables,
        ]
        return "\n".join(parts)

    def _do(self, text: str) -> None:
        self._told.append(Moment(time=now(), who=">", text=text))
        print(f"{(now() - self._began).total_seconds():7.1f}  {text}", file=sys.stderr, flush=True)

    def _show(self, title: str) -> None:
        hub, namespace = self._federation.bed.hub.plane, self._federation.namespace
        shown = []
        for command in (("spesjobs", "-n", namespace), ("memberclusters",)):
            shown.append(f"$ kubectl get {' '.join(command)}")
            shown.append(hub.kubectl("get", *command).rstrip() or "No resources found")
        if self._federation.has_job():
            shown.append(self._status("tiny", "-n", namespace))
        else:
            shown.append(self._status("--deleted", "-n", namespace))
        self._tables.append(f"### {title}\n\n{_fenced(chr(10).join(shown))}")

    def _status(self, *arguments: str) -> str:
        screen = self._federation.spes("status", *arguments)
        lines = [line.rstrip() for line in screen.rstrip().splitlines()]
        return "\n".join([f"$ spes status {' '.join(arguments)}", *lines])

    def _last_heartbeat(self, site: str) -> datetime:
        namespace = member_namespace(self._federation.member(site))
        lease = self._federation.objects.get("Lease", namespace, HEARTBEAT_LEASE)
        return datetime.fromisoformat(lease["spec"]["renewTime"])


def _fenced(text: str) -> str:
    return f"```\n{text}\n```\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Play it and print the page."""
    parser = argparse.ArgumentParser(prog="hack/flows", description=__doc__)
    parser.parse_args(arguments)
    binaries = find_binaries()
    if binaries is None:
        print("no control plane binaries; build them once with: make controlplane")
        return 1
    folder = Path(tempfile.mkdtemp(prefix="spes-flows-"))
    print(f"everything lies in {folder}; it stays there if the play fails", file=sys.stderr)
    (folder / "federation").mkdir()
    with (
        ControlPlanes(binaries, folder) as planes,
        Bed(planes, ["uni-a", "uni-b"]) as bed,
        Federation(bed, folder / "federation", suffix="") as federation,
    ):
        play = Play(federation)
        play.join()
        newcomer = play.train()
        play.preempt()
        silence = play.reassign()
        play.delete()
        print(play.page(newcomer, silence))
    shutil.rmtree(folder)
    return 0
