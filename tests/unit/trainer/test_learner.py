"""The torch learner, driven by hand as `spes_sync.client` would."""

from __future__ import annotations

import errno
import json
import os
import threading

import numpy as np
import pytest
import torch
from builders.nano import nano_spec, write_words
from spes_api.job import CheckpointSpec
from spes_sync.client import JobTerms, OwnershipChange, SavePoint, StepPosition
from spes_sync.disk import Disk
from spes_sync.manifest import expert_of
from spes_trainer.data.reading import read_corpus
from spes_trainer.errors import VolumeError
from spes_trainer.learner import TorchLearner
from spes_trainer.optim import RAMP_STEPS
from spes_trainer.share import Workplace

ALL = (0, 1, 2, 3)


def terms(**changes) -> JobTerms:
    given = {"job_uid": "job", "incarnation": 1, "peer": "uni-a.0", "settings_json": ""}
    return JobTerms(**given | changes)


@pytest.fixture
def make_learner(tmp_path):
    """Builds learners on one directory, as processes that follow each other do."""
    root = write_words(tmp_path / "data")

    def make(spec=None, **changes) -> TorchLearner:
        spec = spec or nano_spec()
        directory = tmp_path / "uni-a.0"
        corpus = read_corpus(spec, data_root=root, directory=directory, disk=Disk())
        workplace = Workplace(
            directory=directory,
            data_root=root,
            stop=changes.pop("stop", threading.Event()),
            disk=changes.pop("disk", Disk()),
        )
        return TorchLearner(spec, terms(**changes), corpus, workplace=workplace)

    return make


def own(learner, owned, **changes) -> None:
    given = {"owned": owned, "gained": owned, "lost": (), "moments": {}, "untrained": False}
    learner.own(OwnershipChange(**given | changes))


def step(learner, number=0, *, global_tokens=None):
    at = number * 64 if global_tokens is None else global_tokens
    sequences = tuple(range(4 * number, 4 * number + 4))
    return learner.step(StepPosition(round=1, sequences=sequences, global_tokens=at))


def weights(learner) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in learner.read(learner.manifest.names)}


def point(version=1, **changes) -> SavePoint:
    given = {
        "incarnation": 1,
        "version": version,
        "epoch": 1,
        "owned": {0: 1, 2: 1},
        "steps": 4,
        "tokens": 256,
        "global_tokens": 512,
    }
    return SavePoint(**given | changes)


def moved(before, after) -> set[int]:
    return {expert_of(name) for name in before if not np.array_equal(before[name], after[name])}


def ramps(learner) -> dict[int, int]:
    held = learner._stepper.optimizer.moments
    return {expert_of(name): moments.ramp for name, moments in held.items()}


def test_the_manifest_lists_every_tensor_with_its_expert(make_learner):
    manifest = make_learner().manifest
    assert manifest.experts == ALL
    assert manifest["layers.0.experts.2.w2"].shape == (32, 32)
    assert manifest["layers.0.experts.2.w2"].expert == 2
    assert manifest["head.weight"].expert == -1


def test_what_is_written_is_read(make_learner):
    learner = make_learner()
    value = np.arange(32, dtype=np.float32)
    value.setflags(write=False)
    learner.write([("norm.weight", value)])
    assert np.array_equal(dict(learner.read(["norm.weight"]))["norm.weight"], value)


def test_only_owned_experts_and_shared_tensors_are_trained(make_learner):
    learner = make_learner()
    own(learner, (1, 3), untrained=True)
    before = weights(learner)
    result = step(learner)
    assert (result.tokens, sum(result.routed_tokens)) == (64, 128)
    assert moved(before, weights(learner)) == {-1, 1, 3}


def test_a_peer_without_experts_trains_what_is_shared(make_learner):
    learner = make_learner()
    before = weights(learner)
    step(learner)
    assert moved(before, weights(learner)) == {-1}


def test_no_ramp_at_the_beginning_of_the_job(make_learner):
    learner = make_learner()
    own(learner, (0,), untrained=True)
    assert ramps(learner) == {-1: RAMP_STEPS, 0: RAMP_STEPS}


def test_a_peer_that_joins_later_climbs_with_all_it_trains(make_learner):
    learner = make_learner()
    own(learner, (0,))
    assert ramps(learner) == {-1: 0, 0: 0}
    other = make_learner()
    step(other, global_tokens=6400)
    assert ramps(other) == {-1: 1}


def test_moments_go_from_the_last_owner_to_the_next(make_learner):
    giver, taker = make_learner(), make_learner()
    own(giver, (0, 1), untrained=True)
    own(taker, (2,), untrained=True)
    for number in range(3):
        step(giver, number)
    given = giver.moments(1)
    assert set(given) == set(giver.manifest.moments_of(1).names)
    own(taker, (1, 2), gained=(1,), moments={1: given})
    taken = taker.moments(1)
    assert all(np.array_equal(taken[name], given[name]) for name in given)
    assert taken["step.layers.0.experts.1.w1"].tolist() == [3.0]
    assert ramps(taker)[1] == 3


def test_an_untrained_expert_has_no_moments_to_hand_over(make_learner):
    learner = make_learner()
    own(learner, (0,), untrained=True)
    assert learner.moments(0) == {}
    step(learner)
    assert learner.moments(3) == {}


def test_an_expert_that_was_lost_and_gained_again_starts_anew(make_learner):
    learner = make_learner()
    own(learner, (0, 1), untrained=True)
    step(learner)
    own(learner, (0, 1), gained=(1,), lost=(1,))
    assert learner.moments(0) != {}
    assert learner.moments(1) == {}
    assert ramps(learner) == {-1: RAMP_STEPS, 0: RAMP_STEPS, 1: 0}


