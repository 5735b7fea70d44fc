"""The hub is killed at its writes, one after another, and finishes what it left half done."""

import os
import signal

import pytest
from builders.live_objects import until
from builders.tiny_job import epoch, owners
from builders.write_gate import nth

pytestmark = pytest.mark.timeout(1800)

LONG = {"unreachableAfterSeconds": 60, "reassignAfterSeconds": 300}


def test_the_hub_may_die_between_any_two_writes_of_a_move(federation):
    """Its first life ends at its first write, its second one at the second, and so on."""
    federation.set_reassignment(LONG)
    before = federation.job()
    federation.cordon("uni-b")
    assert die_until_done(federation, "uni-a", after=False) >= 3
    federation.cordon("uni-b", unschedulable=False)
    assert die_until_done(federation, "uni-a", "uni-b", after=True) >= 3
    assert epoch(federation.job()) == epoch(before) + 2
    federation.wait_rounds()


def test_a_hub_that_was_away_moves_nothing_when_it_is_back(federation):
    federation.set_reassignment(LONG)
    before, journal = federation.job(), federation.journal()
    federation.hub.kill()
    rounds = journal.rounds()
    until(lambda: journal.rounds() >= rounds + 3, seconds=240)
    federation.hub.start()
    federation.wait_event("HubRecovering")
    after = federation.wait_job(
        lambda job: job["status"]["round"] >= rounds + 3 and owners(job) == owners(before)
    )
    assert epoch(after) == epoch(before)


def die_until_done(federation, *sites, after):
    """How often the hub died until these members own everything."""
    peers = {federation.peer(site) for site in sites}

    def is_done():
        job = federation.job()
        return owners(job) == peers and set(federation.journal().owners()) == peers

    deaths = 0
    while True:
        pid = federation.hub.pid
        federation.gate.strike(
            nth(deaths + 1), lambda pid=pid: os.kill(pid, signal.SIGKILL), after=after
        )
        until(lambda: not federation.hub.is_running() or is_done(), federation.hub.log, seconds=240)
        federation.gate.disarm()
        if federation.hub.is_running():
            return deaths
        federation.hub.kill()
        federation.hub.start()
        deaths += 1
