"""A mixture of experts made of a dense model: what is copied, what is noise, how a job starts."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
import torch
import yaml
from builders.datasets import corpus_of, words, write_json_lines, write_tokenizer
from builders.dense_models import LAYERS, dense_weights, write_dense
from builders.nano import nano_spec
from hypothesis import given
from hypothesis import strategies as st
from spes_api.job import ModelSpec, SpesJobSpec
from spes_sync.client import JobTerms
from spes_sync.errors import ExportError
from spes_sync.export import load_hugging_face
from spes_trainer import cli
from spes_trainer.assembly import build_stepper
from spes_trainer.errors import ConfigError
from spes_trainer.learner import TorchLearner, Workplace
from spes_trainer.model.moe import Experts, route
from spes_trainer.start import load_first_weights
from spes_trainer.train import AloneOptions, train_alone
from spes_trainer.upcycle import ROUTER_STD, UpcycleOptions, add_noise, upcycle

MATRICES = {"w1": "gate_proj", "v1": "up_proj", "w2": "down_proj"}


def upcycled(tmp_path, *, tied=False, **options):
    """Our tensors by name, and the model of a job that starts from them."""
    dense = write_dense(tmp_path / "dense", tied=tied)
    made = UpcycleOptions(**{"num_experts": 8, **options})
    _, model = upcycle(dense, tmp_path / "data" / "moe", made)
    config, tensors = load_hugging_face(tmp_path / "data" / "moe")
    return config, dict(tensors), yaml.safe_load(model)["model"]


def test_everything_but_the_feed_forward_network_is_copied(tmp_path):
    _, tensors, _ = upcycled(tmp_path)
    dense = dense_weights(tied=False)
    copied = {"embedding.weight": "model.embed_tokens.weight", "head.weight": "lm_head.weight"}
    for layer in range(LAYERS):
        for ours, theirs in (
            ("attention.query", "self_attn.q_proj"),
            ("attention.output", "self_attn.o_proj"),
            ("attention.key_norm", "self_attn.k_norm"),
            ("expert_norm", "post_attention_layernorm"),
        ):
            copied[f"layers.{layer}.{ours}.weight"] = f"model.layers.{layer}.{theirs}.weight"
    for ours, theirs in copied.items():
        np.testing.assert_array_equal(tensors[ours], dense[theirs])


def test_a_tied_head_is_copied_to_an_untied_one(tmp_path):
    config, tensors, _ = upcycled(tmp_path, tied=True)
    np.testing.assert_array_equal(tensors["head.weight"], tensors["embedding.weight"])
    assert config.renormalize


def test_half_of_each_matrix_of_each_expert_gets_noise_of_its_own(tmp_path):
    _, tensors, _ = upcycled(tmp_path)
    dense = dense_weights(tied=False)
    seen = set()
    for expert in range(8):
        for ours, theirs in MATRICES.items():
            plain = dense[f"model.layers.1.mlp.{theirs}.weight"]
            noise = tensors[f"layers.1.experts.{expert}.{ours}"] - (
                plain.T if ours == "w2" else plain
            )
            assert np.count_nonzero(noise) == noise.size // 2
            assert noise[noise != 0].std() == pytest.approx(0.02, rel=0.15)
            seen.add(noise.tobytes())
    assert len(seen) == 24


def test_the_router_breaks_ties(tmp_path):
    """All zero, every token would go to the same two experts."""
    _, tensors, _ = upcycled(tmp_path)
    router = tensors["layers.0.router.weight"]
    assert router.shape == (8, 32)
    assert router.std() == pytest.approx(ROUTER_STD, rel=0.2)


def test_the_seed_alone_decides(tmp_path):
    made = [upcycled(tmp_path / str(number), seed=seed)[1] for number, seed in enumerate((0, 0, 1))]
    name = "layers.0.experts.3.w2"
    assert made[0][name].tobytes() == made[1][name].tobytes()
    assert made[0][name].tobytes() != made[2][name].tobytes()


def test_three_of_seven_elements_change():
    """floor(0.5 * 7) = 3."""
    value = np.arange(7, dtype=np.float32)
    noisy = add_noise(value, np.random.default_rng(0), std=0.02, share=0.5)
    assert np.count_nonzero(noisy != value) == 3
    assert value.tolist() == list(range(7))


@given(size=st.integers(1, 200), share=st.floats(0, 1), seed=st.integers(0, 9))
def test_as_many_elements_change_as_asked(size, share, seed):
    value = np.zeros((size,), dtype=np.float32)
    noisy = add_noise(value, np.random.default_rng(seed), std=1.0, share=share)
    assert np.count_nonzero(noisy) == int(share * size)


def swiglu(x, w1, v1, w2):
    """w1, v1, w2 as published: (out, in)."""
    gate = x @ w1.T
    return (gate / (1 + np.exp(-gate)) * (x @ v1.T)) @ w2.T


def mixture(x, tensors, router, *, renormalize: bool):
    """The first layer's mixture in double precision, spelt out: two of eight experts a row."""
    logits = x @ router.T
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    out = np.zeros_like(x)
    for row, p in enumerate(probs):
        kept = np.argsort(-p, kind="stable")[:2]
        gates = p[kept] / p[kept].sum() if renormalize else p[kept]
        for gate, expert in zip(gates, kept, strict=True):
            w1, v1, w2 = (
                tensors[f"layers.0.experts.{expert}.{name}"].astype(np.float64)
                for name in ("w1", "v1", "w2")
            )
            out[row] += gate * swiglu(x[row], w1, v1, w2.T)
    return out


