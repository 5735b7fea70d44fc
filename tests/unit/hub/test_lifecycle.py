"""The life of a job over the in-memory API: suspended, too old, without trainers, finished."""

from datetime import timedelta

import pytest
from builders.training_world import A, B, C, three_members
from spes_operator.clock import to_text
from spes_operator.errors import ConflictError


async def suspend(world, *peers):
    await world.change_job(suspend=True)
    await world.settle()
    for peer in peers:
        world.sync.leave(peer)
    await world.settle()


async def resume(world):
    await world.change_job(suspend=False)
    await world.settle()


async def train_again(world, *peers):
    """These come back, and nothing has moved meanwhile."""
    for peer in peers:
        world.join_again(peer)
    await world.settle()
    assert (await world.condition("Ready")).reason == "Training"
    assert (await world.ownership()).epoch == 1


async def exists(world):
    return bool((await world.api.list("SpesJob")).items)


def jobs_of(world):
    return {name: len(cluster.created) for name, cluster in world.clusters.items()}


def test_suspended_job_drains_then_deletes_its_jobs_and_keeps_its_experts(play):
    async def scenario(world):
        await three_members(world)
        await world.change_job(suspend=True)
        await world.settle()
        assert [order.reason for order in world.sync.drained] == ["the job is suspended"]
        assert {one.spec.desired for one in (await world.assignments()).values()} == {"Drain"}
        assert all(cluster.records for cluster in world.clusters.values())
        for peer in (A, B, C):
            world.sync.leave(peer)
        await world.settle()
        assert not any(cluster.records for cluster in world.clusters.values())
        assert await world.assignments() == {}
        assert await world.counts() == {A: 3, B: 3, C: 2}
        assert (await world.job()).status.members.desired == 0

    play(scenario)


def test_resumed_job_has_new_jobs_and_moves_nothing_however_long_it_was_suspended(play):
    async def scenario(world):
        await three_members(world)
        await suspend(world, A, B, C)
        for peer in (A, B, C):
            world.sync.silence(peer, 3600)
            world.sync.leave(peer)
        await world.advance(60, every=20)
        await resume(world)
        assert jobs_of(world) == {"uni-a": 2, "uni-b": 2, "uni-c": 2}
        world.join_again(A)  # the others take longer, but less than reassignAfterSeconds
        await world.advance(8)
        await train_again(world, B, C)
        assert "Resumed" in await world.reasons()

    play(scenario)


def test_trainer_asked_to_leave_gets_a_new_job_though_the_job_was_resumed_meanwhile(play):
    """Its process ends after its push; a Job that completed would never start another."""

    async def scenario(world):
        await three_members(world)
        await world.change_job(suspend=True)
        await world.settle()
        await resume(world)
        assert {one.spec.desired for one in (await world.assignments()).values()} == {"Drain"}
        for peer in (A, B, C):
            world.clusters[peer.partition(".")[0]].set_status(
                world.trainer_job(peer).name, active=False, reason="Completed", exit_code=0
            )
            world.sync.leave(peer)
        await world.settle()
        assert jobs_of(world) == {"uni-a": 2, "uni-b": 2, "uni-c": 2}
        await train_again(world, A, B, C)

    play(scenario)


def test_peers_of_a_restarted_server_are_asked_to_leave_again(play):
    async def scenario(world):
        await three_members(world)
        await world.change_job(suspend=True)
        await world.settle()
        world.sync.leave(A)  # the others' server starts anew, and asks nobody
        await world.advance(10)
        assert [order.peers for order in world.sync.drained] == [(A, B, C)]
        await world.advance(2)
        assert [order.peers for order in world.sync.drained] == [(A, B, C), (B, C)]

    play(scenario)


def test_restarted_hub_stops_nobody_who_may_still_push(play):
    async def scenario(world):
        await three_members(world)
        await world.change_job(suspend=True)
        await world.settle()
        await world.restart_hub()
        world.sync.cut()
        await world.step()
        assert {one.spec.desired for one in (await world.assignments()).values()} == {"Drain"}
        await world.advance(121, every=30)
        assert not any(cluster.records for cluster in world.clusters.values())

    play(scenario)


