"""The readiness probe of a trainer's pod."""

import os
import subprocess
import sys
import time

import pytest
from spes_api.readiness import READY_FILE, READY_MAX_AGE
from spes_trainer.cli import main
from spes_trainer.readiness import is_ready


def test_trainer_is_ready_while_its_file_is_fresh(tmp_path):
    assert not is_ready(tmp_path)
    (tmp_path / READY_FILE).touch()
    assert is_ready(tmp_path)
    long_ago = time.time() - 2 * READY_MAX_AGE.total_seconds()
    os.utime(tmp_path / READY_FILE, (long_ago, long_ago))
    assert not is_ready(tmp_path)


def test_command_answers_by_its_exit_code(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["spes-trainer", "ready", "--dir", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    (tmp_path / READY_FILE).touch()
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0


def test_command_imports_nothing_heavy(tmp_path):
    (tmp_path / READY_FILE).touch()
    source = f"""
import sys
sys.argv = ["spes-trainer", "ready", "--dir", {str(tmp_path)!r}]
from spes_trainer.cli import main
try:
    main()
finally:
    assert not {{"torch", "numpy", "grpc", "pydantic"}} & sys.modules.keys(), sys.modules.keys()
"""
    assert subprocess.run([sys.executable, "-c", source], timeout=30, check=False).returncode == 0
