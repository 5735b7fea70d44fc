"""What one simulated peer owes, by the rules in words of their own; it outlives processes.

A push sends m of a delta and what was owed before. If it counts, what is owed grows by delta - m.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass
class Offer:
    """A push that may or may not count."""

    base: int
    process: int
    sha256: str
    sent: Mapping[str, int]
    gain: Mapping[str, int]  # what is owed more if it counts
    forgotten: set[str] = field(default_factory=set)  # owed to nobody since


@dataclass
class OwedBook:
    """Owed amounts per tensor, and the offers that will change them."""

    dropped: Counter[str]
    """Of the whole simulation: what is owed to nobody any more goes there."""
    owed: Counter[str] = field(default_factory=Counter)
    offers: list[Offer] = field(default_factory=list)

    def offer(self, offer: Offer) -> None:
        """A push is about to be sent, maybe again."""
        if all(each.sha256 != offer.sha256 for each in self.offers):
            self.offers.append(offer)

    def decide(self, version: int, counted: Mapping[str, Mapping[int, frozenset[str]]]) -> None:
        """A process has reached a version; `counted` says which push made which version of what.

        Args:
            version: The one that is held now.
            counted: SHA-256 -> version -> tensors that count.
        """
        for offer in [each for each in self.offers if each.base < version]:
            self.offers.remove(offer)
            tensors = counted.get(offer.sha256, {}).get(offer.base + 1)
            if tensors is None:
                continue
            for name in self.owed.keys() - offer.sent.keys():  # of experts that went meanwhile
                self.dropped[name] += self.owed.pop(name)
            for name, amount in offer.sent.items():
                if name not in tensors:
                    self.dropped[name] += amount
                goes_to = self.dropped if name in offer.forgotten else self.owed
                goes_to[name] += offer.gain[name]

    def forget(self, names: Iterable[str]) -> None:
        """Nothing is owed of these any more, whatever becomes of the offers."""
        for name in names:
            self.dropped[name] += self.owed.pop(name, 0)
            for offer in self.offers:
                offer.forgotten.add(name)
