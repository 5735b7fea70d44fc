"""What `load_hugging_face` refuses, and how it says so."""

import json
import struct

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
from hypothesis import given
from hypothesis import strategies as st
from spes_sync.errors import ExportError
from spes_sync.export import export_model, load_hugging_face
from spes_sync.export.published import from_hugging_face
from spes_sync.export.settings import to_hugging_face
from spes_sync.export.weightfile import WeightFile

ONE_EXPERT = NO_NORM.model_copy(update={"num_experts": 1, "num_experts_per_token": 1})


@pytest.fixture
def folder(tmp_path):
    model = write_model(tmp_path / "model.safetensors", random_weights(WHOLE))
    export_model(model, export_settings(WHOLE), tmp_path / "exported")
    return tmp_path / "exported"


def change(path, **values):
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | values))


def write_header(path, header: object, data: bytes = b"") -> None:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "gpt2"}, r"model_type \(got gpt2, expected one of llama, mixtral, olmoe"),
        ({"model_type": None}, "model_type"),
        ({"clip_qkv": 8.0}, "clip_qkv"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_type"),
        ({"rope_parameters": None, "rope_scaling": {"type": "yarn"}}, "rope_scaling"),
        ({"rope_parameters": None, "rope_theta": None}, "rope_theta"),
        ({"num_attention_heads": 5}, "width must be a multiple"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_feature_our_model_lacks_is_named(folder, values, message):
    change(folder / "config.json", **values)
    with pytest.raises(ExportError, match=rf"config\.json: .*{message}"):
        load_hugging_face(folder)


@pytest.mark.parametrize(
    "config", [WHOLE, PER_HEAD, NO_NORM], ids=["OLMoE", "Qwen3-MoE", "Mixtral"]
)
def test_settings_of_older_releases_are_read(config):
    settings = to_hugging_face(config, sequence_tokens=64)
    del settings["rope_parameters"]
    assert from_hugging_face(settings).config.rope_theta == config.rope_theta


def test_the_first_llamas_leave_the_rotary_base_out():
    settings = to_hugging_face(ONE_EXPERT, sequence_tokens=64)
    del settings["rope_parameters"], settings["rope_theta"]
    assert from_hugging_face(settings).config.rope_theta == 10_000.0


def test_biases_of_a_llama_are_refused():
    settings = to_hugging_face(ONE_EXPERT, sequence_tokens=64) | {"mlp_bias": True}
    with pytest.raises(ExportError, match="mlp_bias"):
        from_hugging_face(settings)


def test_expert_count_is_found_under_its_newer_name():
    settings = to_hugging_face(PER_HEAD, sequence_tokens=64)
    settings["num_local_experts"] = settings.pop("num_experts")
    assert from_hugging_face(settings).config.num_experts == PER_HEAD.num_experts


def test_a_folder_without_settings_is_refused(tmp_path):
    with pytest.raises(ExportError, match=r"config\.json is not a readable JSON file"):
        load_hugging_face(tmp_path)


def test_weights_of_another_shape_name_the_tensor(folder):
    change(folder / "config.json", vocab_size=512)
    with pytest.raises(ExportError, match=r"lm_head\.weight .*expected shape \[512, 32\]"):
        load_hugging_face(folder)


def test_a_truncated_file_is_refused_before_reading(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ExportError, match="truncated or damaged"):
        load_hugging_face(folder)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "model.bin", 3])
def test_an_index_cannot_leave_its_folder(folder, name):
    index = {"weight_map": {"lm_head.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ExportError, match="weight_map must name files of the same folder"):
        load_hugging_face(folder)


@pytest.mark.parametrize(
    "header",
    [
        {"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4 << 40]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}},
        {"a": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [1] * 9, "data_offsets": [0, 4]}},
        {"a": 1},
        [1],
    ],
    ids=[
        "huge",
        "negative offset",
        "wrong length",
        "negative size",
        "type",
        "dims",
        "entry",
        "list",
    ],
)
def test_a_hostile_header_is_refused(tmp_path, header):
    write_header(tmp_path / "a.safetensors", header, b"\0" * 8)
    with pytest.raises(ExportError, match=r"a\.safetensors"):
        WeightFile.open(tmp_path / "a.safetensors")


@given(content=st.binary(max_size=64))
def test_no_bytes_raise_anything_but_an_export_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("noise") / "a.safetensors"
    path.write_bytes(content)
    try:
        WeightFile.open(path)
    except ExportError:
        return
    assert json.loads(content[8:]) in ({}, {"__metadata__": {}})


def test_bfloat16_is_widened_exactly(tmp_path):
    header = {"a": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}
    write_header(tmp_path / "a.safetensors", header, struct.pack("<3H", 0x3F80, 0xC049, 0x0001))
    values = WeightFile.open(tmp_path / "a.safetensors").read("a")
    expected = np.array([0x3F800000, 0xC0490000, 0x00010000], "<u4").view("<f4")
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, expected)
