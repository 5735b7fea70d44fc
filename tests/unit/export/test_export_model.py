"""A folder written by `export_model`: names, shapes, settings, and that it is whole or absent."""

import errno
import hashlib
import json

import numpy as np
import pytest
from builders.exported_models import (
    NO_NORM,
    PER_HEAD,
    WHOLE,
    export_settings,
    random_weights,
    write_model,
)
from safetensors.numpy import load_file
from spes_api.model import ModelConfig, preset_config
from spes_sync.codec import tensor_sha256
from spes_sync.disk import Disk
from spes_sync.errors import DiskFullError, ExportError
from spes_sync.export import ExportResult, export_model, load_hugging_face, writer
from spes_sync.export.folder import MARKER
from spes_sync.export.layout import layout_of, our_shapes, tensor_rows
from spes_sync.export.shards import plan_shards, write_weights
from spes_sync.export.weightfile import WeightFile
from spes_sync.hashes import root_sha256

EVERY = pytest.mark.parametrize(
    "config", [WHOLE, PER_HEAD, NO_NORM], ids=["OLMoE", "Qwen3-MoE", "Mixtral"]
)
BOTH = pytest.mark.parametrize("config", [WHOLE, PER_HEAD], ids=["OLMoE", "Qwen3-MoE"])


def dense(config: ModelConfig) -> ModelConfig:
    return config.model_copy(update={"num_experts": 1, "num_experts_per_token": 1})


def export(tmp_path, config=WHOLE, *, seed=0, to="exported") -> ExportResult:
    model = write_model(tmp_path / "model.safetensors", random_weights(config, seed=seed))
    return export_model(model, export_settings(config), tmp_path / to)


def fill_the_disk(monkeypatch) -> None:
    def full(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writer, "_DISK", Disk(fsync=full))


def settings(result: ExportResult) -> dict:
    return json.loads((result.folder / "config.json").read_text())


@EVERY
def test_loading_back_gives_the_same_bytes(tmp_path, config):
    result = export(tmp_path, config)
    loaded, tensors = load_hugging_face(result.folder)
    weights = random_weights(config)
    assert {name: value.tobytes() for name, value in tensors} == {
        name: value.tobytes() for name, value in weights.items()
    }
    assert (loaded.head_size, loaded.kv_heads) == (config.head_size, config.kv_heads)
    explicit = {"num_kv_heads": config.kv_heads, "head_width": config.head_size}
    assert loaded.model_copy(update=explicit) == config.model_copy(update=explicit)


@BOTH
def test_any_safetensors_reader_finds_the_documented_names(tmp_path, config):
    result = export(tmp_path, config)
    tensors = load_file(result.folder / "model.safetensors")
    weights = random_weights(config)
    block = "model.layers.1"
    assert len(tensors) == len(weights)
    np.testing.assert_array_equal(
        tensors[f"{block}.self_attn.q_norm.weight"], weights["layers.1.attention.query_norm.weight"]
    )
    np.testing.assert_array_equal(
        tensors[f"{block}.mlp.gate.weight"], weights["layers.1.router.weight"]
    )
    np.testing.assert_array_equal(
        tensors[f"{block}.mlp.experts.3.gate_proj.weight"], weights["layers.1.experts.3.w1"]
    )
    np.testing.assert_array_equal(
        tensors[f"{block}.mlp.experts.3.down_proj.weight"], weights["layers.1.experts.3.w2"].T
    )


def test_olmoe_settings_write_every_value_out(tmp_path):
    written = settings(export(tmp_path, WHOLE))
    expected = {
        "architectures": ["OlmoeForCausalLM"],
        "model_type": "olmoe",
        "rms_norm_eps": 1.0e-3,
        "rope_theta": 500.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        "norm_topk_prob": False,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 24,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
        "clip_qkv": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "dtype": "float32",
    }
    assert expected.items() <= {**written}.items()


def test_qwen3_settings_write_every_value_out(tmp_path):
    written = settings(export(tmp_path, PER_HEAD))
    expected = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "norm_topk_prob": True,
        "head_dim": 16,
        "moe_intermediate_size": 24,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "use_sliding_window": False,
    }
    assert expected.items() <= written.items()


def test_result_counts_and_hashes_the_model(tmp_path):
    result = export(tmp_path, WHOLE)
    weights = random_weights(WHOLE)
    hashes = [tensor_sha256(weights[name]) for name in sorted(weights)]
    assert result.layout == "OLMoE"
    assert result.num_parameters == sum(value.size for value in weights.values())
    assert result.model_sha256 == root_sha256(hashes)
    marker = json.loads((result.folder / MARKER).read_text())
    assert marker["modelSha256"] == result.model_sha256
    file = (result.folder / "model.safetensors").read_bytes()
    assert marker["files"] == {"model.safetensors": hashlib.sha256(file).hexdigest()}


@pytest.mark.parametrize("name", ["moe-tiny", "moe-1b", "moe-2b", "moe-7b", "moe-9b"])
def test_rows_cover_every_parameter_of_a_preset(name):
    config = preset_config(name)
    rows = tensor_rows(config, layout_of(config))
    assert sum(int(np.prod(row.shape)) for row in rows) == config.sizes.total
    assert len({row.theirs for row in rows}) == len(rows)


