"""What a sync server's journal says about rounds: who owned what, and whose work was counted."""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class SyncJournal:
    """The file, read anew at each question."""

    path: Path

    def entries(self, event: str = "") -> list[dict[str, Any]]:
        """Its lines, of one event or of all; a line that is being written is left out."""
        lines = self.path.read_text().split("\n")[:-1] if self.path.exists() else []
        found = [json.loads(line) for line in lines if line]
        return [entry for entry in found if event in ("", entry["event"])]

    def rounds(self) -> int:
        """The last committed round."""
        return max((entry["round"] for entry in self.entries("committed")), default=0)

    def owners(self) -> dict[str, str]:
        """Peer -> its experts, in the round opened last."""
        opened = self.entries("opened")
        return dict(opened[-1]["owners"]) if opened else {}

    def since(self, moment: datetime, event: str = "") -> list[dict[str, Any]]:
        """Its lines after a moment."""
        return [entry for entry in self.entries(event) if time_of(entry) > moment]

    def first_expecting(self, peer: str, since: datetime) -> dict[str, Any] | None:
        """The first round opened after `since` that waits for `peer`, be it without experts."""
        opened = self.since(since, "opened")
        return next((entry for entry in opened if peer in entry["expected"]), None)

    def first_counting(self, peer: str, since: datetime) -> dict[str, Any] | None:
        """The first version after `since` with work of `peer` in it."""
        committed = self.since(since, "committed")
        return next(
            (entry for entry in committed if any(one["peer"] == peer for one in entry["peers"])),
            None,
        )

    def check_owners(self) -> None:
        """No expert ever had two owners in a round, in a version, or under one epoch."""
        by_epoch: dict[int, dict[str, str]] = {}
        for entry in self.entries("opened"):
            _check_disjoint(entry["owners"], entry)
            known = by_epoch.setdefault(entry["epoch"], entry["owners"])
            assert known == entry["owners"], f"epoch {entry['epoch']}: {known} and then {entry}"
        for entry in self.entries("committed"):
            _check_disjoint({one["peer"]: one["experts"] for one in entry["peers"]}, entry)
        epochs = [entry["epoch"] for entry in self.entries("opened")]
        assert epochs == sorted(epochs)


def time_of(entry: dict[str, Any]) -> datetime:
    """When it was written."""
    return datetime.fromisoformat(entry["time"])


def experts(ranges: str) -> list[int]:
    """The numbers that "0-2,5" stands for."""
    found: list[int] = []
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _check_disjoint(owned: dict[str, str], entry: dict[str, Any]) -> None:
    owners = Counter(expert for ranges in owned.values() for expert in experts(ranges))
    assert all(count == 1 for count in owners.values()), f"two owners: {entry}"