def dense_network(x):
    dense = dense_weights(tied=False)
    return swiglu(
        x, *(dense[f"model.layers.0.mlp.{m}.weight"].astype(x.dtype) for m in MATRICES.values())
    )


def rows():
    return np.random.default_rng(0).standard_normal((40, 32))


@pytest.mark.parametrize("scale", [0.0, 0.02, 30.0], ids=["zero", "random", "sharp"])
def test_copies_with_normalised_gates_compute_the_dense_network(tmp_path, scale):
    """For any router, in double precision to 1e-12."""
    _, tensors, _ = upcycled(tmp_path, noise_std=0.0)
    x, router = rows(), scale * np.random.default_rng(1).standard_normal((8, 32))
    found = mixture(x, tensors, router, renormalize=True)
    np.testing.assert_allclose(found, dense_network(x), rtol=1e-12, atol=1e-12)


def test_copies_with_raw_gates_of_a_zero_router_compute_a_quarter(tmp_path):
    """Two of eight equal gates: 2/8 of the dense network, exactly."""
    _, tensors, _ = upcycled(tmp_path, noise_std=0.0)
    found = mixture(rows(), tensors, np.zeros((8, 32)), renormalize=False)
    one_by_one = np.stack([dense_network(row) for row in rows()])
    np.testing.assert_array_equal(found, 0.25 * one_by_one)


@pytest.mark.parametrize(("renormalize", "factor"), [(True, 1.0), (False, 0.25)])
def test_the_trained_experts_compute_the_same(tmp_path, renormalize, factor):
    """What training runs, in single precision."""
    config, tensors, _ = upcycled(tmp_path, noise_std=0.0)
    experts = Experts(config.num_experts, config.width, config.expert_width)
    for name, parameter in experts.named_parameters():
        parameter.data = torch.tensor(tensors[f"layers.0.experts.{name}"])
    routing = route(torch.zeros(40, 8), num_experts_per_token=2, renormalize=renormalize)
    found = experts(torch.tensor(rows(), dtype=torch.float32), routing).detach().numpy()
    np.testing.assert_allclose(found, factor * dense_network(rows()), rtol=1e-5, atol=1e-5)