def test_an_earlier_export_is_replaced(tmp_path):
    first = export(tmp_path, seed=1)
    second = export(tmp_path, seed=2)
    assert first.model_sha256 != second.model_sha256
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path):
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported/thesis.txt").write_text("mine")
    with pytest.raises(ExportError, match=r"not empty and has no spes-export\.json"):
        export(tmp_path)
    assert (tmp_path / "exported/thesis.txt").read_text() == "mine"


def test_a_full_disk_keeps_the_earlier_export(tmp_path, monkeypatch):
    first = export(tmp_path, seed=1)
    fill_the_disk(monkeypatch)
    with pytest.raises(DiskFullError, match=r"model\.safetensors"):
        export(tmp_path, seed=2)
    marker = json.loads((first.folder / MARKER).read_text())
    assert marker["modelSha256"] == first.model_sha256
    assert not (tmp_path / ".exported.partial").exists()


def test_an_export_interrupted_between_its_renames_is_put_back(tmp_path, monkeypatch):
    first = export(tmp_path, seed=1)
    first.folder.rename(tmp_path / ".exported.earlier")
    fill_the_disk(monkeypatch)
    with pytest.raises(DiskFullError):
        export(tmp_path, seed=2)
    marker = json.loads((first.folder / MARKER).read_text())
    assert marker["modelSha256"] == first.model_sha256


def test_a_model_of_another_shape_names_the_tensor(tmp_path):
    weights = random_weights(WHOLE)
    del weights["layers.0.experts.2.v1"]
    model = write_model(tmp_path / "model.safetensors", weights)
    with pytest.raises(ExportError, match=r"layers\.0\.experts\.2\.v1 \(got no such tensor"):
        export_model(model, export_settings(WHOLE), tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_a_vocabulary_smaller_than_the_bytes_is_refused(tmp_path):
    config = WHOLE.model_copy(update={"vocabulary": 255})
    with pytest.raises(ExportError, match="vocabulary must be at least 256"):
        export(tmp_path, config)


def test_shards_keep_the_order_and_the_limit():
    rows = tensor_rows(WHOLE, "OLMoE")
    shards = plan_shards(rows, max_shard_bytes=20_000)
    assert tuple(row for shard in shards for row in shard) == rows
    sizes = [sum(4 * int(np.prod(row.shape)) for row in shard) for shard in shards]
    assert all(size <= 20_000 or len(shard) == 1 for size, shard in zip(sizes, shards, strict=True))
    assert plan_shards(rows, max_shard_bytes=10**9) == (rows,)


def test_a_sharded_folder_loads_like_a_whole_one(tmp_path):
    result = export(tmp_path, PER_HEAD)
    source = WeightFile.open(tmp_path / "model.safetensors")
    (result.folder / "model.safetensors").unlink()
    written = write_weights(
        source, tensor_rows(PER_HEAD, "Qwen3-MoE"), result.folder, Disk(), max_shard_bytes=20_000
    )
    index = json.loads((result.folder / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 4 * PER_HEAD.sizes.total
    assert set(index["weight_map"].values()) == written.files.keys()
    assert len(written.files) > 1
    assert written.model_sha256 == result.model_sha256
    _, tensors = load_hugging_face(result.folder)
    assert {n: v.tobytes() for n, v in tensors} == {
        n: v.tobytes() for n, v in random_weights(PER_HEAD).items()
    }


@pytest.mark.parametrize(
    ("config", "model_type", "layout"),
    [(WHOLE, "olmoe", "OLMoE"), (PER_HEAD, "qwen3", "Qwen3"), (NO_NORM, "llama", "Llama")],
    ids=["Whole", "PerHead", "None"],
)
def test_one_expert_is_a_plain_dense_model(tmp_path, config, model_type, layout):
    result = export(tmp_path, dense(config))
    assert result.layout == layout
    assert settings(result)["model_type"] == model_type


def test_the_router_of_a_dense_model_is_left_out_but_hashed(tmp_path):
    """The hash is that of the served model, by which an export is recognised."""
    config = dense(NO_NORM)
    result, weights = export(tmp_path, config), random_weights(config)
    hashes = [tensor_sha256(weights[name]) for name in sorted(weights)]
    assert result.model_sha256 == root_sha256(hashes)
    _, tensors = load_hugging_face(result.folder)
    differing = {name for name, value in tensors if value.tobytes() != weights[name].tobytes()}
    assert differing == {"layers.0.router.weight", "layers.1.router.weight"}
    assert result.num_parameters == config.sizes.total - 2 * config.width


def test_our_names_are_the_same_in_every_layout():
    for layout in ("OLMoE", "Qwen3", "Qwen3-MoE", "Llama", "Mixtral"):
        rows = tensor_rows(dense(NO_NORM), layout)
        assert {row.ours: row.shape for row in rows} == our_shapes(dense(NO_NORM))


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ExportError, match=r"cannot create a folder in .*/file: Not a directory"):
        export(tmp_path, to="file/exported")
