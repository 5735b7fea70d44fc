"""Whole flows over the in-memory API: real hub, real agents, a played sync server, time by hand."""

from spes_operator.hub.sync_state import Phase

A, B, C, D = "uni-a.0", "uni-b.0", "uni-c.0", "uni-d.0"


async def three_members(world, **spec):
    await world.create_job(**spec)
    for name, capacity in (("uni-a", 8), ("uni-b", 4), ("uni-c", 2)):
        await world.add_member(name, capacity)
    await world.start_training(A, B, C, rates={A: 200, B: 200, C: 100})


def test_start_places_experts_when_candidates_are_caught_up(play):
    async def scenario(world):
        await three_members(world)
        assert await world.counts() == {A: 3, B: 3, C: 2}
        ownership = await world.ownership()
        assert ownership.epoch == 1
        assert sorted(ownership.owners) == list(range(8))
        assert world.sync.plan.epoch == 1
        assert world.sync.plan.seed_peer == A
        assert set(world.sync.plan.peers) == {A, B, C}
        assert (await world.condition("Ready")).reason == "Training"
        assert await world.reasons() == [
            "WaitingForPods",
            "Seeding",
            "WaitingForPods",
            "ExpertsPlaced",
            "Training",
        ]

    play(scenario)


def test_the_loss_is_written_as_people_read_it(play):
    async def scenario(world):
        await three_members(world)
        world.sync._set(held_out_loss=0.21270952397777187)
        await world.advance(15)
        assert (await world.job()).status.loss == 0.2127

    play(scenario)


def test_the_parts_that_peers_have_done_are_written_and_outlive_the_servers_absence(play):
    async def scenario(world):
        await three_members(world)
        world.sync._peer(A, contribution=0.96123)
        world.sync._peer(B, contribution=0.03877)
        await world.advance(15)
        world.sync.cut()
        await world.advance(15)
        rows = {row.peer: row.contribution for row in (await world.job()).status.ownership}
        assert (rows[A], rows[B]) == (0.961, 0.039)

    play(scenario)


def test_assignments_have_no_experts_before_they_are_placed(play):
    async def scenario(world):
        await world.create_job()
        await world.add_member("uni-a", 8)
        await world.add_member("uni-b", 4)
        await world.beat()
        await world.settle()
        assert await world.assignments() == {}  # the server does not listen yet
        await world.listen()
        await world.settle()
        assignments = await world.assignments()
        assert set(assignments) == {A, B}
        assert {item.spec.experts for item in assignments.values()} == {""}
        assert world.sync.plan.epoch == 0
        assert {token.peer for token in world.sync.plan.tokens} == {A, B}

    play(scenario)


def test_start_waits_for_stragglers_but_not_for_ever(play):
    async def scenario(world):
        await world.create_job()
        for name, capacity in (("uni-a", 8), ("uni-b", 4), ("uni-c", 2)):
            await world.add_member(name, capacity)
        await world.start_training(A, B)
        await world.advance(9)
        assert await world.ownership() is None
        await world.advance(2)
        assert await world.counts() == {A: 4, B: 4}

    play(scenario)


