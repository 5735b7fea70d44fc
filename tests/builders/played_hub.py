"""The hub's controller over a real API server, a process of its own; sync servers are played.

    python tests/builders/played_hub.py KUBECONFIG NAMESPACE

Whatever would need a node is not there: a server is ready when it is asked for, and a peer connects
once its token is minted. For each line on stdin it prints its figures; at the end of stdin it ends.
"""

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

# A program finds the packages below tests/ too.
sys.path.insert(0, str(Path(__file__).parents[1]))

from builders.fake_sync import FakeSync
from spes_api.status import Images
from spes_operator.clock import SystemClock
from spes_operator.daemon.hub import LEASES_OF_MEMBERS
from spes_operator.hub.controller import HubController
from spes_operator.hub.kept import KEPT
from spes_operator.hub.settings import HubSettings
from spes_operator.hub.sync_state import Phase
from spes_operator.hub.view import ServerSeen
from spes_operator.k8s.cached import CachedApi
from spes_operator.k8s.cluster import ClusterApi
from spes_operator.k8s.kopf_feed import KopfFeed, KopfSettings

_ROUND_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What the process has used since its start."""

    answers: dict[str, int]
    """HTTP status -> requests, kopf's own not among them."""
    resident_bytes: int
    cpu_seconds: float


class PlayedSync(FakeSync):
    """A sync server whose peers do at once what is expected of them."""

    def __init__(self):
        super().__init__()
        self._dismissed = set()

    async def apply_plan(self, plan):
        """The plan, and what everybody makes of it."""
        await super().apply_plan(plan)
        for token in plan.tokens:
            peer = self.state.peers.get(token.peer)
            may_come = token.peer not in self._dismissed and (peer is None or not peer.connected)
            if may_come and token.id not in self.state.used_token_ids:
                self.connect(token.peer, token=token.id)
        if plan.seed_peer in self.state.peers and self.state.phase is Phase.SEEDING:
            self.seed()
        if self.state.version >= 0:
            self.catch_up(*(name for name, peer in self.state.peers.items() if peer.connected))

    async def drain(self, order):
        """Each pushes what it has, and leaves for good."""
        await super().drain(order)
        for peer in order.peers or tuple(self.state.peers):
            self._dismissed.add(peer)
            self.leave(peer)

    def play_round(self):
        """One round of those that are connected, if there is a plan for it."""
        if self.plan and self.plan.peers and any(p.connected for p in self.state.peers.values()):
            self.commit()


class PlayedHost:
    """Every sync server runs."""

    watched = leftovers = ()

    async def keep(self, job):
        """Ready at once."""
        name = f"{job.metadata.namespace}/{job.metadata.name}"
        return ServerSeen(ready=True, endpoint=name, control_endpoint=name, ca_bundle="a CA")

    async def exists(self, *_):
        """It goes with its job."""
        return False


async def main() -> None:
    kubeconfig, namespace = Path(sys.argv[1]), sys.argv[2]
    logging.basicConfig(level=logging.WARNING)
    syncs = defaultdict(PlayedSync)
    async with ClusterApi.open(kubeconfig) as server:
        api = CachedApi(server, KEPT, SystemClock())
        settings = HubSettings(
            host=PlayedHost(),
            connect=lambda seen: syncs[seen.control_endpoint],
            job_namespaces=(namespace,),
            images=Images(trainer="trainer:1", sync="sync:1"),
        )
        feed = KopfFeed(KopfSettings(kubeconfig=kubeconfig, labels=LEASES_OF_MEMBERS))
        hub = HubController(api, settings)
        working = [
            asyncio.create_task(hub.run(api.fed_by(feed))),
            asyncio.create_task(_play(syncs)),
        ]
        asked = asyncio.create_task(_answer(server))
        await asyncio.wait([*working, asked], return_when=asyncio.FIRST_COMPLETED)
        for task in working:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _play(syncs) -> None:
    while True:
        await asyncio.sleep(_ROUND_SECONDS)
        for sync in syncs.values():
            sync.play_round()


async def _answer(server: ClusterApi) -> None:
    while await asyncio.to_thread(sys.stdin.readline):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        figures = Figures(
            answers=dict(server.answers),
            resident_bytes=pages * os.sysconf("SC_PAGE_SIZE"),
            cpu_seconds=time.process_time(),
        )
        sys.stdout.write(json.dumps(asdict(figures)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
