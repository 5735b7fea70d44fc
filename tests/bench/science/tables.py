"""The tables of the comparison, in the order of the page. Pure.

A table has a row for each of its arms that was made.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.science.design import EVERY_STEPS, NUM_EXPERTS
from bench.science.figures import ALGORITHMS, BY_PEERS, BY_STEPS
from bench.science.results import BASELINE, Result, Results
from bench.science.trials import Trial
from bench.science.wording import megabytes, table, with_deviation, with_error
from spes_sync.merge import alpha_at

# The paper's merges: every 300 steps up to step 12,500, alpha 0.1 falling to 0.
PAPER_ALPHAS = sum(alpha_at(step, alpha=0.1, warmup=12_500) for step in range(300, 12_500, 300))


def tables(results: Results) -> Iterator[str]:
    """Sections with their figures."""
    yield "## Algorithms\n"
    yield (
        f"Four peers, rounds of H = {EVERY_STEPS} steps. Held-out loss: mean ± standard deviation "
        "over the seeds. Sent and received: MB of one peer in one round, as the sync server "
        "counted them. State: MB of weights, gradients and moments of one peer. Peak: MB of its "
        "whole process at the highest, most of which are the interpreter, torch and its "
        "allocator.\n"
    )
    yield "![Held-out loss over tokens](science/curves.svg)\n"
    yield _algorithms(results)
    yield _notes(results)
    yield "![Last loss of every run](science/final.svg)\n"
    yield "## Steps of a round, peers, codec\n"
    yield "![Loss over H and over peers](science/sweeps.svg)\n"
    yield _steps(results)
    yield _peers(results)
    yield _codecs(results)
    yield "![What a peer moves, and what that buys](science/cost.svg)\n"


def _notes(results: Results) -> str:
    """What the rows below the line of the five algorithms are."""
    said = []
    if "spes-merge" in results:
        (merged,) = {_moved(trial) for trial in results["spes-merge"].trials}
        said.append(
            "*Merging* moves experts less in all than in the paper, whose 41 merges have alphas "
            f"of {PAPER_ALPHAS:.2f} in sum: {merged:.2f} here, for there are fewer rounds."
        )
    if "alone" in results:
        said.append(
            "*One peer alone* is what a member would have without the others: as many steps, a "
            "quarter of the tokens."
        )
    return " ".join(said) + "\n"


def _moved(trial: Trial) -> float:
    """The sum of the alphas of a run's merges."""
    merge = trial.spec["algorithm"]["merge"]
    due = range(merge["everyRounds"], trial.rounds + 1, merge["everyRounds"])
    return sum(alpha_at(at, alpha=merge["alpha"], warmup=merge["warmupRounds"]) for at in due)


def _algorithms(results: Results) -> str:
    header = ("", "held-out loss", "minus Centralised", "sent", "received", "state", "peak")
    rows = []
    for result in results.present(*ALGORITHMS, "alone"):
        together, peak = result.arm.num_peers > 1, result.peak_megabytes
        rows.append(
            (
                result.arm.label,
                with_deviation(result.loss),
                _less(results, result, BASELINE),
                megabytes(result.up_bytes) if together else "",
                megabytes(result.down_bytes) if together else "",
                megabytes(result.state_bytes),
                with_deviation(peak, places=1) if peak else "",
            )
        )
    return table(header, rows)


def _less(results: Results, ours: Result, theirs: str) -> str:
    """How far an arm lies above another; nothing against itself."""
    return "" if ours.arm.name == theirs else with_error(results.above(ours.arm.name, theirs))


def _steps(results: Results) -> str:
    rows = [
        (
            str(result.arm.every_steps),
            str(result.trials[0].rounds),
            with_deviation(result.loss),
            _less(results, result, "spes"),
            megabytes(result.run_bytes),
        )
        for result in results.present(*BY_STEPS)
    ]
    return table(
        ("H", "rounds", "held-out loss", f"minus H = {EVERY_STEPS}", "MB of a peer in the run"),
        rows,
    )


def _peers(results: Results) -> str:
    rows = [
        (
            str(result.arm.num_peers),
            str(NUM_EXPERTS // result.arm.num_peers),
            with_deviation(result.loss),
            _less(results, result, BASELINE),
            megabytes(result.up_bytes) if result.arm.num_peers > 1 else "",
            megabytes(result.state_bytes),
        )
        for result in results.present(*BY_PEERS)
    ]
    header = ("peers", "experts each", "held-out loss", "minus Centralised", "MB sent", "MB state")
    return table(header, rows)


def _codecs(results: Results) -> str:
    rows = [
        (
            result.arm.codec,
            with_deviation(result.loss),
            _less(results, result, "spes"),
            megabytes(result.up_bytes),
            megabytes(result.down_bytes),
        )
        for result in results.present("spes", "spes-int8")
    ]
    header = ("codec", "held-out loss", "minus FP32", "MB sent", "MB received")
    return table(header, rows)
