"""Random histories of members, trainers, rounds, a job's life and time; crashes at any write."""

import asyncio
import contextlib

import pytest
from builders.hub_world import KEY, World, quietly
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spes_operator.errors import NotFoundError, UnavailableError
from spes_operator.hub.ownership import Ownership
from spes_operator.member.view import MemberLimits
from spes_operator.names import LABEL_JOB_UID, member_of

CAPACITIES = {"uni-a": 8, "uni-b": 4, "uni-c": 4, "uni-d": 2}
PEERS = [f"{name}.0" for name in CAPACITIES]
IMAGES = ("", "trainer:1", "trainer:2", "trainer:3")
LIMITS = MemberLimits(images=frozenset(IMAGES))
# A job that is not held up.
WELL = {
    "suspend": False,
    "members": {"min": 2, "max": 4},
    "trainer": {"image": "trainer:3"},
    "activeDeadlineSeconds": 31_536_000,
}
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
    """Every ownership that was ever stored, by the job it is of."""

    def __init__(self):
        self.by_epoch = {}

    def note(self, obj):
        if obj["kind"] == "ConfigMap":
            ownership = Ownership.from_config_map(obj)
            owners, job = dict(ownership.owners), obj["metadata"]["labels"][LABEL_JOB_UID]
            known = self.by_epoch.setdefault((job, ownership.epoch), owners)
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
                assert self.history.by_epoch[plan.job_uid, plan.epoch] == dict(plan.owners)


def has_trainer(world, peer):
    cluster = world.clusters[member_of(peer)]
    jobs = [job for job in cluster.records.values() if peer in job.command]
    return any(mount.secret in cluster.secret_data for job in jobs for mount in job.secret_mounts)


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


async def job_is_suspended(world, *_):
    await change(world, suspend=True)


async def job_is_resumed(world, *_):
    await change(world, suspend=False)


async def image_is_changed(world, _, number):
    await change(world, trainer={"image": IMAGES[number % len(IMAGES)]})


async def size_is_changed(world, _, number):
    await change(world, members={"min": 2, "max": 2 + number % 3})


async def time_is_limited(world, _, number):
    await change(world, activeDeadlineSeconds=10 + number, preRunningDeadlineSeconds=5 + number)


async def job_is_deleted(world, *_):
    await world.api.delete("SpesJob", *KEY)
    leave_all(world)


async def job_is_created_again(world, *_):
    """A namesake, perhaps while the first one's peers are still there."""
    await world.api.delete("SpesJob", *KEY)
    await world.create_job()
    world.sync.lose_volume()


async def change(world, **spec):
    with contextlib.suppress(NotFoundError, AttributeError):  # it is deleted just now
        await world.change_job(**spec)


def asked_peers_leave(world, *_):
    leave_all(world, {peer for order in world.sync.drained for peer in order.peers or PEERS})


def leave_all(world, peers=PEERS):
    for peer in set(peers) & world.sync.state.peers.keys():
        world.sync.leave(peer)


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
    job_is_suspended,
    job_is_resumed,
    image_is_changed,
    size_is_changed,
    time_is_limited,
    asked_peers_leave,
    job_is_deleted,
    job_is_created_again,
]
steps = st.tuples(
    st.sampled_from(ACTIONS),
    st.sampled_from(PEERS),
    st.integers(0, 12),  # seconds of silence, and of time that passes
    st.one_of(st.none(), st.integers(0, 8)),  # the hub's write before which it dies
)


async def act(world, action, peer, number, crash_before):
    if (done := action(world, peer, number)) is not None:
        await done
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
                await world.add_member(name, capacity, limits=LIMITS)
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
    """There is a job, nobody holds it up, everybody is well, and time passes."""
    if not (await world.api.list("SpesJob")).items:
        await job_is_created_again(world)
    await world.change_job(**WELL)
    world.sync.restore()
    for name, capacity in CAPACITIES.items():
        world.offer(name, capacity)
        if name not in world.agents:
            world.start_agent(name)
    async with asyncio.timeout(DEADLINE_SECONDS):  # the link's own backoff after a cut
        while world.hub.sync_state(world.key) is None:
            await world.step()
            with contextlib.suppress(NotFoundError):  # the server of a new job
                await world.listen()
            await asyncio.sleep(0.01)
    for _ in range(12):  # one trainer after the other gets the last image
        await all_do_their_part(world)
    await world.advance(12, every=3)


async def all_do_their_part(world):
    """Who is to leave leaves, who is to train joins, and a round is committed."""
    for peer, item in (await world.assignments()).items():
        if item.spec.desired != "Run":
            leave_all(world, [peer])
    await world.advance(6, every=3)
    for peer in PEERS:
        state = world.sync.state.peers.get(peer)
        if has_trainer(world, peer) and (state is None or not state.connected or state.left):
            world.run_trainer(peer)
    await world.settle()
    model_is_seeded(world)
    if world.sync.state.version >= 0:
        world.sync.catch_up(*(peer for peer in PEERS if peer in world.sync.state.peers))
        world.sync.commit()


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
    assert {item.spec.template.image for item in assignments.values()} == {"trainer:3"}
    assert all(len(cluster.records) == 1 for cluster in world.clusters.values())
    version = (await world.api.list("SpesJob")).resource_version
    for _ in range(3):
        await world.step()
    assert (await world.api.list("SpesJob")).resource_version == version
