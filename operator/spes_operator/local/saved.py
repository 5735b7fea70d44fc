"""What a run must remember beside the cluster's objects, so that it can be resumed: `run.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spes_operator.errors import ConfigError
from spes_operator.local.events import Event, parse_event


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the story of a run is."""

    finished: bool = False
    elapsed: float = 0.0
    """Seconds it has run, of all processes together."""
    pending: tuple[Event, ...] = ()
    """Events that have not happened yet."""
    absent: frozenset[str] = frozenset()
    """Members whose agent does not run."""
    preempted: frozenset[str] = frozenset()
    """Members whose nodes were taken away."""
    datasets: Mapping[str, Path]
    """Where each dataset of the job lies."""

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        document = {
            "finished": self.finished,
            "elapsedSeconds": self.elapsed,
            "pendingEvents": [str(event) for event in self.pending],
            "absentMembers": sorted(self.absent),
            "preemptedMembers": sorted(self.preempted),
            "datasets": {name: str(root) for name, root in sorted(self.datasets.items())},
        }
        draft = draft_of(path)
        draft.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        draft.replace(path)

    @classmethod
    def load(cls, path: Path) -> Progress:
        """Read what `save` wrote.

        Raises:
            ConfigError: There is no such file, or it is something else.
        """
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                finished=bool(document["finished"]),
                elapsed=float(document["elapsedSeconds"]),
                pending=tuple(parse_event(text) for text in document["pendingEvents"]),
                absent=frozenset(document["absentMembers"]),
                preempted=frozenset(document["preemptedMembers"]),
                datasets={name: Path(root) for name, root in document["datasets"].items()},
            )
        except FileNotFoundError as error:
            raise ConfigError(
                f"{path.parent} holds no run ({path.name} is missing); give the folder of --output"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path} is damaged ({error!r:.120}); start a new run") from error


def draft_of(path: Path) -> Path:
    """Where the file is written before it takes its place."""
    return path.with_name(f"{path.name}.new")
