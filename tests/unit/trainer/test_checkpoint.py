"""Checkpoints: complete or skipped, durable, bounded in number, free of pickle."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import pickle  # noqa: TID251 - to see it refused
from pathlib import Path

import pytest
import torch
from spes_sync.disk import Disk
from spes_trainer.checkpoint import CheckpointStore, Snapshot
from spes_trainer.errors import CheckpointError, DiskFullError


def snapshot(number: int) -> Snapshot:
    return Snapshot(
        weights={"w": torch.full((4,), float(number))},
        optimizer={"exp_avg.w": torch.zeros(4)},
        rng={"cpu": torch.zeros(8, dtype=torch.uint8)},
        state={"number": number},
    )


def make_store(directory: Path, *, keep_last: int = 2, disk: Disk | None = None):
    return CheckpointStore(directory, keep_last=keep_last, disk=disk or Disk())


def saved(directory: Path, *numbers: int, keep_last: int = 2) -> CheckpointStore:
    store = make_store(directory, keep_last=keep_last)
    for number in numbers:
        store.save(f"round-{number:06d}", snapshot(number))
    return store


def number_of(loaded: Snapshot | None) -> int:
    assert loaded is not None
    assert loaded.weights["w"].tolist() == [loaded.state["number"]] * 4
    return int(str(loaded.state["number"]))


def test_what_was_saved_last_is_loaded(tmp_path):
    assert number_of(saved(tmp_path, 1, 2).load()) == 2


def test_an_empty_directory_has_no_checkpoint(tmp_path):
    assert make_store(tmp_path).load() is None


def test_only_the_last_ones_are_kept(tmp_path):
    saved(tmp_path, 8, 9, 10, 11, keep_last=2)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["round-000010", "round-000011"]


def test_nothing_is_removed_before_there_is_one_too_many(tmp_path):
    saved(tmp_path, 8, 9, 10, 11, keep_last=5)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["round-000008", "round-000009", "round-000010", "round-000011"]


def kept_after(directory: Path, losses: list[float], **keep: int) -> list[int]:
    store = CheckpointStore(directory, disk=Disk(), **keep)
    for number, loss in enumerate(losses, start=1):
        store.save(f"round-{number:06d}", snapshot(number))
        store.judge(f"round-{number:06d}", loss)
    names = (path.name for path in (directory / "checkpoints").iterdir())
    return sorted(int(name.removeprefix("round-")) for name in names)


def test_the_ten_best_of_twelve_that_fall_are_the_last_ten(tmp_path):
    falling = [5 - number / 4 for number in range(12)]
    assert kept_after(tmp_path, falling, keep_last=1, keep_best=10) == list(range(3, 13))


def test_a_worse_one_stays_only_while_it_is_the_latest(tmp_path):
    falling = [5 - number / 4 for number in range(12)]
    keep = {"keep_last": 1, "keep_best": 10}
    assert kept_after(tmp_path / "now", [*falling, 9.0], **keep) == list(range(3, 14))
    assert kept_after(tmp_path / "then", [*falling, 9.0, 2.0], **keep) == [*range(4, 13), 14]


def test_of_equal_losses_the_older_stays(tmp_path):
    assert kept_after(tmp_path, [2.0, 1.0, 1.0, 3.0, 4.0], keep_last=1, keep_best=1) == [2, 5]


def test_what_is_no_number_is_no_best(tmp_path):
    assert kept_after(tmp_path, [float("nan"), 3.0, 2.0, 4.0], keep_last=1, keep_best=3) == [
        2,
        3,
        4,
    ]


def test_a_damaged_loss_is_as_good_as_none(tmp_path):
    store = CheckpointStore(tmp_path, keep_last=1, keep_best=1, disk=Disk())
    store.save("round-000001", snapshot(1))
    store.judge("round-000001", 1.0)
    (tmp_path / "checkpoints/round-000001/loss.json").write_text("{")
    store.save("round-000002", snapshot(2))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["round-000002"]


def test_a_checkpoint_that_is_gone_is_not_judged(tmp_path):
    CheckpointStore(tmp_path, keep_last=1, keep_best=1, disk=Disk()).judge("round-000009", 1.0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "file",
    ["files.json", "state.json", "rank-0.safetensors", "rank-0.optim.safetensors"],
)
@pytest.mark.parametrize("damage", ["missing", "cut", "changed"])
def test_a_damaged_checkpoint_is_skipped_and_said_so(tmp_path, caplog, file, damage):
    store = saved(tmp_path, 1, 2)
    path = tmp_path / "checkpoints" / "round-000002" / file
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        path.write_bytes(content[:-3] + bytes(byte ^ 1 for byte in content[-3:]))
    with caplog.at_level(logging.WARNING):
        assert number_of(store.load()) == 1
    assert "round-000002" in caplog.text
    assert "trying the one before" in caplog.text


def test_no_intact_checkpoint_is_an_error_not_a_fresh_start(tmp_path):
    store = saved(tmp_path, 1, 2)
    for path in tmp_path.glob("checkpoints/*/rank-0.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="2 damaged"):
        store.load()


def test_a_checkpoint_that_was_not_committed_is_ignored(tmp_path):
    store = saved(tmp_path, 1, 2)
    (tmp_path / "latest").write_text("round-000001")
    assert number_of(store.load()) == 1


def test_garbage_in_latest_falls_back_to_the_newest(tmp_path):
    store = saved(tmp_path, 1, 2)
    (tmp_path / "latest").write_bytes(b"../../etc\xff")
    assert number_of(store.load()) == 2


class Canary:
    """Creates a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_pickle_is_refused_and_nothing_is_executed(tmp_path):
    store = saved(tmp_path, 1)
    folder, canary = tmp_path / "checkpoints" / "round-000001", tmp_path / "canary"
    payload = pickle.dumps(Canary(canary))
    (folder / "rank-0.safetensors").write_bytes(payload)
    listed = json.loads((folder / "files.json").read_text())
    listed["rank-0.safetensors"]["sha256"] = hashlib.sha256(payload).hexdigest()
    (folder / "files.json").write_text(json.dumps(listed))
    with pytest.raises(CheckpointError):
        store.load()
    assert not canary.exists()


@pytest.mark.parametrize("written", range(1, 7))
def test_a_full_disk_names_the_file_and_keeps_the_last_checkpoint(tmp_path, written):
    """The disk fills up at the n-th fsync of a save."""
    saved(tmp_path, 1)
    left = [written]

    def fsync(descriptor: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        os.fsync(descriptor)

    with pytest.raises(DiskFullError, match=r"no space left for .*round-000002"):
        make_store(tmp_path, disk=Disk(fsync=fsync)).save("round-000002", snapshot(2))
    assert not (tmp_path / "checkpoints" / "round-000002").exists()
    assert number_of(make_store(tmp_path).load()) == 1


def test_a_save_that_was_cut_short_is_replaced(tmp_path):
    left_over = tmp_path / "checkpoints" / "round-000003" / "rank-0.safetensors"
    left_over.parent.mkdir(parents=True)
    left_over.write_bytes(b"half")
    assert number_of(saved(tmp_path, 3).load()) == 3