def test_job_fails_at_its_deadline_drains_its_trainers_and_keeps_its_server(play):
    async def scenario(world):
        await three_members(world, activeDeadlineSeconds=60)
        await world.advance(59)
        assert (await world.condition("Failed")).status == "False"
        await world.advance(2)
        failed = await world.condition("Failed")
        assert (failed.status, failed.reason) == ("True", "DeadlineExceeded")
        assert "activeDeadlineSeconds (60 s); its volume is kept" in failed.message
        assert (await world.condition("Ready")).reason == "DeadlineExceeded"
        assert (await world.condition("Progressing")).status == "False"
        assert [order.peers for order in world.sync.drained] == [(A, B, C)]
        for peer in (A, B, C):
            world.sync.leave(peer)
        await world.settle()
        assert not any(cluster.records for cluster in world.clusters.values())
        assert (await world.api.list("SyncServer")).items
        assert await world.counts() == {A: 3, B: 3, C: 2}
        assert "DeadlineExceeded" in await world.reasons()

    play(scenario)


def test_deadline_counts_training_alone_and_survives_hubs(play):
    async def scenario(world):
        await three_members(world, activeDeadlineSeconds=60)
        await world.advance(40)
        await suspend(world, A, B, C)
        counted = (await world.job()).status
        assert (counted.active_since, 40 <= counted.active_seconds < 43) == ("", True)
        await world.advance(120, every=20)
        await world.restart_hub()
        await resume(world)
        for peer in (A, B, C):
            world.join_again(peer)
        await world.advance(12)
        await world.restart_hub()
        assert (await world.condition("Failed")).status == "False"
        await world.advance(9)
        assert (await world.condition("Failed")).reason == "DeadlineExceeded"

    play(scenario)


def test_waiting_for_members_does_not_count(play):
    async def scenario(world):
        await world.create_job(activeDeadlineSeconds=10)
        await world.advance(30)
        assert (await world.job()).status.active_since == ""
        assert (await world.condition("Failed")).status == "False"

    play(scenario)


def test_later_deadline_lets_the_job_go_on(play):
    async def scenario(world):
        await three_members(world, activeDeadlineSeconds=20)
        await world.advance(21)
        for peer in (A, B, C):
            world.sync.leave(peer)
        await world.settle()
        await world.change_job(activeDeadlineSeconds=60)
        await world.settle()
        for peer in (A, B, C):
            world.join_again(peer)
        await world.settle()
        assert (await world.condition("Failed")).status == "False"
        assert (await world.condition("Ready")).reason == "Training"
        await world.advance(41)
        assert (await world.condition("Failed")).reason == "DeadlineExceeded"

    play(scenario)


def test_complete_job_does_not_fail_at_its_deadline(play):
    async def scenario(world):
        await three_members(world, activeDeadlineSeconds=20)
        world.sync.commit()
        world.sync.finish()
        await world.advance(30)
        assert (await world.condition("Failed")).status == "False"
        assert (await world.condition("Complete")).status == "True"
        world.sync.cut()
        await world.advance(30)
        assert (await world.condition("Complete")).status == "True"
        assert (await world.condition("Ready")).status == "True"

    play(scenario)


def test_slot_without_a_session_is_given_up_after_its_own_deadline(play):
    async def scenario(world):
        await three_members(world, preRunningDeadlineSeconds=30)
        await world.advance(12)
        world.sync.disconnect(C)
        await world.advance(12)
        assert (await world.ownership()).epoch == 1  # reassignAfterSeconds is 10
        world.sync.silence(C, 31)
        await world.advance(20)
        assert await world.counts() == {A: 4, B: 4}

    play(scenario)


@pytest.mark.parametrize("hours", [0, -1, 1])
def test_other_slots_are_tried_in_turn_when_a_trainer_does_not_come_up(play, hours):
    """Whatever the clock of the API server says."""

    async def scenario(world):
        world.api_clock.ahead = timedelta(hours=hours)
        await world.create_job(members={"min": 1, "max": 1}, preRunningDeadlineSeconds=5)
        for name in ("uni-a", "uni-b", "uni-c"):
            await world.add_member(name, 8)
        await world.beat()
        await world.settle()
        await world.listen()
        tried = []
        for _ in range(24):
            await world.advance(1)
            (assignment,) = (await world.assignments()).items()
            if tried[-1:] != [assignment[0]]:
                tried.append(assignment[0])
        assert tried[:4] == [A, B, C, A]
        assert len(tried) <= 5  # each has its whole time
        assert all(len(cluster.records) <= 1 for cluster in world.clusters.values())

    play(scenario)


