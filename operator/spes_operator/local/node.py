"""A place for one process: what a Kubernetes node with its volume is to a pod."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Where a slot's process works; relative paths of its job start at `directory`."""

    directory: Path
    log: Path
    environment: Mapping[str, str]
    """Of every process here, under what its job adds; complete."""
    present: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared while the node is taken away: nothing starts here."""
