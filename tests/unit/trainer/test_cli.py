"""The command line: exit codes, one line per mistake, nothing started."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import yaml
from builders.nano import nano_spec, write_words
from spes_proto.v1 import sync_pb2
from spes_sync.client import PeerOutcome
from spes_sync.client.directory import held
from spes_sync.errors import (
    CertificateError,
    DiskFullError,
    DivergedError,
    ProtocolError,
    PushRefusedError,
    ServerUnavailableError,
    StaleSessionError,
    TokenError,
    VolumeError,
)
from spes_trainer.cli import main
from spes_trainer.errors import CheckpointError


@pytest.fixture
def spes_trainer(monkeypatch, capsys):
    """Runs the command in this process; returns its exit code and its output."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def run(*arguments):
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        monkeypatch.setattr("sys.argv", ["spes-trainer", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return ended.value.code or 0, shown.out, shown.err

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def job_file(tmp_path):
    job = {
        "apiVersion": "spes.dev/v1alpha1",
        "kind": "SpesJob",
        "metadata": {"name": "nano"},
        "spec": json.loads(nano_spec().canonical_json()),
    }
    path = tmp_path / "nano.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def test_train_alone_then_generate(spes_trainer, job_file, tmp_path):
    root = write_words(tmp_path / "data")
    code, out, err = spes_trainer(
        "train", "--dir", tmp_path / "d", "--alone", job_file, "--data-root", root
    )
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith("step     16  tokens 1,024")
    summary = json.loads((tmp_path / "d" / "summary.json").read_text())
    assert summary["finished"]
    assert summary["heldOutLoss"]["last"] < summary["heldOutLoss"]["first"]

    first = spes_trainer("generate", tmp_path / "d", "--prompt", "the ", "--tokens", 30)
    again = spes_trainer("generate", tmp_path / "d", "--prompt", "the ", "--tokens", 30)
    other = spes_trainer("generate", tmp_path / "d", "--tokens", 30, "--seed", 5)
    assert first[0] == 0
    assert first[1].startswith("the ")
    assert first == again
    assert other[1] != first[1]


def test_an_interrupted_run_says_what_is_kept(spes_trainer, job_file, tmp_path, monkeypatch):
    root = write_words(tmp_path / "data")
    alone = ("train", "--dir", tmp_path / "d", "--alone", job_file, "--data-root", root)
    with monkeypatch.context() as interrupted:
        interrupted.setattr("spes_trainer.progress.Lines.step", interrupt)
        code, out, _ = spes_trainer(*alone)
    assert code == 75
    assert out.splitlines()[-1] == (
        f"stopped after step 1, all of them saved in {tmp_path}/d; "
        "the same command goes on from there"
    )
    code, out, _ = spes_trainer(*alone)
    assert code == 0
    assert out.startswith("resumed at 64 tokens")


def interrupt(*_, **__):
    """As Ctrl-C does."""
    signal.raise_signal(signal.SIGINT)


def test_missing_data_exits_2_with_one_line(spes_trainer, job_file, tmp_path):
    code, _, err = spes_trainer(
        "train", "--dir", tmp_path / "d", "--alone", job_file, "--data-root", tmp_path / "no"
    )
    assert code == 2
    assert len(err.splitlines()) == 1
    assert "data.sources[0].dataset must be an existing file or folder (got no such path" in err


@pytest.mark.parametrize("text", ["", "[1]", "kind: Pod", "\0\1"], ids=repr)
def test_a_file_that_is_no_job_exits_2(spes_trainer, tmp_path, text):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    code, _, err = spes_trainer("train", "--dir", tmp_path / "d", "--alone", path)
    assert code == 2
    assert err.startswith(f"spes-trainer train: {path}")
    assert not (tmp_path / "d").exists()


def test_a_second_trainer_is_refused_and_told_who(spes_trainer, job_file, tmp_path):
    with held(tmp_path / "d"):
        code, _, err = spes_trainer("train", "--dir", tmp_path / "d", "--alone", job_file)
    assert code == 2
    assert "is in use by process" in err


def test_a_directory_that_cannot_be_made_exits_2(spes_trainer, job_file, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = spes_trainer("train", "--dir", tmp_path / "file" / "d", "--alone", job_file)
    assert code == 2
    assert "expected a writable directory" in err


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ProtocolError(sync_pb2.PROTOCOL, "protocol 2"), 2),
        (TokenError(sync_pb2.TOKEN_EXPIRED, "the token has expired"), 2),
        (PushRefusedError(sync_pb2.WRONG_SHAPE, "the initial weights are refused"), 2),
        (CertificateError("the certificate is expired"), 2),
        (VolumeError("d belongs to another job"), 2),
        (CheckpointError("no checkpoint can be read"), 2),
        (StaleSessionError("this session is over: join again"), 75),
        (DiskFullError(Path("d/latest"), 10), 1),
        (DivergedError("loss is nan"), 1),
        (ServerUnavailableError("no answer"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_how_a_peer_ends_says_whether_it_is_worth_starting_again(
    spes_trainer, monkeypatch, error, expected
):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("spes_trainer.peer.train_as_peer", fail)
    peer = ("train", "--dir", "d", "--peer", "a.0", "--sync", "h:1", "--ca", "c")
    code, out, err = spes_trainer(*peer, "--token-file", "t")
    assert (code, out, err) == (expected, "", f"spes-trainer train: {error}\n")


@pytest.mark.parametrize("interrupted", [True, False])
def test_an_interrupted_peer_is_started_again(spes_trainer, monkeypatch, interrupted):
    outcome = PeerOutcome(reason="INTERRUPTED" if interrupted else "COMPLETE")
    monkeypatch.setattr("spes_trainer.peer.train_as_peer", lambda *_, **__: outcome)
    peer = ("train", "--dir", "d", "--peer", "a.0", "--sync", "h:1", "--ca", "c")
    assert spes_trainer(*peer, "--token-file", "t")[0] == (75 if interrupted else 0)


@pytest.mark.parametrize("content", [None, "no certificate"], ids=["missing", "not PEM"])
def test_a_ca_file_that_cannot_be_used_exits_2(spes_trainer, tmp_path, content):
    if content is not None:
        (tmp_path / "ca").write_text(content)
    peer = ("--peer", "a.0", "--sync", "localhost:1", "--ca", tmp_path / "ca")
    code, _, err = spes_trainer(
        "train", "--dir", tmp_path / "d", *peer, "--token-file", tmp_path / "token"
    )
    assert code == 2
    assert err.startswith(f"spes-trainer train: cannot use the CA file {tmp_path / 'ca'}")
    assert len(err.splitlines()) == 1


def test_generate_without_a_model_exits_2(spes_trainer, tmp_path):
    code, _, err = spes_trainer("generate", tmp_path)
    assert code == 2
    assert "holds no model" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "--dir", "d"),
        ("train", "--dir", "d", "--alone", "f", "--peer", "p"),
        ("train", "--dir", "d", "--peer", "p", "--sync", "h:1"),
        ("train", "--dir", "d", "--alone", "f", "--slowdown", "0.5"),
        ("train", "--dir", "d", "--peer", "p", "--sync", "h", "--ca", "c", "--token-file", "t"),
        ("train", "--dir", "d", "--alone", "f", "--profile", "0"),
        ("train", "--dir", "d", "--alone", "f", "--profile", "101"),
        ("dance",),
    ],
    ids=" ".join,
)
def test_wrong_arguments_exit_2(spes_trainer, arguments):
    code, _, err = spes_trainer(*arguments)
    assert code == 2
    (line,) = err.splitlines()
    assert line.startswith("spes-trainer")
    assert line.endswith("--help")


def test_an_interrupt_is_one_line(spes_trainer, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("spes_trainer.generate.load_author", interrupt)
    assert spes_trainer("generate", "d") == (130, "", "spes-trainer: interrupted\n")


def test_a_look_says_what_the_data_are(spes_trainer, job_file, tmp_path):
    root = write_words(tmp_path / "data")
    code, out, err = spes_trainer("look", job_file, "--data-root", root)
    assert (code, err) == (0, "")
    assert json.loads(out)["numSequences"] > 0
    assert [path.name for path in root.iterdir()] == ["words"]


def test_a_look_at_too_little_says_so(spes_trainer, job_file, tmp_path):
    root = write_words(tmp_path / "data", num_files=1)
    code, out, err = spes_trainer("look", job_file, "--data-root", root)
    assert (code, out) == (2, "")
    assert err.startswith("spes-trainer look: spec: data.heldOutFraction must be a share that")


def test_version_and_help_need_no_torch(spes_trainer):
    assert spes_trainer("--version")[0] == 0
    assert "generate" in spes_trainer("--help")[1]
