"""Which part of the training each peer has done: of the last version, and of all so far. Pure.

By tokens, also where an average counts every peer alike: a peer that trains a twentieth of the
tokens may weigh a quarter in the model, and both should be seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spes_sync.plan import PeerId
from spes_sync.versions import CommitRecord


class WorkShare(NamedTuple):
    """Of one peer; all peers' add up to 1."""

    latest: float = 0.0
    """Of the tokens of the last version."""
    so_far: float = 0.0
    """Of the tokens of all versions."""


def work_shares(record: CommitRecord | None) -> Mapping[PeerId, WorkShare]:
    """By peer; who has never trained anything that counted is not in it."""
    if record is None:
        return {}
    latest = {each.peer: each.tokens for each in record.contributions}
    newest, total = sum(latest.values()) or 1, sum(record.worked.values()) or 1
    return {
        peer: WorkShare(latest.get(peer, 0) / newest, tokens / total)
        for peer, tokens in record.worked.items()
    }