# What is refused.


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "qwen2"}, r"model_type \(got qwen2, expected one of llama"),
        ({"attention_bias": True}, "attention_bias"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling"),
        ({"intermediate_size": 32}, r"mlp\.down_proj\.weight .*expected shape \[32, 32\]"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_model_is_refused(tmp_path, settings, message):
    dense = write_dense(tmp_path / "dense", **settings)
    with pytest.raises(ExportError, match=message):
        upcycle(dense, tmp_path / "moe", UpcycleOptions(num_experts=8))
    assert not (tmp_path / "moe").exists()


def test_a_mixture_is_not_upcycled_again(tmp_path):
    upcycled(tmp_path)
    with pytest.raises(ExportError, match="has 8 experts a layer"):
        upcycle(tmp_path / "data" / "moe", tmp_path / "again", UpcycleOptions(num_experts=16))


def test_a_single_expert_is_the_dense_network_without_noise(tmp_path):
    _, tensors, model = upcycled(tmp_path, num_experts=1)
    dense = dense_weights(tied=False)
    np.testing.assert_array_equal(
        tensors["layers.1.experts.0.w2"], dense["model.layers.1.mlp.down_proj.weight"].T
    )
    assert model["upcycleFrom"]["config"]["numExpertsPerToken"] == 1


def test_a_llama_has_no_norms_of_queries_and_keys(tmp_path):
    dense = write_dense(tmp_path / "dense", model_type="llama")
    upcycle(dense, tmp_path / "moe", UpcycleOptions(num_experts=4))
    config, tensors = load_hugging_face(tmp_path / "moe")
    assert config.qk_norm == "None"
    assert not [name for name, _ in tensors if "query_norm" in name or "key_norm" in name]


def test_a_missing_head_is_named(tmp_path):
    dense = write_dense(tmp_path / "dense", tied=True, tie_word_embeddings=False)
    with pytest.raises(ExportError, match=r"lm_head\.weight \(got no such tensor"):
        upcycle(dense, tmp_path / "moe", UpcycleOptions(num_experts=8))


@pytest.mark.parametrize(
    ("experts", "per_token"), [(1, 2), (0, 1), (5000, None)], ids=["few", "none", "many"]
)
def test_an_impossible_number_of_experts_is_refused(tmp_path, experts, per_token):
    dense = write_dense(tmp_path / "dense")
    options = UpcycleOptions(num_experts=experts, num_experts_per_token=per_token)
    with pytest.raises(ConfigError, match="change --experts"):
        upcycle(dense, tmp_path / "moe", options)


# Jobs that start from it.


def job_from(model) -> SpesJobSpec:
    model["upcycleFrom"]["dataset"]["name"] = "moe"
    plain = nano_spec().model_dump(by_alias=True, exclude_none=True) | {"model": model}
    return SpesJobSpec.model_validate(plain)


def test_a_job_starts_with_the_weights(tmp_path):
    _, tensors, model = upcycled(tmp_path)
    spec = job_from(model)
    stepper = build_stepper(spec)
    load_first_weights(stepper.model, spec, data_root=tmp_path / "data")
    for name, parameter in stepper.model.named_parameters():
        np.testing.assert_array_equal(parameter.detach().numpy(), tensors[name])
    assert spec.datasets == ("moe", "words")


def test_the_peer_that_seeds_reads_the_weights(tmp_path):
    _, tensors, model = upcycled(tmp_path)
    write_json_lines(tmp_path / "data" / "words" / "a.jsonl", words(60))
    spec = job_from(model)
    corpus = corpus_of(tmp_path / "data", spec.data)
    terms = JobTerms(
        job_uid="job", incarnation=1, peer="uni-a.0", settings_json=spec.canonical_json()
    )
    workplace = Workplace(
        directory=tmp_path / "peer", data_root=tmp_path / "data", stop=threading.Event()
    )
    learner = TorchLearner(spec, terms, corpus, workplace=workplace)
    assert learner.restore() is None
    for name, value in learner.read(sorted(tensors)):
        np.testing.assert_array_equal(value, tensors[name])


def test_training_goes_on_from_the_weights(tmp_path):
    """The first held-out loss is that of the dense model: far from that of random weights."""
    _, _, model = upcycled(tmp_path)
    write_json_lines(tmp_path / "data" / "words" / "a.jsonl", words(300))
    spec, losses = job_from(model), []

    class Quiet:
        def step(self, *, loss, **_):
            losses.append(loss)

        def say(self, text):
            pass

    options = AloneOptions(directory=tmp_path / "trainer", data_root=tmp_path / "data")
    result = train_alone(spec, options, display=Quiet(), stop=threading.Event())
    assert result.finished
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"numExperts": 16}, r"must be numExperts 16 \(got numExperts 8\)"),
        ({"ropeTheta": 5.0}, r"must be ropeTheta 5.0 \(got ropeTheta 1000000.0\)"),
    ],
    ids=["experts", "theta"],
)
def test_weights_of_another_shape_are_refused(tmp_path, change, message):
    _, _, model = upcycled(tmp_path)
    model["upcycleFrom"]["config"] |= change
    spec = job_from(model)
    with pytest.raises(ConfigError, match=rf"model\.upcycleFrom {message}"):
        load_first_weights(build_stepper(spec).model, spec, data_root=tmp_path / "data")


def test_how_weights_would_be_drawn_does_not_matter(tmp_path):
    _, _, model = upcycled(tmp_path)
    model["upcycleFrom"]["config"]["initStd"] = 0.5
    spec = job_from(model)
    load_first_weights(build_stepper(spec).model, spec, data_root=tmp_path / "data")


def test_gates_of_a_single_expert_need_not_agree(tmp_path):
    _, _, model = upcycled(tmp_path, num_experts=1)
    model["upcycleFrom"]["config"]["renormalize"] = False
    spec = job_from(model)
    load_first_weights(build_stepper(spec).model, spec, data_root=tmp_path / "data")


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_damaged_folder_is_named(tmp_path, damage):
    _, _, model = upcycled(tmp_path)
    spec, path = job_from(model), tmp_path / "data" / "moe" / "model.safetensors"
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-4])
    message = r"model\.upcycleFrom\.dataset must be a folder of an OLMoE"
    with pytest.raises(ConfigError, match=message):
        load_first_weights(build_stepper(spec).model, spec, data_root=tmp_path / "data")


# The command.


def run(monkeypatch, *arguments) -> int:
    monkeypatch.setattr(sys, "argv", ["spes-trainer", "upcycle", *map(str, arguments)])
    with pytest.raises(SystemExit) as raised:
        cli.main()
    return int(raised.value.code or 0)


def test_the_command_prints_the_model_of_a_job(tmp_path, monkeypatch, capsys):
    dense = write_dense(tmp_path / "dense")
    write_tokenizer(dense / "tokenizer.json")
    assert run(monkeypatch, dense, "--experts", 4, "--to", tmp_path / "moe") == 0
    model = ModelSpec.model_validate(yaml.safe_load(capsys.readouterr().out)["model"])
    assert model.resolve().num_experts == 4
    tokenizer = (tmp_path / "moe" / "tokenizer.json").read_bytes()
    assert tokenizer == (dense / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--experts", 0), "change --experts"), (("--experts", 4, "--noise-share", 2), "from 0 to 1")],
    ids=["experts", "share"],
)
def test_the_command_says_what_is_wrong(tmp_path, monkeypatch, capsys, arguments, said):
    dense = write_dense(tmp_path / "dense")
    assert run(monkeypatch, dense, *arguments, "--to", tmp_path / "moe") == 2
    assert said in capsys.readouterr().err