def test_a_strong_proximal_term_holds_all_weights_from_the_first_step_on(make_learner):
    moved = []
    for mu in (0.0, 1000.0):
        learner = make_learner(nano_spec(optimizer={"learningRate": 0.01, "proximal": mu}))
        start = weights(learner)
        learner.anchor()
        for number in range(6):
            step(learner, number)
        after = weights(learner)
        moved.append(sum(float(np.abs(after[n] - start[n]).sum()) for n in after))
    assert moved[1] < moved[0] / 2


def test_a_stopped_step_changes_nothing(make_learner):
    stop = threading.Event()
    learner = make_learner(stop=stop)
    own(learner, ALL, untrained=True)
    before = weights(learner)
    stop.set()
    assert step(learner) is None
    assert moved(before, weights(learner)) == set()


def test_a_new_process_resumes_with_everything(make_learner):
    first, second = make_learner(), make_learner()
    own(first, (0, 2), untrained=True)
    step(first, 0)
    own(first, (0, 2, 3), gained=(3,))
    step(first, 1)
    saved = point(owned={0: 1, 2: 1, 3: 7})
    first.save(saved)
    assert second.restore() == saved
    assert ramps(second) == ramps(first) == {-1: 100, 0: 100, 2: 100, 3: 1}
    step(first, 2)
    step(second, 2)
    assert moved(weights(first), weights(second)) == set()


def test_a_resumed_peer_goes_on_with_its_training_log(make_learner, tmp_path):
    """The second step was done after the checkpoint, so the next process does it again."""
    first, second = make_learner(), make_learner()
    own(first, (0, 2), untrained=True)
    step(first, 0)
    first.save(point(steps=1))
    step(first, 1)
    first.close()
    second.restore()
    step(second, 1, global_tokens=512)
    second.close()
    written = (tmp_path / "uni-a.0" / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in written.splitlines()]
    assert [(line["step"], line["globalTokens"]) for line in lines] == [(1, 64), (2, 512 + 64)]
    assert list((tmp_path / "uni-a.0" / "tensorboard").iterdir())


def test_without_a_checkpoint_there_is_nothing_to_resume(make_learner):
    assert make_learner().restore() is None


def test_a_damaged_checkpoint_is_no_reason_to_stay_away(make_learner, tmp_path, caplog):
    learner = make_learner()
    learner.save(point())
    for path in tmp_path.glob("uni-a.0/checkpoints/*/rank-0.safetensors"):
        path.write_bytes(b"damaged")
    assert make_learner().restore() is None
    assert "starting without a checkpoint" in caplog.text


def test_a_checkpoint_of_another_job_is_refused(make_learner):
    make_learner().save(point())
    with pytest.raises(VolumeError, match=r"another job \(got job, expected other\)"):
        make_learner(job_uid="other").restore()


def test_a_refused_push_returns_the_moments_of_the_checkpoint(make_learner):
    learner = make_learner()
    own(learner, (0,), untrained=True)
    step(learner, 0)
    learner.save(point(owned={0: 1}))
    kept = {name: np.array(value) for name, value in learner.moments(0).items()}
    step(learner, 1)
    learner.discard()
    back = learner.moments(0)
    assert all(np.array_equal(back[name], kept[name]) for name in kept)


def test_a_refused_push_without_a_checkpoint_starts_the_moments_anew(make_learner):
    learner = make_learner()
    own(learner, (0,), untrained=True)
    step(learner)
    learner.discard()
    assert learner.moments(0) == {}
    assert ramps(learner) == {-1: 0, 0: 0}


def test_the_same_version_is_saved_once_for_each_incarnation(make_learner):
    reached: list[str] = []
    learner = make_learner(disk=Disk(reached=reached.append))
    for incarnation in (1, 1, 2):
        learner.save(point(incarnation=incarnation))
    assert reached.count("checkpoint is the latest") == 2


def test_the_best_version_outlives_those_after_it(make_learner, tmp_path):
    learner = make_learner(
        nano_spec().model_copy(update={"checkpoint": CheckpointSpec(keep_last=1, keep_best=1)})
    )
    own(learner, (0, 2))
    for version, loss in ((1, 3.0), (2, 2.0), (3, 2.5), (4, 2.75)):
        learner.save(point(version))
        learner.judge(version, loss)
    names = (path.name for path in (tmp_path / "uni-a.0/checkpoints").iterdir())
    assert sorted(names) == ["round-000002", "round-000004"]


def test_a_full_disk_does_not_end_training(make_learner, caplog):
    def fsync(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    learner = make_learner(disk=Disk(fsync=fsync))
    own(learner, ALL, untrained=True)
    learner.save(point())
    assert "training goes on" in caplog.text
    assert "no space left for" in caplog.text
    assert step(learner) is not None


def test_held_out_loss_needs_held_out_text(make_learner):
    spec = nano_spec()
    without = spec.data.model_copy(update={"held_out_fraction": 0.0})
    learner = make_learner(spec.model_copy(update={"data": without}))
    assert np.isnan(learner.evaluate(128))
    assert make_learner().evaluate(128) == pytest.approx(5.5, abs=0.3)


def test_two_peers_begin_with_the_same_bits(make_learner):
    one, other = make_learner(), make_learner(peer="uni-b.0")
    assert moved(weights(one), weights(other)) == set()
    assert one.data == other.data


def test_the_random_state_is_resumed_too(make_learner):
    """Nothing draws from it after the weights today; what will must not repeat itself."""
    torch.manual_seed(7)
    learner = make_learner()
    learner.save(point())
    expected = torch.rand(3)
    torch.manual_seed(8)
    make_learner().restore()
    assert torch.equal(torch.rand(3), expected)