def test_backoff_limit_reaches_the_members_job_and_restarts_nobody(play):
    async def scenario(world):
        await three_members(world, backoffLimit=2)
        assert world.trainer_job(A).backoff_limit == 2
        await world.change_job(backoffLimit=5)
        await world.settle()
        assert jobs_of(world) == {"uni-a": 1, "uni-b": 1, "uni-c": 1}
        assert {one.spec.backoff_limit for one in (await world.assignments()).values()} == {5}

    play(scenario)


def test_job_fails_when_every_trainer_has_failed_too_often(play):
    async def scenario(world):
        await three_members(world)
        for peer in (A, B, C):
            world.clusters[peer.partition(".")[0]].set_status(
                world.trainer_job(peer).name,
                active=False,
                ready=False,
                restarts=7,
                exit_code=1,
                reason="BackoffLimitExceeded",
            )
            world.sync.disconnect(peer)
        await world.settle()
        failed = await world.condition("Failed")
        assert (failed.status, failed.reason) == ("True", "BackoffLimitExceeded")
        assert all(peer in failed.message for peer in (A, B, C))

    play(scenario)


def test_finished_job_is_deleted_when_it_said_it_would_be(play):
    async def scenario(world):
        await three_members(world, ttlSecondsAfterFinished=30)
        world.sync.commit()
        world.sync.finish()
        for peer in (A, B, C):
            world.sync.leave(peer, "Complete")
        await world.settle()
        said = (await world.job()).status.expires_at
        assert said == to_text(world.clock.now() + timedelta(seconds=30))
        await world.restart_hub()
        await world.advance(28)
        assert (await world.job()).status.expires_at == said
        await world.advance(3)
        assert not await exists(world)
        assert await world.assignments() == {}
        (told,) = await world.messages("TTLExpired")
        assert told == "it finished 30 s ago and is deleted; its volume stays"

    play(scenario)


def test_failed_job_is_deleted_too_but_not_before_its_peers_have_pushed(play):
    async def scenario(world):
        await three_members(world, activeDeadlineSeconds=20, ttlSecondsAfterFinished=0)
        await world.advance(25)
        assert (await world.condition("Failed")).status == "True"
        for peer in (A, B, C):
            world.sync.leave(peer)
        await world.settle()
        assert not await exists(world)

    play(scenario)


def test_running_job_is_not_deleted_and_a_finished_one_only_if_it_asks_for_it(play):
    async def scenario(world):
        await three_members(world, ttlSecondsAfterFinished=5)
        await world.advance(30)
        assert (await world.job()).status.expires_at == ""
        await world.change_job(ttlSecondsAfterFinished=3600)
        world.sync.finish()
        await world.advance(30)
        assert await exists(world)

    play(scenario)


def test_namesake_of_an_expired_job_is_not_deleted(play):
    async def scenario(world):
        await three_members(world, ttlSecondsAfterFinished=0)
        expired = (await world.job()).metadata.uid
        await world.api.delete("SpesJob", *world.key)
        await world.create_job()
        with pytest.raises(ConflictError):
            await world.api.delete("SpesJob", *world.key, uid=expired)
        assert (await world.job()).metadata.uid != expired

    play(scenario)


def test_steady_states_of_halted_and_finished_jobs_write_nothing(play):
    async def scenario(world):
        await three_members(world, activeDeadlineSeconds=20, ttlSecondsAfterFinished=3600)
        await world.advance(21)
        for peer in (A, B, C):
            world.sync.leave(peer)
        await world.advance(12)
        world.forbid_writes()
        await world.hub.reconcile_members()
        await world.hub.remove_leftovers()
        await world.hub.reconcile(world.key)

    play(scenario)
