"""Random histories of members, trainers, rounds, time; the hub crashes between any two writes."""

import asyncio

import pytest
from builders.hub_world import KEY, World, quietly
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spes_operator.errors import UnavailableError
from spes_operator.hub.ownership import Ownership
from spes_operator.names import member_of

CAPACITIES = {"uni-a": 8, "uni-b": 4, "uni-c": 4, "uni-d": 2}
PEERS = [f"{name}.0" for name in CAPACITIES]
DEADLINE_SECONDS = 20.0


class CrashError(UnavailableError):
    """The hub dies before this write."""


class CrashingApi:
    """Passes calls on; dies at the n-th write."""

    def __init__(self, api, history):
        self._api = api
        self._history = history
        self.writes_left = None

    def __getattr__(self, name):
        return getattr(self._api, name)

    def _count(self):
        if self.writes_left is not None:
            if self.writes_left == 0:
                raise CrashError("crashed before a write")
            self.writes_left -= 1

    async def create(self, owner, obj):
        self._count()
        return self._history.note(await self._api.create(owner, obj))

    async def apply(self, owner, obj):
        self._count()
        return self._history.note(await self._api.apply(owner, obj))

    async def replace(self, owner, obj):
        self._count()
        return self._history.note(await self._api.replace(owner, obj))

    async def patch_status(self, *args, **options):
        self._count()
        return await self._api.patch_status(*args, **options)

    async def delete(self, *args, **options):
        self._count()
        return await self._api.delete(*args, **options)


class History:
    """Every ownership that was ever stored."""

    def __init__(self):
        self.by_epoch = {}

    def note(self, obj):
        if obj["kind"] == "ConfigMap":
            ownership = Ownership.from_config_map(obj)
            owners = dict(ownership.owners)
            known = self.by_epoch.setdefault(ownership.epoch, owners)
            assert known == owners, f"two ownerships under epoch {ownership.epoch}"
            assert sorted([*owners, *ownership.parked]) == list(range(8))
            assert set(owners.values()) <= set(ownership.peers)
            assert owners.keys() == ownership.granted.keys()
            assert all(epoch <= ownership.epoch for epoch in ownership.granted.values())
        return obj


class CrashingWorld(World):
    def __init__(self, tmp):
        self.history = History()
        super().__init__(tmp)

    def _new_hub(self):
        inner = self.api._api if isinstance(self.api, CrashingApi) else self.api
        self.api = CrashingApi(inner, self.history)
        return super()._new_hub()

    async def crash_in_next_pass(self, writes):
        self.api.writes_left = writes
        await quietly(self.hub.reconcile_members())
        await quietly(self.hub.reconcile(KEY))
        self.api.writes_left = None
        await self.restart_hub()

    def check_plan(self):
        for plan in self.sync.plans:
            if plan.epoch:
                assert self.history.by_epoch[plan.epoch] == dict(plan.owners)


def has_trainer(world, peer):
    return any(peer in job.command for job in world.clusters[member_of(peer)].records.values())


def trainer_starts(world, peer, _):
    if has_trainer(world, peer):
        world.run_trainer(peer)


def peer_catches_up(world, peer, _):
    if peer in world.sync.state.peers and world.sync.state.version >= 0:
        world.sync.catch_up(peer)


def session_is_lost(world, peer, number):
    if peer in world.sync.state.peers:
        world.sync.silence(peer, number)


def round_commits(world, *_):
    if world.sync.state.version >= 0:
        world.sync.commit()


def model_is_seeded(world, *_):
    plan = world.sync.plan
    if world.sync.state.version < 0 and plan and plan.seed_peer in world.sync.state.peers:
        world.sync.seed()


def agent_stops(world, peer, _):
    world.agents.pop(member_of(peer), None)


def agent_starts(world, peer, _):
    if member_of(peer) not in world.agents:
        world.start_agent(member_of(peer))


def slot_is_taken_away(world, peer, _):
    world.offer(member_of(peer))


def slot_is_back(world, peer, _):
    world.offer(member_of(peer), CAPACITIES[member_of(peer)])


def server_is_cut_off(world, *_):
    world.sync.cut()


def server_is_back(world, *_):
    world.sync.restore()


def nothing_happens(*_):
    pass


ACTIONS = [
    trainer_starts,
    peer_catches_up,
    session_is_lost,
    round_commits,
    model_is_seeded,
    agent_stops,
    agent_starts,
    slot_is_taken_away,
    slot_is_back,
    server_is_cut_off,
    server_is_back,
    nothing_happens,
]
steps = st.tuples(
    st.sampled_from(ACTIONS),
    st.sampled_from(PEERS),
    st.integers(0, 12),  # seconds of silence, and of time that passes
    st.one_of(st.none(), st.integers(0, 8)),  # the hub's write before which it dies
)


async def act(world, action, peer, number, crash_before):
    action(world, peer, number)
    if crash_before is not None:
        await world.crash_in_next_pass(crash_before)
    await world.advance(number, every=2)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return tmp_path_factory.mktemp("tls")


@pytest.mark.timeout(300)  # fifteen whole histories
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(history=st.lists(steps, max_size=15), started=st.booleans())
def test_every_history_ends_as_desired(tls, history, started):
    async def scenario():
        world = CrashingWorld(tls)
        try:
            await world.create_job()
            for name, capacity in CAPACITIES.items():
                await world.add_member(name, capacity)
            if started:
                await world.start_training(*PEERS)
            else:
                await world.settle()
                await world.listen()
            for step in history:
                await act(world, *step)
                world.check_plan()
            await heal(world)
            world.check_plan()
            await check_end(world)
        finally:
            await world.hub.close()

    asyncio.run(scenario())


async def heal(world):
    """Everybody is well, and time passes."""
    world.sync.restore()
    for name, capacity in CAPACITIES.items():
        world.offer(name, capacity)
        if name not in world.agents:
            world.start_agent(name)
    async with asyncio.timeout(DEADLINE_SECONDS):  # the link's own backoff after a cut
        while world.hub.sync_state(world.key) is None:
            await world.step()
            await asyncio.sleep(0.01)
    for _ in range(4):
        await world.advance(12, every=3)
        for peer in PEERS:
            if has_trainer(world, peer):
                state = world.sync.state.peers.get(peer)
                if state is None or not state.connected or state.left:
                    world.run_trainer(peer)
        await world.settle()
        if world.sync.state.version < 0:
            world.sync.seed()
            await world.settle()
        world.sync.catch_up(*(peer for peer in PEERS if peer in world.sync.state.peers))
        world.sync.commit()
        await world.advance(12, every=3)


async def check_end(world):
    counts = await world.counts()
    assert set(counts) == set(PEERS)
    assert sum(counts.values()) == 8
    assert all(counts[f"{name}.0"] <= capacity for name, capacity in CAPACITIES.items())
    assert all(counts.values())
    assert (await world.ownership()).parked == ()
    assert (await world.condition("Ready")).reason == "Training"
    assert (await world.condition("Degraded")).status == "False"
    assert world.sync.plan.epoch == (await world.ownership()).epoch
    assignments = await world.assignments()
    assert {item.spec.desired for item in assignments.values()} == {"Run"}
    version = (await world.api.list("SpesJob")).resource_version
    for _ in range(3):
        await world.step()
    assert (await world.api.list("SpesJob")).resource_version == version
