"""What the runs say beside the paper's claims, a sentence each. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from bench.science.results import Results
from bench.science.wording import per_cent


def findings(results: Results) -> Iterator[str]:
    """A sentence for each comparison whose arms were made."""
    for ours, theirs, about in _PAIRS:
        if ours in results and theirs in results:
            yield f"{about}: {results.compare(ours, theirs)}{_bytes(results, ours, theirs)}."


def _bytes(results: Results, ours: str, theirs: str) -> str:
    """Traffic against that of the other arm; nothing where one of them has a single peer."""
    one, other = results[ours], results[theirs]
    if 1 in (one.arm.num_peers, other.arm.num_peers) or one.run_bytes == other.run_bytes:
        return ""
    return f", with {per_cent(one.run_bytes / other.run_bytes)} of its bytes"


_PAIRS = (
    ("spes", "fedavg", "SPES without merging, where a peer trains its own experts alone"),
    ("fedavg", "centralised", "FedAvg, where every peer trains everything"),
    ("diloco", "fedavg", "DiLoCo's step with momentum"),
    ("spes-int8", "spes", "INT8 in both directions, what it drops being sent later"),
    ("spes-h40", "spes", "A round of 40 steps instead of 5"),
    ("spes", "alone", "Four peers against one of them alone with its quarter of the tokens"),
)