def test_steady_state_writes_nothing(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(20)
        plans = len(world.sync.plans)
        version = (await world.api.list("SpesJob")).resource_version
        for _ in range(5):
            await world.step()
        assert (await world.api.list("SpesJob")).resource_version == version
        assert len(world.sync.plans) == plans

    play(scenario)


def test_preempted_member_gives_its_experts_away_at_once(play):
    async def scenario(world):
        await three_members(world)
        world.sync.commit()
        await world.settle()
        world.offer("uni-c")
        world.sync.leave(C, "Interrupted")
        await world.settle()
        assert await world.counts() == {A: 4, B: 4}
        moves = (await world.ownership()).moves_after(1)
        assert len(moves) == moves[0].lower_bound == 2
        assert {move.reason for move in moves} == {"uni-c no longer offers slot 0"}
        assert {"MemberLeft", "ExpertsMoved"} <= set(await world.reasons())
        assert set(await world.assignments()) == {A, B}
        assert world.clusters["uni-c"].records == {}

    play(scenario)


def test_joining_member_is_placed_once_it_is_caught_up(play):
    async def scenario(world):
        await world.create_job()
        await world.add_member("uni-a", 8)
        await world.add_member("uni-b", 4)
        await world.start_training(A, B)
        world.sync.commit()
        await world.add_member("uni-d", 4)
        await world.beat()
        await world.settle()
        assert await world.counts() == {A: 4, B: 4}
        world.run_trainer(D)
        await world.settle()
        assert await world.counts() == {A: 4, B: 4}
        assert (await world.assignments())[D].spec.experts == ""
        world.sync.catch_up(D)
        await world.settle()
        assert await world.counts() == {A: 3, B: 3, D: 2}
        ownership = await world.ownership()
        assert (ownership.epoch, len(ownership.moves_after(1))) == (2, 2)
        assert set(ownership.granted.values()) == {1, 2}
        assert await world.messages("MemberJoined") == [f"{D} takes part from epoch 2 on"]
        (moved,) = await world.messages("ExpertsMoved")
        assert moved.startswith("epoch 2: 2 experts moved (at least 2 had to): ")
        assert moved.endswith("uni-d.0 joined")

    play(scenario)


def test_member_drained_from_one_job_leaves_it_and_stays_ready(play):
    async def scenario(world):
        await three_members(world)
        await world.change_job(annotations={"spes.dev/drain": "uni-b,uni-x"})
        await world.settle()
        assert [order.peers for order in world.sync.drained] == [(B,)]
        world.sync.leave(B)
        await world.settle()
        assert B not in await world.counts()
        assert B not in await world.assignments()
        conditions = {one.type: one for one in (await world.member("uni-b")).status.conditions}
        assert (conditions["Ready"].status, conditions["Cordoned"].status) == ("True", "False")

    play(scenario)


def test_member_no_longer_accepted_loses_its_experts_whatever_its_trainer_does(play):
    async def scenario(world):
        await three_members(world)
        await world.change_member("uni-b", accepted=False)
        await world.settle()
        assert await world.counts() == {A: 6, C: 2}
        assert [order.peers for order in world.sync.drained] == [(B,)]  # and is asked to stop
        assert (await world.ownership()).epoch == 2

    play(scenario)


def test_drained_member_pushes_leaves_and_is_stopped(play):
    async def scenario(world):
        await three_members(world)
        await world.change_member("uni-b", unschedulable=True)
        await world.settle()
        assert [order.peers for order in world.sync.drained] == [(B,)]
        assert (await world.assignments())[B].spec.desired == "Drain"
        assert await world.counts() == {A: 3, B: 3, C: 2}
        assert world.clusters["uni-b"].records
        world.sync.leave(B)
        await world.settle()
        assert B not in await world.counts()
        assert B not in await world.assignments()
        assert world.clusters["uni-b"].records == {}
        conditions = {one.type: one for one in (await world.member("uni-b")).status.conditions}
        assert conditions["Drained"].status == "True"
        assert len(world.sync.drained) == 1

    play(scenario)


def test_silent_member_is_reassigned_once_and_returns_as_candidate(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(6)
        world.stop_agent("uni-c")
        world.sync.disconnect(C)
        await world.advance(8)
        assert (await world.ownership()).epoch == 1
        assert (await world.condition("Degraded")).reason == "MemberUnreachable"
        await world.advance(6)
        assert await world.counts() == {A: 4, B: 4}
        assert (await world.ownership()).epoch == 2
        await world.advance(20)
        assert (await world.ownership()).epoch == 2

        world.start_agent("uni-c")
        await world.beat()
        world.sync.connect(C)
        world.sync.catch_up(C)
        await world.settle()
        assert C not in await world.counts()  # heard for a moment only
        await world.advance(4)
        assert await world.counts() == {A: 3, B: 3, C: 2}
        assert "MemberReturned" in await world.reasons()

    play(scenario)


def test_member_back_in_time_keeps_its_experts(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(6)
        world.stop_agent("uni-c")
        world.sync.disconnect(C)
        await world.advance(8)
        world.start_agent("uni-c")
        world.sync.connect(C)
        world.sync.catch_up(C)
        await world.advance(30)
        assert (await world.ownership()).epoch == 1

    play(scenario)


def test_silent_agent_with_a_live_session_loses_nothing(play):
    async def scenario(world):
        await three_members(world)
        world.stop_agent("uni-c")
        await world.advance(60)
        assert (await world.ownership()).epoch == 1

    play(scenario)


def test_crashed_trainer_is_replaced_locally_first(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(12)
        world.sync.disconnect(C)
        await world.advance(6)
        assert (await world.condition("Degraded")).reason == "PodPreempted"
        world.sync.connect(C)
        world.sync.catch_up(C)
        await world.advance(20)
        assert (await world.ownership()).epoch == 1

    play(scenario)


def test_trainer_without_session_loses_its_slot_in_the_end(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(12)
        world.sync.disconnect(C)
        await world.advance(12)
        assert await world.counts() == {A: 4, B: 4}

    play(scenario)


def test_mass_loss_is_held_until_its_end(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(6)
        for name, peer in (("uni-b", B), ("uni-c", C)):
            world.stop_agent(name)
            world.sync.disconnect(peer)
        await world.advance(15)
        assert (await world.ownership()).epoch == 1
        held = await world.condition("Degraded")
        assert held.reason == "ReassignmentHeld"
        assert "2 of 3 members vanished together" in held.message
        await world.advance(20)
        assert await world.counts() == {A: 8}

    play(scenario)


def test_mass_loss_hold_ends_when_one_returns(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(6)
        for name, peer in (("uni-b", B), ("uni-c", C)):
            world.stop_agent(name)
            world.sync.disconnect(peer)
        await world.advance(15)
        world.start_agent("uni-b")
        world.sync.connect(B)
        world.sync.catch_up(B)
        await world.advance(3)
        assert await world.counts() == {A: 4, B: 4}

    play(scenario)


def test_manual_mode_moves_at_a_persons_word_only(play):
    async def scenario(world):
        await three_members(world, reassignment={"mode": "Manual"})
        await world.advance(6)
        world.stop_agent("uni-c")
        world.sync.disconnect(C)
        await world.advance(60)
        assert (await world.ownership()).epoch == 1
        assert (await world.condition("Degraded")).reason == "ReassignmentHeld"
        await world.reassign_now()
        await world.settle()
        assert await world.counts() == {A: 4, B: 4}
        world.sync.disconnect(B)
        await world.advance(60)
        assert (await world.ownership()).epoch == 2

    play(scenario)


def test_hub_restart_moves_nothing_while_it_recovers(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(12)
        world.sync.disconnect(C, silent_for=11)
        await world.restart_hub()
        await world.advance(4)
        assert (await world.ownership()).epoch == 1
        assert (await world.condition("Degraded")).reason == "ReassignmentHeld"
        assert "HubRecovering" in await world.reasons()
        await world.advance(3)
        assert (await world.ownership()).epoch == 2

    play(scenario)


def test_hub_restart_alone_changes_nothing(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(12)
        before = await world.ownership()
        await world.restart_hub()
        await world.advance(20)
        assert await world.ownership() == before
        assert world.clusters["uni-a"].created == [world.trainer_job(A).name]

    play(scenario)


def test_nothing_moves_while_the_sync_server_is_away(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(12)
        world.sync.cut()
        world.stop_agent("uni-c")
        await world.advance(60)
        assert (await world.ownership()).epoch == 1
        assert (await world.condition("Ready")).reason == "SyncServerUnreachable"

    play(scenario)


def test_used_token_is_replaced_for_the_next_process(play):
    async def scenario(world):
        await three_members(world)
        used = world.sync.state.used_token_ids
        tokens = {token.peer: token.id for token in world.sync.plan.tokens}
        assert set(tokens) == {A, B, C}
        assert not used & set(tokens.values())
        world.run_trainer(C)
        await world.settle()
        again = {token.peer: token.id for token in world.sync.plan.tokens}
        assert again[C] != tokens[C]
        assert (again[A], again[B]) == (tokens[A], tokens[B])

    play(scenario)


def test_suspended_job_stops_its_trainers_and_resumes_with_new_ones(play):
    async def scenario(world):
        await three_members(world)
        await world.change_job(suspend=True)
        await world.settle()
        assert world.sync.drained[0].peers == (A, B, C)
        for peer in (A, B, C):
            world.sync.leave(peer)
        await world.settle()
        assert all(not cluster.records for cluster in world.clusters.values())
        assert (await world.condition("Suspended")).status == "True"
        await world.advance(60)
        await world.change_job(suspend=False)
        await world.settle()
        for peer in (A, B, C):
            world.join_again(peer)
        await world.settle()
        assert (await world.ownership()).epoch == 1
        assert (await world.condition("Ready")).reason == "Training"

    play(scenario)


def test_complete_job_stops_its_trainers(play):
    async def scenario(world):
        await three_members(world)
        world.sync.commit()
        world.sync.finish()
        for peer in (A, B, C):
            world.sync.leave(peer, "Complete")
        await world.settle()
        assert all(not cluster.records for cluster in world.clusters.values())
        assert (await world.condition("Complete")).status == "True"
        assert (await world.condition("Ready")).status == "True"

    play(scenario)


def test_deleted_job_goes_at_once_and_its_peers_after_their_push(play):
    async def scenario(world):
        await three_members(world)
        await world.api.delete("SpesJob", "research", "moe-tiny")
        await world.settle()
        (order,) = world.sync.drained
        assert (order.stop, order.peers) == (True, ())
        assert set(await world.assignments()) == {A, B, C}
        for peer in (A, B, C):
            world.sync.leave(peer, "Stopped")
        await world.settle()
        assert await world.assignments() == {}
        assert all(not cluster.records for cluster in world.clusters.values())
        for kind in ("Secret", "ConfigMap", "SyncServer"):
            assert (await world.api.list(kind)).items == []
        assert "JobDeleted" in await world.reasons()

    play(scenario)


def test_deleted_job_does_not_wait_for_peers_for_ever(play):
    async def scenario(world):
        await three_members(world)
        await world.api.delete("SpesJob", "research", "moe-tiny")
        await world.advance(119, every=30)
        assert await world.assignments()
        await world.advance(31, every=30)
        assert await world.assignments() == {}

    play(scenario)


def test_member_that_was_away_cleans_up_on_its_return(play):
    async def scenario(world):
        await three_members(world)
        world.stop_agent("uni-c")
        await world.api.delete("SpesJob", "research", "moe-tiny")
        for peer in (A, B, C):
            world.sync.leave(peer, "Stopped")
        await world.settle()
        assert world.clusters["uni-c"].records
        world.start_agent("uni-c")
        await world.settle()
        assert world.clusters["uni-c"].records == {}
        assert world.clusters["uni-c"].secret_data == {}

    play(scenario)


def test_lost_volume_starts_a_new_incarnation(play):
    async def scenario(world):
        await three_members(world)
        for _ in range(3):
            world.sync.commit()
        await world.advance(12)
        assert (await world.job()).status.round == 3
        world.sync.lose_volume()
        await world.settle()
        assert (await world.ownership()).incarnation == 2
        assert world.sync.plan.incarnation == 2
        assert "VolumeLost" in await world.reasons()
        for peer, version in ((A, 2), (B, 3), (C, 3)):
            world.sync.connect(peer, version=version)
        await world.settle()
        assert world.sync.plan.seed_peer == B
        world.sync.seed()
        world.sync.catch_up(A, B, C)
        await world.advance(12)
        ownership = await world.ownership()
        assert (ownership.epoch, ownership.incarnation) == (1, 2)
        assert (await world.job()).status.round == 0

    play(scenario)


def test_lost_ownership_continues_above_the_servers_epoch(play):
    async def scenario(world):
        await three_members(world)
        world.sync._set(pending_epoch=7)
        await world.settle()
        ownership = await world.ownership()
        assert ownership.epoch == 8
        assert set(ownership.granted.values()) == {8}
        assert world.sync.plan.epoch == 8

    play(scenario)


def test_too_little_memory_is_said_with_the_numbers(play):
    async def scenario(world):
        await world.create_job()
        await world.add_member("uni-c", 2)
        await world.add_member("uni-b", 4)
        await world.start_training("uni-b.0", "uni-c.0")
        assert await world.ownership() is None
        ready = await world.condition("Ready")
        assert ready.reason == "NoGPUCapacity"
        assert "8 experts need an owner, but the peers have memory for 6" in ready.message

    play(scenario)


def test_later_shortage_parks_experts_in_turn(play):
    async def scenario(world):
        await world.create_job(members={"min": 1})
        await world.add_member("uni-b", 4)
        await world.add_member("uni-d", 4)
        await world.start_training(B, D)
        world.offer("uni-d")
        world.sync.leave(D)
        await world.settle()
        first = await world.ownership()
        assert len(first.parked) == 4
        assert (await world.job()).status.experts.parked == 4
        await world.settle()
        assert (await world.ownership()).parked == first.parked
        world.sync.commit()
        await world.settle()
        assert set((await world.ownership()).parked) != set(first.parked)

    play(scenario)


def test_moves_for_balance_are_limited_and_orphans_are_not(play):
    async def scenario(world):
        await world.create_job(reassignment={"maxMovesPerMinute": 1}, members={"max": 8})
        await world.add_member("uni-a", 8)
        await world.add_member("uni-b", 4)
        await world.start_training(A, B)
        for name in ("uni-c", "uni-d"):
            await world.add_member(name, 4)
            await world.beat()
            await world.settle()
            world.run_trainer(f"{name}.0")
            await world.settle()
            world.sync.catch_up(f"{name}.0")
            await world.settle()
        assert set(await world.counts()) == {A, B, C}
        world.offer("uni-c")
        world.sync.leave(C)
        await world.settle()
        assert set(await world.counts()) == {A, B}
        await world.advance(61)
        assert set(await world.counts()) == {A, B, D}

    play(scenario)


def test_other_cluster_under_a_members_name_is_not_used(play):
    async def scenario(world):
        await three_members(world)
        world.offer("uni-c", 2, cluster_id="stranger")
        await world.settle()
        ready = next(
            o for o in (await world.member("uni-c")).status.conditions if o.type == "Ready"
        )
        assert ready.reason == "ClusterIDDiffers"
        assert (await world.assignments())[C].spec.desired == "Drain"

    play(scenario)


def test_the_same_cluster_under_another_name_is_not_used(play):
    async def scenario(world):
        await three_members(world)
        before = await world.counts()
        await world.add_member("uni-d", 8, cluster_id="uid-uni-a")
        await world.beat()
        await world.settle()
        ready = {
            name: next(o for o in (await world.member(name)).status.conditions if o.type == "Ready")
            for name in ("uni-a", "uni-d")
        }
        assert (ready["uni-a"].status, ready["uni-d"].reason) == ("True", "ClusterTaken")
        assert "member uni-a already" in ready["uni-d"].message
        assert (await world.member("uni-d")).status.cluster_id == ""
        assert D not in await world.assignments()
        assert await world.counts() == before

    play(scenario)


def test_members_that_do_not_match_get_no_assignment(play):
    async def scenario(world):
        await world.create_job(members={"selector": {"tier": "gold"}, "min": 1})
        await world.add_member("uni-a", 8)
        await world.add_member("uni-b", 4)
        await world.change_member("uni-a", labels={"tier": "gold"})
        await world.beat()
        await world.settle()
        await world.listen()
        await world.settle()
        assert set(await world.assignments()) == {A}

    play(scenario)


def test_held_round_is_shown_with_the_servers_words(play):
    async def scenario(world):
        await three_members(world)
        world.sync._set(phase=Phase.HELD, problem="waiting for uni-b.0")
        await world.settle()
        ready = await world.condition("Ready")
        assert (ready.status, ready.reason) == ("False", "RoundHeld")
        assert ready.message == "waiting for uni-b.0"

    play(scenario)


def test_job_that_is_no_job_says_what_is_wrong(play):
    async def scenario(world):
        await world.create_job(members={"min": 3, "max": 2})
        await world.settle()
        job = await world.api.get("SpesJob", "research", "moe-tiny")
        conditions = {one["type"]: one for one in job["status"]["conditions"]}
        assert conditions["Validated"]["reason"] == conditions["Ready"]["reason"] == "InvalidSpec"
        assert "min must be at most max" in conditions["Validated"]["message"]
        before = job["metadata"]["resourceVersion"]
        await world.hub.reconcile(world.key)
        job = await world.api.get("SpesJob", "research", "moe-tiny")
        assert job["metadata"]["resourceVersion"] == before

    play(scenario)


def test_steady_state_asks_the_api_for_no_write(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(20)
        world.forbid_writes()
        for name in world.agents:
            await world.agents[name].reconcile()
        await world.hub.reconcile_members()
        await world.hub.remove_leftovers()
        await world.hub.reconcile(world.key)

    play(scenario)
