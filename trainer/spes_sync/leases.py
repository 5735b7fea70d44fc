"""Data leases: which positions of the data order each peer may train on. Pure.

Positions count the job's sequences without end: a peer takes them modulo its number of sequences,
so a new pass over the data needs no bookkeeping here. Every position is leased to one peer at a
time and committed exactly once:

    free -> leased -> consumed (by a verified push) -> committed
      ^        |
      +--------+  the peer joined anew, was removed, or was refused for good

A peer that carries its progress keeps its leases. The book of the last change lies in `data.json`;
`consumed` is not in it, because the verified spools say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from spes_sync.plan import PeerId


class Range(NamedTuple):
    """Consecutive positions."""

    first: int
    size: int


Ranges = tuple[Range, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseBook:
    """Who holds which positions; `cursor` is the first that was never leased."""

    cursor: int = 0
    free: Ranges = ()
    """Returned ones below the cursor, ascending: they are leased again first."""
    leased: Mapping[PeerId, Ranges] = field(default_factory=dict)
    """In the order of granting."""
    consumed: Mapping[PeerId, Ranges] = field(default_factory=dict)

    def held(self, peer: PeerId) -> int:
        """How many sequences a peer may still push."""
        return _total(self.leased.get(peer, ()))

    def grant(self, wanted: Mapping[PeerId, int]) -> LeaseBook:
        """Bring each peer's leases up to `wanted` sequences, in peer-id order."""
        book = self
        for peer in sorted(wanted):
            missing = wanted[peer] - book.held(peer)
            if missing <= 0:
                continue
            taken, free = _split(book.free, missing)
            fresh = missing - _total(taken)
            if fresh:
                taken = (*taken, Range(book.cursor, fresh))
            leased = {**book.leased, peer: _joined((*book.leased.get(peer, ()), *taken))}
            book = replace(book, cursor=book.cursor + fresh, free=free, leased=leased)
        return book

    def consume(self, peer: PeerId, count: int) -> LeaseBook:
        """Mark a push's first `count` leased sequences as used by it."""
        used, rest = _split(self.leased.get(peer, ()), count)
        return replace(
            self,
            leased=_with(self.leased, peer, rest),
            consumed=_with(self.consumed, peer, (*self.consumed.get(peer, ()), *used)),
        )

    def give_back(self, peer: PeerId) -> LeaseBook:
        """Free what the peer holds and has not pushed."""
        returned = self.leased.get(peer, ())
        free = _joined(sorted((*self.free, *returned)))
        return replace(self, free=free, leased=_with(self.leased, peer, ()))

    def commit(self) -> LeaseBook:
        """Forget what verified pushes used: it is in the committed version."""
        return replace(self, consumed={})

    def unconsumed(self) -> LeaseBook:
        """The book before any push of the open round: what is written to disk."""
        peers = self.leased.keys() | self.consumed.keys()
        leased = {
            peer: _joined((*self.consumed.get(peer, ()), *self.leased.get(peer, ())))
            for peer in peers
        }
        return replace(self, leased=leased, consumed={})

    def without(self, committed: Mapping[PeerId, Ranges]) -> LeaseBook:
        """Take out what a version committed after this book was written."""
        leased = dict(self.leased)
        for peer, used in committed.items():
            kept = _minus(leased.pop(peer, ()), used)
            if kept:
                leased[peer] = kept
        return replace(self, leased=leased, consumed={})

    def to_json(self) -> dict[str, Any]:
        """The durable form, without `consumed`."""
        book = self.unconsumed()
        return {
            "cursor": book.cursor,
            "free": [list(r) for r in book.free],
            "leased": {peer: [list(r) for r in held] for peer, held in sorted(book.leased.items())},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LeaseBook:
        """Read the durable form."""
        leased = {PeerId(peer): ranges_from(held) for peer, held in data["leased"].items()}
        return cls(cursor=data["cursor"], free=ranges_from(data["free"]), leased=leased)


def ranges_from(data: Iterable[Iterable[int]]) -> Ranges:
    """Read ranges as JSON keeps them."""
    return tuple(Range(*pair) for pair in data)


def _total(ranges: Ranges) -> int:
    return sum(r.size for r in ranges)


def _split(ranges: Ranges, count: int) -> tuple[Ranges, Ranges]:
    """The first `count` positions, and the rest."""
    head: list[Range] = []
    for index, (first, size) in enumerate(ranges):
        if count < size:
            if count:
                head.append(Range(first, count))
            return tuple(head), (Range(first + count, size - count), *ranges[index + 1 :])
        head.append(Range(first, size))
        count -= size
    return tuple(head), ()


def _joined(ranges: Iterable[Range]) -> Ranges:
    """Neighbours made one, the order kept."""
    joined: list[Range] = []
    for first, size in ranges:
        if joined and joined[-1].first + joined[-1].size == first:
            joined[-1] = Range(joined[-1].first, joined[-1].size + size)
        else:
            joined.append(Range(first, size))
    return tuple(joined)


def _minus(ranges: Ranges, removed: Ranges) -> Ranges:
    """Positions of `ranges` that are not in `removed`, the order kept."""
    kept = ranges
    for gone in removed:
        kept = tuple(piece for r in kept for piece in _cut(r, gone))
    return kept


def _cut(whole: Range, gone: Range) -> Iterable[Range]:
    end, gone_end = whole.first + whole.size, gone.first + gone.size
    left, right = min(end, gone.first), max(whole.first, gone_end)
    if left > whole.first:
        yield Range(whole.first, left - whole.first)
    if end > right:
        yield Range(right, end - right)


def _with(
    mapping: Mapping[PeerId, Ranges], peer: PeerId, ranges: Ranges
) -> Mapping[PeerId, Ranges]:
    changed = {**mapping, peer: ranges}
    if not ranges:
        del changed[peer]
    return changed
