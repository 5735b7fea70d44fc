"""One optimizer step: it learns, repeats bit for bit, and says where a NaN comes from."""

from __future__ import annotations

import pytest
import torch
from builders.nano import nano_stepper, nano_tokens
from spes_trainer.errors import DeviceMemoryError, NonFiniteError
from spes_trainer.model.losses import load_balance, router_z
from spes_trainer.model.transformer import Transformer


def test_loss_of_random_weights_is_near_uniform():
    assert nano_stepper().evaluate(nano_tokens(16)) == pytest.approx(5.6, abs=0.3)


def test_training_on_one_batch_learns_it():
    stepper, tokens = nano_stepper(), nano_tokens()
    losses = [stepper.step(tokens, rate=0.01).loss for _ in range(30)]
    assert losses[-1] < losses[0] - 1.5


def test_steps_repeat_bit_for_bit():
    one, other = nano_stepper(microBatchTokens=32), nano_stepper(microBatchTokens=32)
    for seed in range(3):
        for stepper in (one, other):
            stepper.step(nano_tokens(seed=seed), rate=0.01)
    for mine, theirs in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_every_routed_token_is_counted():
    outcome = nano_stepper().step(nano_tokens(4, 16), rate=0.01)
    assert outcome.tokens == 64
    assert outcome.routed.sum() == 64 * 2
    assert outcome.routed.shape == (1, 4)


def test_a_step_tells_the_terms_of_its_loss_and_its_gradient():
    """Of two micro-batches: per token over both, or the mean of what is a statistic of each."""
    stepper, tokens = nano_stepper(microBatchTokens=32), nano_tokens()
    stepper.optimizer.step = lambda _rate: None
    outcome = stepper.step(tokens, rate=0.01)
    terms = []
    for half in torch.from_numpy(tokens).long().split(2):
        with torch.no_grad():
            output = stepper.model(half)
        squared = torch.logsumexp(output.logits_BSV[:, :-1], dim=-1).square().sum() / 64
        terms.append((2 * squared, load_balance(output.routings), router_z(output.routings)))
    z_loss, balance, router = (float(sum(each)) / 2 for each in zip(*terms, strict=True))
    assert outcome.z_loss == pytest.approx(z_loss, rel=1e-5)
    assert outcome.load_balance == pytest.approx(balance, rel=1e-5)
    assert outcome.router_z_loss == pytest.approx(router, rel=1e-5)
    assert outcome.peak_bytes > 2**20


def test_the_gradient_norm_is_that_before_clipping():
    loose = nano_stepper(optimizer={"learningRate": 0.01, "clipNorm": 1e9})
    tight = nano_stepper(optimizer={"learningRate": 0.01, "clipNorm": 1e-3})
    kept = []
    loose.optimizer.step = lambda _rate: kept.extend(
        p.grad.norm() for p in loose.model.parameters()
    )
    norm = loose.step(nano_tokens(), rate=0.01).gradient_norm
    assert norm == pytest.approx(float(torch.stack(kept).norm()), rel=1e-5)
    assert tight.step(nano_tokens(), rate=0.01).gradient_norm == norm


def test_evaluation_does_not_depend_on_the_batches():
    tokens = nano_tokens(7)
    whole, cut = nano_stepper(), nano_stepper(microBatchTokens=16)
    assert whole.evaluate(tokens) == pytest.approx(cut.evaluate(tokens), rel=1e-6)


@pytest.mark.parametrize(
    ("damage", "where"),
    [
        (lambda m: m.layers[0].experts[2].v1.data.fill_(torch.nan), "weight layers.0.experts.2.v1"),
        (lambda m: m.head.weight.data.fill_(3e38), "the output of head"),
        (lambda m: m.layers[0].router.weight.data.fill_(3e38), "the output of layers.0.router"),
    ],
    ids=["weight", "output", "router"],
)
def test_a_non_finite_step_says_where_and_applies_nothing(damage, where):
    stepper = nano_stepper()
    damage(stepper.model)
    before = [p.detach().clone() for p in stepper.model.parameters()]
    with pytest.raises(NonFiniteError, match=where) as raised:
        stepper.step(nano_tokens(), rate=0.01)
    assert raised.value.where == where
    after = list(stepper.model.parameters())
    assert not [p for p in after if p.grad is not None]
    assert all(
        torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(before, after, strict=True)
    )


def test_a_non_finite_gradient_names_the_tensor():
    stepper = nano_stepper()
    stepper.model.layers[0].attention.value.weight.register_hook(lambda grad: grad * torch.inf)
    with pytest.raises(NonFiniteError, match=r"the gradient of layers.0.attention.value.weight"):
        stepper.step(nano_tokens(), rate=0.01)


@pytest.fixture
def small_device(monkeypatch):
    """A model that says it has no memory for more than two sequences at once; counts its calls."""
    sizes = []

    def forward(model, tokens, **settings):
        sizes.append(len(tokens))
        output = forward_of_all(model, tokens, **settings)
        if len(tokens) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. More")
        return output

    forward_of_all = Transformer.forward
    monkeypatch.setattr(Transformer, "forward", forward)
    return sizes


def test_a_step_that_does_not_fit_is_made_again_with_smaller_parts(small_device, caplog):
    given, fitted = nano_stepper(microBatchTokens=32), nano_stepper()
    for seed in range(2):
        tokens = nano_tokens(seed=seed)
        mine, theirs = (s.step(tokens, rate=0.01) for s in (given, fitted))
        assert mine.loss == theirs.loss
        assert (mine.routed == theirs.routed).all()
    for mine, theirs in zip(given.model.parameters(), fitted.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert small_device == [2, 2, 4, 2, 2, 2, 2, 2, 2]
    (message,) = caplog.messages
    assert "no device memory for 4 sequences at once (CUDA out of memory)" in message
    assert "training.microBatchTokens: 32" in message


def test_gradients_of_the_part_that_fitted_are_forgotten(monkeypatch):
    """The first of two micro-batches fits, the second does not."""
    given, late = nano_stepper(microBatchTokens=16), nano_stepper(microBatchTokens=32)
    backward, calls = torch.Tensor.backward, []

    def fail_once(tensor, *rest, **settings):
        calls.append(tensor)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        backward(tensor, *rest, **settings)

    expected = given.step(nano_tokens(), rate=0.01)
    monkeypatch.setattr(torch.Tensor, "backward", fail_once)
    assert late.step(nano_tokens(), rate=0.01).gradient_norm == expected.gradient_norm
    assert late.micro_batch.sequences == 1


def test_a_single_sequence_that_does_not_fit_ends_the_trainer_with_advice(monkeypatch):
    def forward(*_given, **_settings):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    stepper = nano_stepper(microBatchTokens=48, batchTokens=48)
    monkeypatch.setattr(Transformer, "forward", forward)
    with pytest.raises(DeviceMemoryError, match="one sequence of 16 tokens does not fit"):
        stepper.step(nano_tokens(3), rate=0.01)
    assert stepper.micro_batch.sequences == 1
