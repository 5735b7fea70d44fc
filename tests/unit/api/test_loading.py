"""What a person may write, and what they are told when it is wrong."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spes_api.errors import ConfigError
from spes_api.job import SpesJobSpec
from spes_api.loading import load_job, load_members

EXAMPLES = Path(__file__).parents[3] / "examples"
TINY = (EXAMPLES / "moe-tiny.yaml").read_text()


def refusal(path: Path | str, load=load_job) -> list[str]:
    """The lines of the error, the path taken off."""
    with pytest.raises(ConfigError) as caught:
        load(path)
    return [line.removeprefix(str(path)) for line in str(caught.value).splitlines()]


def refusal_of(text: str | bytes, folder: Path, name: str = "job.yaml") -> list[str]:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return refusal(path)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("moe-*.yaml")), ids=lambda path: path.stem)
def test_every_example_loads_and_survives_canonical_json(path):
    text = load_job(path).spec.canonical_json()
    assert SpesJobSpec.model_validate_json(text).canonical_json() == text


def test_canonical_json_does_not_depend_on_the_order_of_keys(tmp_path):
    job = load_job(EXAMPLES / "moe-tiny.yaml")
    plain = job.model_dump(by_alias=True, exclude_none=True, mode="json")
    plain["spec"] = dict(reversed(plain["spec"].items()))
    (tmp_path / "job.json").write_text(json.dumps(plain))
    assert load_job(tmp_path / "job.json").spec.canonical_json() == job.spec.canonical_json()


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        pytest.param(
            "everySteps: 10",
            "everyStep: 10",
            [
                ":31: spec.sync.everyStep is not a field; did you mean everySteps?",
            ],
            id="misspelt key",
        ),
        pytest.param(
            "  sync:\n",
            "  quorum: 0.5\n  sync:\n",
            [":30: spec.quorum is not a field here; did you mean spec.sync.quorum?"],
            id="key at the wrong place",
        ),
        pytest.param(
            "everySteps: 10",
            "everySteps: 0",
            [":31: spec.sync.everySteps must be at least 1 (got 0)"],
            id="out of range",
        ),
        pytest.param(
            "seed: 0",
            'seed: "0"',
            [':23: spec.training.seed must be an integer (got "0"); remove the quotes'],
            id="quoted number",
        ),
        pytest.param(
            "resources: {}",
            "resources: {nvidia.com/gpu: 8}",
            [
                ":43: spec.trainer.resources.nvidia.com/gpu must be text (got 8);"
                ' put it in quotes: "8"'
            ],
            id="unquoted text",
        ),
        pytest.param(
            "maxTokens: 900000",
            "maxTokens: 9e5",
            [":16: spec.training.maxTokens must be an integer (got 900000.0); write 900000"],
            id="whole number as a float",
        ),
        pytest.param(
            "preset: moe-tiny",
            "preset: moe-tyni",
            [
                ":7: spec.model.preset must be one of moe-tiny, moe-1b, moe-2b, moe-7b, moe-9b"
                ' (got "moe-tyni"); did you mean moe-tiny?'
            ],
            id="unknown preset",
        ),
        pytest.param(
            "batchTokens: 1024",
            "batchTokens: 1000",
            [
                ":17: spec.training.batchTokens must be a multiple of data.sequenceTokens"
                " (got 1000 and 256)"
            ],
            id="rule over two fields",
        ),
        pytest.param(
            "learningRate: 0.008",
            "learningRate: .nan",
            [":19: spec.training.optimizer.learningRate must be a finite number (got NaN)"],
            id="not finite",
        ),
        pytest.param(
            "learningRate: 0.008, ",
            "",
            [":19: spec.training.optimizer.learningRate is required (expected a number)"],
            id="missing",
        ),
        pytest.param(
            "{name: moe-tiny,",
            "{name: Moe_tiny,",
            [
                ":5: metadata.name must be lower-case letters, digits and inner dashes"
                ' (got "Moe_tiny")'
            ],
            id="name",
        ),
        pytest.param(
            "sources: [{builtin: python-stdlib, weight: 1}]",
            f"sources: [{', '.join(['{builtin: python-stdlib}'] * 65)}]",
            [":9: spec.data.sources must have at most 64 entries (got 65)"],
            id="too large",
        ),
    ],
)
def test_a_wrong_field_is_named_with_got_expected_and_hint(tmp_path, old, new, lines):
    assert old in TINY
    assert refusal_of(TINY.replace(old, new, 1), tmp_path) == lines


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ": is empty (expected YAML or JSON)"),
        ("# nothing\n", ": is empty (expected YAML or JSON)"),
        ("kind: Pod\n", ":1: kind must be SpesJob (got Pod)"),
        ("a: 1\n", ":1: kind must be SpesJob (got none)"),
        ("[1, 2]", ": must be a mapping of SpesJob (got a list)"),
        ("just text", ": must be a mapping of SpesJob (got a single value)"),
        (b"\x89PNG\r\n\x1a\n", ": is not text (byte 0x89 at 0; expected UTF-8)"),
        (
            "a\0b",
            ": is not valid YAML: unacceptable character #x0000:"
            " special characters are not allowed",
        ),
        ("a: [1", ":1: is not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: 1\na: 2\n", ":2: is not valid YAML: a is given twice"),
        ("1: 2\n", ":1: is not valid YAML: a key must be text; put it in quotes"),
        (
            "a: &x [1]\nb: *x\n",
            ":2: is not valid YAML: aliases are not supported; write the value out",
        ),
        ("[" * 1000, ":1: is not valid YAML: nested deeper than 32 levels"),
        ("members: []", ": is a members file (expected a SpesJob); give it with --members"),
    ],
)
def test_a_file_that_is_no_job_gets_one_line(tmp_path, text, line):
    assert refusal_of(text, tmp_path) == [line]


def test_a_yaml_tag_never_runs_code(tmp_path):
    (line,) = refusal_of("a: !!python/object/apply:os.getcwd []", tmp_path)
    assert "could not determine a constructor" in line


def test_a_second_document_is_refused(tmp_path):
    (line,) = refusal_of("a: 1\n---\nb: 2\n", tmp_path)
    assert "another document" in line


def test_json_errors_are_one_line_too(tmp_path):
    assert refusal_of("[" * 100_000, tmp_path, "a.json") == [": is not valid JSON: nested too deep"]
    assert refusal_of('{"kind": 1, "kind": 2}', tmp_path, "b.json") == [
        ": is not valid JSON: kind is given twice"
    ]
    assert refusal_of('{\n"kind": ,}', tmp_path, "c.json") == [
        ":2: is not valid JSON: Expecting value"
    ]


def test_what_is_no_file_gets_one_line(tmp_path):
    assert refusal(tmp_path / "absent.yaml") == [": does not exist; check the path"]
    assert refusal(tmp_path) == [": is a directory (expected a YAML or JSON file)"]
    assert refusal("/dev/zero") == [": is not a regular file (expected a YAML or JSON file)"]


def test_a_huge_file_is_not_read_whole(tmp_path):
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse
    assert refusal(path) == [": is too large (got more than 1048576 bytes)"]


def test_a_thousand_problems_are_not_a_thousand_lines(tmp_path):
    extra = "".join(f"  wrong{index}: 1\n" for index in range(1000))
    lines = refusal_of(TINY + extra, tmp_path)
    assert len(lines) == 51
    assert lines[-1] == ": and 950 more problems"


def test_numbers_are_read_as_kubernetes_reads_them(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(TINY.replace("learningRate: 0.008", "learningRate: 8e-3"))
    assert load_job(path).spec.training.optimizer.learning_rate == 0.008


def test_a_key_without_a_value_is_absent(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(TINY.replace("quorum: 0.66 ", "quorum:"))
    assert load_job(path).spec.sync.quorum == 0.66


def test_python_spelling_of_a_key_is_refused(tmp_path):
    lines = refusal_of(TINY.replace("timeoutSeconds: 60", "timeout_seconds: 60"), tmp_path)
    assert lines == [":32: spec.sync.timeout_seconds is not a field; did you mean timeoutSeconds?"]


@given(data=st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_config_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "job.yaml"
    path.write_bytes(data)
    with pytest.raises(ConfigError):
        load_job(path)


def test_members_of_the_example_have_bytes_and_peers():
    uni_a, uni_b, uni_c, uni_d = load_members(EXAMPLES / "members.yaml").members
    assert [peer for peer, _ in uni_a.peers] == ["uni-a.0"]
    assert uni_a.slots[0].memory_bytes == 48 * 2**20
    assert uni_b.slots[0].activation_bytes == 16 * 2**20
    assert uni_c.slots[0].slowdown == 2.0
    assert uni_d.labels == {}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "members: [{name: a, slots: [{memory: 4x}]}]",
            ":1: members[0].slots[0].memory must be bytes such as 48Mi, 1.5Gi or 2e9 (got '4x')",
        ),
        (
            "members: [{name: a, slots: [{activation: 1Mi}]}]",
            ":1: members[0].slots[0].memory is required (expected bytes such as 48Mi)",
        ),
        (
            "members: [{name: a, slots: [{memory: 1}]}, {name: a, slots: [{memory: 1}]}]",
            ":1: must not name a member twice (got a)",
        ),
        ("members: []", ":1: members must have at least 1 entries (got an empty list)"),
        ("kind: SpesJob", ": is a SpesJob (expected a members file)"),
    ],
)
def test_a_wrong_members_file_gets_one_line(tmp_path, text, line):
    path = tmp_path / "members.yaml"
    path.write_text(text)
    assert refusal(path, load_members) == [line]
