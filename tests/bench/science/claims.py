"""What the paper claims, and what the runs say about it. Pure.

A claim shows here only if the difference that it names is beyond two standard errors on the side
that it names. Bytes and accounted memory have no error: they are the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from bench.science.estimates import Difference, Told, difference, estimate
from bench.science.results import BASELINE, Results
from bench.science.wording import MEGABYTE, per_cent, with_error


class Outcome(StrEnum):
    """Of a claim at this scale."""

    SHOWN = "shows"
    NOT_SHOWN = "does not show"
    OPPOSITE = "the opposite shows"
    NOT_TESTED = "not tested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One sentence of the paper, and the answer."""

    says: str
    where: str
    here: str
    outcome: Outcome


def judge(results: Results) -> tuple[Claim, ...]:
    """Every claim whose arms were made, in the order of the paper; then those never tested."""
    return (*(claim for check in _CHECKS for claim in check(results)), *_NOT_TESTED)


def _outcome(told: Told, *, claimed: Told) -> Outcome:
    if told is claimed:
        return Outcome.SHOWN
    return Outcome.OPPOSITE if told in (Told.LOWER, Told.HIGHER) else Outcome.NOT_SHOWN


def _memory(results: Results) -> Iterator[Claim]:
    if not {"spes", "diloco"} <= results.by_arm.keys():
        return
    spes, diloco = results["spes"], results["diloco"]
    saved = 1 - spes.state_bytes / diloco.state_bytes
    here = (
        f"weights, gradients and moments: {spes.state_bytes / MEGABYTE:.1f} of "
        f"{diloco.state_bytes / MEGABYTE:.1f} MB ({per_cent(saved)} less)"
    )
    outcome = Outcome.SHOWN if saved > 0 else Outcome.NOT_SHOWN
    if spes.peak_megabytes and diloco.peak_megabytes:
        peak = difference(spes.peak_megabytes, diloco.peak_megabytes)
        here += f"; measured peak of the process {with_error(peak, places=1)} MB"
        outcome = _outcome(peak.told, claimed=Told.LOWER)
    yield Claim(
        says="a peer needs less memory than with DiLoCo (35 instead of 55 GB, 2B model)",
        where="3.3, 4.2, fig. 3",
        here=here,
        outcome=outcome,
    )


def _bytes(results: Results) -> Iterator[Claim]:
    if not {"spes", "diloco"} <= results.by_arm.keys():
        return
    spes, diloco = results["spes"], results["diloco"]
    up = 1 - spes.up_bytes / diloco.up_bytes
    both = 1 - (spes.up_bytes + spes.down_bytes) / (diloco.up_bytes + diloco.down_bytes)
    yield Claim(
        says="a peer sends less in a round (65 % less, 7B model on 4 nodes)",
        where="4.2, fig. 3",
        here=f"{per_cent(up)} less",
        outcome=Outcome.SHOWN if up > 0 else Outcome.NOT_SHOWN,
    )
    yield Claim(
        says="up to 33.3 % less communication in both directions",
        where="1, 3.3",
        here=f"{per_cent(both)} less, for a peer's own experts are not sent back to it",
        outcome=Outcome.SHOWN if both > 0 else Outcome.NOT_SHOWN,
    )


def _quality(results: Results) -> Iterator[Claim]:
    """Claimed of SPES with merging, its form in the paper."""
    for rival, says in (
        (BASELINE, "matches or outperforms centralised training on the same tokens"),
        ("diloco", "matches or outperforms DiLoCo on the same tokens"),
        ("fedavg", "the same against FedAvg, which is what the released code runs as DiLoCo"),
    ):
        if not {"spes-merge", rival} <= results.by_arm.keys():
            continue
        above = results.above("spes-merge", rival)
        yield Claim(
            says=says,
            where="4.2, table 1",
            here=results.compare("spes-merge", rival) + _beside(results, rival),
            outcome=_outcome(above.told, claimed=Told.LOWER),
        )


def _beside(results: Results, rival: str) -> str:
    """That DiLoCo's own step may not have paid yet: what it is worth against its average alone."""
    if rival != "diloco" or "fedavg" not in results:
        return ""
    said = f"; DiLoCo itself is {results.compare('diloco', 'fedavg')}"
    if results.above("diloco", "fedavg").told is Told.HIGHER:
        said += (
            ": its step costs more than it brings in so few rounds, so this speaks less for SPES"
        )
    return said


def _catches_up(results: Results) -> Iterator[Claim]:
    if not {"spes-merge", BASELINE} <= results.by_arm.keys():
        return
    spes, central = results["spes-merge"], results[BASELINE]
    early, end = central.points[len(central.points) // 3], central.points[-1]
    gaps = [
        {tokens: dict(ours.curve)[tokens] - dict(theirs.curve)[tokens] for tokens in (early, end)}
        for ours, theirs in zip(spes.trials, central.trials, strict=True)
    ]
    closing = estimate([gap[end] - gap[early] for gap in gaps])
    change = Difference(mean=closing.mean, standard_error=closing.standard_error)
    yield Claim(
        says="starts more slowly than centralised training, then catches up",
        where="4.2, fig. 4",
        here=(
            f"the gap is {with_error(difference(spes.loss_at(early), central.loss_at(early)))} "
            f"after {early:,} tokens and changes by {with_error(change)} from there to the end"
        ),
        outcome=_outcome(change.told, claimed=Told.LOWER),
    )


def _merging(results: Results) -> Iterator[Claim]:
    if not {"spes", "spes-merge"} <= results.by_arm.keys():
        return
    above = results.above("spes-merge", "spes")
    yield Claim(
        says="merging similar experts in the warm-up gives a better model",
        where="4.2, table 4",
        here=results.compare("spes-merge", "spes"),
        outcome=_outcome(above.told, claimed=Told.LOWER),
    )


def _utilisation(results: Results) -> Iterator[Claim]:
    made = results.present("spes-n2", "spes", "spes-n8")
    if len(made) < 2:
        return
    fewest, most = made[0].arm, made[-1].arm
    above = results.above(most.name, fewest.name)
    numbers = f"{most.num_peers} peers against {fewest.num_peers}"
    yield Claim(
        says="an expert that only its owner trains learns from fewer tokens, so peers cost quality",
        where="3.3",
        here=f"{numbers}: {results.compare(most.name, fewest.name)}",
        outcome=_outcome(above.told, claimed=Told.HIGHER),
    )


_CHECKS: tuple[Callable[[Results], Iterator[Claim]], ...] = (
    _memory,
    _bytes,
    _quality,
    _catches_up,
    _merging,
    _utilisation,
)
_NOT_TESTED = (
    Claim(
        says="97 % of the throughput of centralised training at H = 50, more with larger H",
        where="4.2",
        here="these runs share the cores of one machine, so their times say nothing",
        outcome=Outcome.NOT_TESTED,
    ),
    Claim(
        says="scores on benchmarks of reasoning and knowledge like those of larger budgets",
        where="4.2, table 3",
        here="a model of 1.8 million parameters answers no such questions",
        outcome=Outcome.NOT_TESTED,
    ),
)
