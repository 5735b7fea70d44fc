"""Two gloo ranks on a CPU against one process: the same numbers, whatever is owned and routed."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from builders.nano import nano_spec, nano_stepper, nano_tokens, write_words
from builders.rank_runs import START_SECONDS, Site, moments, own, point, step, weights
from spes_sync.manifest import expert_of
from spes_trainer.assembly import build_stepper
from spes_trainer.commands import Step
from spes_trainer.errors import NonFiniteError

pytestmark = pytest.mark.timeout(2 * START_SECONDS)
# Sums over two ranks are added in another order than those of one.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@dataclass
class Seen:
    """What a run of a given number of processes has shown."""

    losses: list[float] = field(default_factory=list)
    routed: list[list[int]] = field(default_factory=list)
    weights: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    """By moment of the run."""
    moments: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    held_out: dict[str, float] = field(default_factory=dict)
    apart: list[int] = field(default_factory=list)
    """Tokens routed to each expert where each rank had experts of its own."""
    error: str = ""
    log: list[dict] = field(default_factory=list)
    """Lines of its training log."""

    def look(self, learner, when: str) -> None:
        self.weights[when] = weights(learner)
        self.moments[when] = moments(learner)
        self.held_out[when] = learner.evaluate(112)  # seven sequences: one rank gets less


def steps(learner, seen: Seen, numbers) -> None:
    for number in numbers:
        result = step(learner, number)
        seen.losses.append(result.loss)
        seen.routed.append(list(result.routed_tokens))


def flip(learner, seen: Seen) -> None:
    """Two experts, none, one that brings its moments."""
    own(learner, 0, 2, gained=(0, 2), untrained=True)
    steps(learner, seen, range(4))
    seen.look(learner, "two owned")
    given = learner.moments(2)
    own(learner, lost=(0, 2))
    steps(learner, seen, range(4, 6))
    seen.look(learner, "none owned")
    own(learner, 2, gained=(2,), moments={2: given})
    steps(learner, seen, range(6, 9))
    seen.look(learner, "one owned")


def route_apart(learner, seen: Seen) -> None:
    """One step in which neither rank has a token for the other's experts; both are owned."""
    own(learner, 0, 2, gained=(0,))
    kept = {name: np.array(value) for name, value in learner.read(learner.manifest.names)}
    embedding = kept["embedding.weight"].copy()
    embedding[ord("a")], embedding[ord("b")] = 0, 0
    embedding[ord("a"), 0], embedding[ord("b"), 0] = 30, -30
    router = np.zeros_like(kept["layers.0.router.weight"])
    router[:, 0] = (2, 1, -2, -1)
    learner.write([("embedding.weight", embedding), ("layers.0.router.weight", router)])
    sequences = torch.tensor([[ord("a")] * 16, [ord("b")] * 16] * 2)
    command = Step(shape=(4, 16), rate=0.01, ramp=True)
    seen.apart = learner._all(command, {"sequences": sequences}).routed.sum(axis=0).tolist()
    seen.look(learner, "routed apart")
    learner.write(kept.items())


def diverge(learner, seen: Seen) -> None:
    """A NaN in a row that rank 1 holds."""
    head = dict(learner.read(["head.weight"]))["head.weight"].copy()
    head[-1, 0] = math.nan
    learner.write([("head.weight", head)])
    with pytest.raises(NonFiniteError) as caught:
        step(learner, 9)
    seen.error = str(caught.value)
    learner.write([("head.weight", np.nan_to_num(head))])


def resume_with_one(site: Site, seen: Seen) -> None:
    """Go on from what two processes have saved, and save again on the way."""
    with site.learner("two") as learner:
        assert learner.restore() == point(1, 2)
        seen.look(learner, "resumed")
        steps(learner, seen, range(9, 11))
        learner.save(point(2, 2))
        seen.look(learner, "saved")
        steps(learner, seen, range(11, 13))
        seen.look(learner, "end")


