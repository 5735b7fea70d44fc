"""The outer optimizer (DiLoCo, arXiv 2311.08105): numbers, momentum, its file."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from spes_sync.disk import Disk
from spes_sync.errors import DivergedError
from spes_sync.manifest import Manifest, TensorSpec
from spes_sync.outer import OuterState, OuterStep
from spes_sync.quantize import PIECE_ELEMENTS
from spes_sync.versions import VELOCITY

DISK = Disk(fsync=lambda _: None)
DILOCO = OuterStep(learning_rate=0.7, momentum=0.9)
WEIGHT = TensorSpec(name="weight", shape=(1,))
ONE = Manifest((WEIGHT,))

values = arrays(np.float32, 5, elements=st.floats(-1e3, 1e3, width=32))


def test_three_rounds_of_a_scalar_reach_the_computed_numbers():
    """Changes -0.2 and -0.4 each round from 1: v .3, .57, .813; theta .601, .0319, -.69029."""
    theta, velocity = np.ones(1, np.float32), np.zeros(1, np.float32)
    seen = []
    for _ in range(3):
        theta += DILOCO.advance(np.full(1, -0.3, np.float32), velocity)
        seen.append((velocity[0], theta[0]))
    assert seen == [
        pytest.approx(each, abs=1e-6) for each in ((0.3, 0.601), (0.57, 0.0319), (0.813, -0.69029))
    ]


def test_steady_changes_are_stretched_seven_times():
    velocity, change = np.zeros(1, np.float32), np.full(1, -0.3, np.float32)
    for _ in range(300):
        step = DILOCO.advance(change, velocity)
    assert step[0] == pytest.approx(-2.1, rel=1e-5)


@given(values, values)
def test_rate_one_without_momentum_is_the_average_bit_for_bit(change, velocity):
    step = OuterStep(learning_rate=1.0, momentum=0.0).advance(change, velocity.copy())
    assert np.array_equal(step, change)


def test_it_is_the_nesterov_momentum_of_torch():
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    theta = random.normal(size=7).astype("f4")
    velocity = np.zeros(7, np.float32)
    parameter = torch.nn.Parameter(torch.tensor(theta))
    optimizer = torch.optim.SGD([parameter], lr=0.7, momentum=0.9, nesterov=True)
    for _ in range(5):
        change = random.normal(size=7).astype("f4")
        theta += DILOCO.advance(change, velocity)
        parameter.grad = torch.tensor(-change)
        optimizer.step()
        assert theta == pytest.approx(parameter.detach().numpy(), rel=1e-5, abs=1e-6)


# Its file.


def move(base, target, change, *, step=DILOCO, manifest=ONE):
    """One version's outer steps, by name, and the files that were written."""
    target.mkdir(exist_ok=True)
    with OuterState(step, manifest, base=base, target=target, disk=DISK) as state:
        steps = {
            tensor.name: [np.array(piece) for piece in state.steps(tensor, change(tensor))]
            for tensor in manifest
        }
        return steps, state.close()


def pushed(value):
    return lambda _: [np.full(1, value, np.float32)]


def test_velocity_goes_on_from_version_to_version(tmp_path):
    versions = [tmp_path / str(number) for number in range(4)]
    theta, seen = 1.0, []
    for base, target in pairwise(versions):
        steps, files = move(base, target, pushed(-0.3))
        theta += float(steps["weight"][0][0])
        seen.append(theta)
        assert list(files) == [VELOCITY]
    assert seen == pytest.approx([0.601, 0.0319, -0.69029], abs=1e-6)


def test_the_same_base_gives_the_same_step_again(tmp_path):
    move(tmp_path / "0", tmp_path / "1", pushed(-0.3))
    first = move(tmp_path / "1", tmp_path / "2", pushed(0.5))
    again = move(tmp_path / "1", tmp_path / "2", pushed(0.5))
    assert first == again


def test_tensor_of_several_pieces_keeps_its_places(tmp_path):
    size = PIECE_ELEMENTS + 3
    tensor = TensorSpec(name="long", shape=(size,))
    change = np.random.default_rng(1).normal(size=size).astype("f4")

    def both(_):
        return [change[:PIECE_ELEMENTS], change[PIECE_ELEMENTS:]]

    manifest = Manifest((tensor,))
    move(tmp_path / "0", tmp_path / "1", both, manifest=manifest)
    steps, _ = move(tmp_path / "1", tmp_path / "2", both, manifest=manifest)
    velocity = np.zeros(size, np.float32)
    DILOCO.advance(change, velocity)
    assert np.array_equal(np.concatenate(steps["long"]), DILOCO.advance(change, velocity))


def test_without_momentum_nothing_is_kept(tmp_path):
    plain = OuterStep(learning_rate=1.0, momentum=0.0)
    _, files = move(tmp_path / "0", tmp_path / "1", pushed(1.0), step=plain)
    assert files == {}
    assert not (tmp_path / "1" / VELOCITY).exists()


def test_velocity_that_is_not_finite_is_refused_and_named(tmp_path):
    move(tmp_path / "0", tmp_path / "1", pushed(-3e38))
    with pytest.raises(DivergedError, match=r"outer velocity of weight .* last version stays"):
        move(tmp_path / "1", tmp_path / "2", pushed(-3e38))
