"""A sync server without tensors, played by hand: what the hub sees of one, and what it tells it."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from spes_operator.errors import ConflictError, UnavailableError
from spes_operator.hub.sync_state import PeerState, Phase, SyncState


class FakeSync:
    def __init__(self):
        self.state = SyncState()
        self.plan = None
        self.plans = []
        self.drained = []
        self.reachable = True
        self._changed = asyncio.Event()

    # SyncControl

    async def apply_plan(self, plan):
        self._check()
        if self.state.incarnation == plan.incarnation and plan.epoch < self.state.epoch:
            raise ConflictError("the plan's epoch is old")
        if plan.incarnation != self.state.incarnation:  # the volume is new: seed again
            peers = {
                name: replace(peer, caught_up=False) for name, peer in self.state.peers.items()
            }
            self.state = SyncState(incarnation=plan.incarnation, peers=peers)
        self.plan = plan
        self.plans.append(plan)
        self._set(job_uid=plan.job_uid, pending_epoch=plan.epoch)

    async def drain(self, order):
        self._check()
        self.drained.append(order)

    async def watch(self):
        while True:
            self._check()
            yield self.state
            changed = self._changed
            await changed.wait()

    async def close(self):
        pass

    # The world around it

    def cut(self):
        self.reachable = False
        self._notify()

    def restore(self):
        self.reachable = True
        self._notify()

    def connect(self, peer, *, token=None, version=-1, rate=0.0):
        used = self.state.used_token_ids | ({token} if token else set())
        self._peer(
            peer,
            connected=True,
            left="",
            silent_for=timedelta(),
            caught_up=False,
            version=version,
            tokens_per_second=rate,
        )
        self._set(used_token_ids=frozenset(used))

    def seed(self):
        """The seed peer pushes version 0; those connected catch up with it."""
        assert self.plan.seed_peer in self.state.peers
        self._set(phase=Phase.WAITING, version=0, round=1)

    def catch_up(self, *peers):
        assert self.state.version >= 0
        for peer in peers:
            self._peer(peer, caught_up=True, version=self.state.version)

    def commit(self):
        """Open the next round under the newest plan and commit it."""
        version = self.state.version + 1
        for name in self.state.peers:
            self._peer(name, version=version)
        self._set(
            active_epoch=self.state.epoch,
            pending_epoch=0,
            phase=Phase.OPEN,
            version=version,
            round=version + 1,
            global_tokens=self.state.global_tokens + 1000,
        )

    def leave(self, peer, reason="Drained"):
        self._peer(peer, connected=False, left=reason)

    def disconnect(self, peer, *, silent_for=0.0):
        self._peer(peer, connected=False, silent_for=timedelta(seconds=silent_for))

    def silence(self, peer, seconds):
        self._peer(peer, connected=False, silent_for=timedelta(seconds=seconds))

    def lose_volume(self):
        self.plan = None
        self.state = SyncState()
        self._notify()

    def finish(self):
        self._set(phase=Phase.COMPLETE)

    def _peer(self, name, **changes):
        peers = dict(self.state.peers)
        peers[name] = replace(peers.get(name, PeerState(peer=name)), **changes)
        self._set(peers=peers)

    def _set(self, **changes):
        self.state = replace(self.state, **changes)
        self._notify()

    def _check(self):
        if not self.reachable:
            raise UnavailableError("connection refused")

    def _notify(self):
        self._changed.set()
        self._changed = asyncio.Event()
