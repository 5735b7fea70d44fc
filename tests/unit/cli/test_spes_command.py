"""The `spes` command: exit codes, one line per problem, and its last words."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from spes_operator.cli import main
from spes_operator.cli.closing import closing_words

JOB = str(Path(__file__).parents[3] / "examples" / "moe-tiny.yaml")
SUMMARY = {
    "rounds": 32,
    "tokens": 922_624,
    "seconds": 176.4,
    "heldOutLoss": {"first": 5.935, "last": 1.955, "uniform": 5.545},
    "unigramLoss": 3.214,
    "aloneLoss": None,
    "experts": {"total": 8, "trained": 8},
    "moves": [
        {"round": 9, "expert": expert, "reason": "uni-c is gone", "lowerBound": 2}
        for expert in (6, 7)
    ],
    "modelSha256": "65dd",
    "export": "export",
}


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["run", JOB, "--event", "uni-a sings @ round 2"], id="event"),
        pytest.param(["run", "missing.yaml"], id="file"),
        pytest.param(["run"], id="nothing to run"),
        pytest.param(["explain", "missing.yaml"], id="explain"),
        pytest.param(["report", "missing"], id="report"),
    ],
)
def test_bad_input_is_one_line_and_code_2(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    complaint = capsys.readouterr().err
    assert len(complaint.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_is_one_line_and_code_1(capsys, monkeypatch):
    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/runs/report.html")

    monkeypatch.setattr("spes_operator.cli.explain.explain", refuse)
    assert main(["explain", JOB]) == 1
    assert capsys.readouterr().err == "spes explain: /runs/report.html: No space left on device\n"


@pytest.mark.parametrize("arguments", [["walk"], ["run", JOB, "--dataset", "books"]])
def test_a_wrong_option_is_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(r"spes( run)?: argument .*; see spes( run)? --help$", line)


def test_an_interrupt_is_one_line_and_code_130(capsys, monkeypatch):
    def interrupt(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("spes_operator.cli.explain.explain", interrupt)
    assert main(["explain", JOB]) == 130
    assert capsys.readouterr().err == "spes: interrupted\n"


def test_an_interrupt_while_importing_is_one_line_too(tmp_path):
    """The command's modules take a second to import; here the first of them is interrupted."""
    (tmp_path / "rich.py").write_text("raise KeyboardInterrupt")
    done = subprocess.run(
        [sys.executable, "-m", "spes_operator.cli", "--version"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (130, "spes: interrupted\n")


def test_the_last_words_name_what_matters(tmp_path):
    (tmp_path / "sample.txt").touch()
    words = closing_words(SUMMARY, tmp_path)
    assert "32 rounds, 922,624 tokens in 176 s" in words
    assert "before training 5.935, after it 1.955, unigram 3.214, uniform 5.545" in words
    assert "alone" not in words
    assert "experts changed by training: 8 of 8" in words
    assert "round 9: 2 experts moved (at least 2 had to): uni-c is gone" in words
    for file in ("report.html", "summary.json", "export", "sample.txt"):
        assert str(tmp_path / file) in words


def test_a_change_for_two_reasons_is_one_line(tmp_path):
    moves = [
        {"round": 6, "expert": expert, "reason": f"{peer} is gone", "lowerBound": 2}
        for expert, peer in enumerate(("uni-a", "uni-b"))
    ]
    words = closing_words({**SUMMARY, "moves": moves}, tmp_path)
    assert "round 6: 2 experts moved (at least 2 had to): uni-a is gone; uni-b is gone" in words
