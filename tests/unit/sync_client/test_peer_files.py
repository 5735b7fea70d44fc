"""What a peer keeps in its directory, and how it waits."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import pytest
import spes_sync.client
from spes_sync.client.backoff import LONGEST, Backoff
from spes_sync.client.directory import claim, held
from spes_sync.client.learner import StepResult
from spes_sync.client.pace import Pace
from spes_sync.client.tokens import TokenFiles
from spes_sync.client.work import Work
from spes_sync.errors import TokenError, VolumeError


def test_kept_token_is_tried_before_the_given_one(tmp_path):
    given = tmp_path / "given"
    given.write_text("first\n")
    tokens = TokenFiles(tmp_path, given)
    assert list(tokens.candidates()) == ["first"]
    tokens.keep("next")
    assert list(tokens.candidates()) == ["next", "first"]


def test_huge_token_file_is_no_token(tmp_path):
    (tmp_path / "given").write_bytes(b"x" * 1000)
    with pytest.raises(TokenError, match="1000 bytes"):
        list(TokenFiles(tmp_path, tmp_path / "given").candidates())


def test_directory_is_held_by_one_process_and_free_afterwards(tmp_path):
    with held(tmp_path), pytest.raises(VolumeError, match="in use by process"), held(tmp_path):
        pass
    with held(tmp_path):
        pass


def test_directory_belongs_to_its_first_job(tmp_path):
    claim(tmp_path, "job-1")
    claim(tmp_path, "job-1")
    with pytest.raises(VolumeError, match=r"got job-1, expected job-2"):
        claim(tmp_path, "job-2")


def test_waits_grow_to_a_cap_with_jitter():
    backoff = Backoff(random.Random(0))
    waits = [backoff.next() for _ in range(20)]
    assert waits[0] <= timedelta(seconds=0.2)
    assert all(LONGEST / 2 <= wait <= LONGEST for wait in waits[-10:])
    assert len(set(waits)) == len(waits)
    backoff.reset()
    assert backoff.next() <= timedelta(seconds=0.2)


def test_server_may_ask_for_a_longer_wait():
    assert Backoff().next(timedelta(seconds=30)) == timedelta(seconds=30)


def test_round_shorter_than_a_step_is_named_once(caplog):
    pace = Pace(1.0)
    pace.stepped(StepResult(loss=1, tokens=8, routed_tokens=()), seconds=2.5)
    for _ in range(2):
        pace.check_round(Work(steps=1))
    assert caplog.text.count("got 1.0 s, a step took 2.5 s") == 1


def paced(*seconds: float) -> float:
    """Tokens per second after steps of 8 tokens that took so long."""
    pace = Pace(None)
    for each in seconds:
        pace.stepped(StepResult(loss=1, tokens=8, routed_tokens=()), seconds=each)
    return float(pace.heartbeat(0, Work()).tokens_per_second)


def test_a_machine_that_was_frozen_is_no_slower_than_before():
    usual = [0.1] * 100
    assert paced(*usual, 60.0) > 0.9 * paced(*usual)


def test_a_machine_that_became_slow_is_soon_known_to_be():
    assert paced(*[0.1] * 100, *[2.0] * 200) == pytest.approx(8 / 2.0, rel=0.1)


def test_no_wall_clock_is_read_anywhere():
    """Clocks of different machines are never compared, so none needs to be right."""
    for path in Path(spes_sync.client.__file__).parent.glob("*.py"):
        text = path.read_text()
        assert "time.time(" not in text, path
        assert "datetime.now" not in text, path