def read_log(site: Site, name: str) -> list[dict]:
    written = (site.root / name / "metrics.jsonl").read_text()
    return [json.loads(line) for line in written.splitlines()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Seen]:
    """One script by one process and by two; then one and two from each other's checkpoints."""
    spec = nano_spec(microBatchTokens=32)
    trainer = spec.trainer.model_copy(update={"activation_checkpointing": True})
    recomputing = spec.model_copy(update={"trainer": trainer})
    site = Site(tmp_path_factory.mktemp("ranks"), spec)
    write_words(site.root / "data")
    seen = {name: Seen() for name in ("one", "two", "then one", "then two")}
    with site.learner("one") as learner:
        flip(learner, seen["one"])
        seen["one"].log = read_log(site, "one")
        route_apart(learner, seen["one"])
    with replace(site, spec=recomputing).learner("two", processes=2) as learner:
        flip(learner, seen["two"])
        seen["two"].log = read_log(site, "two")
        learner.save(point(1, 2))
        route_apart(learner, seen["two"])
        diverge(learner, seen["two"])
        seen["two"].look(learner, "before a stop")
        site.stop.set()
        assert step(learner, 9) is None
        site.stop.clear()
        seen["two"].look(learner, "after a stop")
        resume_with_one(replace(site, spec=spec), seen["then one"])
        assert learner.restore() == point(2, 2)
        seen["then two"].look(learner, "resumed")
        steps(learner, seen["then two"], range(11, 13))
        seen["then two"].look(learner, "end")
    return seen


def assert_close(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> None:
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, **CLOSE, err_msg=name)


def assert_same(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> None:
    assert one.keys() == two.keys()
    assert not [name for name in one if not np.array_equal(one[name], two[name])]


WHEN = ("two owned", "none owned", "one owned", "routed apart")


@pytest.mark.parametrize("when", WHEN)
def test_two_ranks_have_the_weights_of_one_process(runs, when):
    assert_close(runs["one"].weights[when], runs["two"].weights[when])


@pytest.mark.parametrize("when", WHEN)
def test_two_ranks_have_the_moments_of_one_process(runs, when):
    assert_close(runs["one"].moments[when], runs["two"].moments[when])


def test_losses_and_routing_are_those_of_the_whole_step(runs):
    one, two = runs["one"], runs["two"]
    np.testing.assert_allclose(two.losses, one.losses, rtol=1e-6)
    assert two.routed == one.routed
    for when in WHEN:
        assert two.held_out[when] == pytest.approx(one.held_out[when], rel=1e-6)


@pytest.mark.parametrize("name", ["loss", "zLoss", "loadBalance", "routerZLoss", "gradientNorm"])
def test_the_training_log_is_that_of_all_ranks(runs, name):
    one, two = ([line[name] for line in runs[who].log] for who in ("one", "two"))
    np.testing.assert_allclose(two, one, rtol=2e-5)
    assert len(one) == 9


def test_the_memory_in_the_training_log_is_that_of_all_ranks(runs):
    """Both processes have torch; that of the tests has more besides."""
    alone = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
    assert runs["two"].log[-1]["peakMemoryBytes"] > 1024 * int(alone)


def test_frozen_experts_keep_every_bit(runs):
    before, after = runs["two"].weights["two owned"], runs["two"].weights["none owned"]
    kept = {expert_of(name) for name in before if np.array_equal(before[name], after[name])}
    assert kept == {0, 1, 2, 3}
    assert not [
        name
        for name in before
        if expert_of(name) == -1 and np.array_equal(before[name], after[name])
    ]


def test_each_rank_had_tokens_for_its_own_experts_only(runs):
    assert runs["two"].apart == [32, 32, 32, 32]


def test_a_nan_on_one_rank_stops_all(runs):
    assert "not finite, first seen in the output of head" in runs["two"].error


def test_a_stopped_step_changes_nothing(runs):
    two = runs["two"]
    assert_same(two.weights["before a stop"], two.weights["after a stop"])
    assert_same(two.moments["before a stop"], two.moments["after a stop"])


def test_one_process_resumes_what_two_have_saved(runs):
    assert_same(runs["two"].weights["one owned"], runs["then one"].weights["resumed"])
    assert_same(runs["two"].moments["one owned"], runs["then one"].moments["resumed"])


def test_two_processes_resume_what_one_has_saved(runs):
    assert_same(runs["then one"].weights["saved"], runs["then two"].weights["resumed"])
    assert_same(runs["then one"].moments["saved"], runs["then two"].moments["resumed"])
    assert_close(runs["then one"].weights["end"], runs["then two"].weights["end"])


def test_recomputed_activations_change_no_bit():
    spec = nano_spec()
    trainer = spec.trainer.model_copy(update={"activation_checkpointing": True})
    kept = nano_stepper()
    recomputed = build_stepper(spec.model_copy(update={"trainer": trainer}))
    recomputed.optimizer.follow(dict(recomputed.model.named_parameters()), ramp=False)
    kept.optimizer.follow(dict(kept.model.named_parameters()), ramp=False)
    for stepper in (kept, recomputed):
        stepper.step(nano_tokens(), rate=0.01)
    pairs = zip(kept.model.parameters(), recomputed.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
