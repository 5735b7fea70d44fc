"""`docs/science.md` from the trials alone. Pure: the same trials give the same text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from bench.science.claims import judge
from bench.science.design import (
    EVALUATION_STEPS,
    HELD_OUT_TOKENS,
    LEARNING_RATE,
    MICRO_BATCH_TOKENS,
    NUM_EXPERTS,
    PILOT_RATES,
    PILOT_SEED,
    SEQUENCE_TOKENS,
    STEP_TOKENS,
)
from bench.science.estimates import BEYOND
from bench.science.figures import ALGORITHMS, BY_PEERS, BY_STEPS
from bench.science.results import BASELINE, Result, Results
from bench.science.trials import Trial
from bench.science.wording import megabytes, table, with_deviation, with_error

SECONDS_A_MINUTE = 60


def write_page(results: Results, pilot: Sequence[Trial]) -> str:
    """The page; a table has those of its arms that were made."""
    parts = (
        _opening(results),
        *_answers(results),
        *_tables(results),
        *_method(results, pilot),
        *_limits(results),
        *_raw(results, pilot),
    )
    return "\n".join(parts)


def tables(results: Results) -> str:
    """Only the tables, for a terminal."""
    return "\n".join((*_answers(results), *_tables(results)))


def _opening(results: Results) -> str:
    trial = results[BASELINE].trials[0]
    return (
        "# SPES and its rivals on the same tokens\n\n"
        "Made by `make science` from the runs in [`science/runs`](science/runs); do not edit. "
        f"{len(results.trials)} runs of `spes run`, each of {trial.tokens:,} tokens of all peers "
        "together: a model of 1.8 million parameters (`moe-tiny`, 8 experts, 2 for a token) on the "
        "source code of Python's standard library. The paper is [SPES](https://arxiv.org/abs/"
        "2602.11543); its models have 1 to 9 billion parameters and 50 to 500 billion tokens. What "
        "does not show here may show there, and the other way round.\n"
    )


def _answers(results: Results) -> Iterator[str]:
    claims = judge(results)
    counted = Counter(claim.outcome for claim in claims)
    yield "## What the paper claims, and what shows here\n"
    yield (
        f"Of {len(claims)} claims: "
        + ", ".join(f"{number} {outcome}" for outcome, number in counted.items())
        + ". A loss counts as lower or higher only if the difference is larger than "
        f"{BEYOND:.0f} standard errors; numbers after ± are standard errors in this table. Losses "
        "are nats per token, and lower is better.\n"
    )
    yield table(
        ("claim", "in the paper", "here", "at this scale"),
        [(claim.says, claim.where, claim.here, f"**{claim.outcome}**") for claim in claims],
    )


def _tables(results: Results) -> Iterator[str]:
    yield "## Algorithms\n"
    yield (
        "Four peers, a round of H = 10 steps. Held-out loss: mean ± standard deviation over the "
        "seeds. Sent and received: MB of one peer in one round, as the sync server counted them. "
        "State: MB of weights, gradients and moments of one peer. Peak: MB of its whole process "
        "at the highest, of which the interpreter, torch and the allocator are most.\n"
    )
    yield "![Held-out loss over tokens](science/curves.svg)\n"
    yield _algorithms(results)
    yield (
        "*Merging 5 x* moves experts as far in all as the paper's 41 merges do: here are only "
        "as many merges as rounds in the warm-up. *One peer alone* is what a member would have "
        "without the others: as many steps, a quarter of the tokens.\n"
    )
    yield "![Last loss of every run](science/final.svg)\n"
    yield "## Steps of a round, peers, codec\n"
    yield "![Loss over H and over peers](science/sweeps.svg)\n"
    yield _steps(results)
    yield _peers(results)
    yield _codecs(results)
    yield "![What a peer moves, and what that buys](science/cost.svg)\n"


def _algorithms(results: Results) -> str:
    header = ("", "held-out loss", "less Centralised", "sent", "received", "state", "peak")
    rows = []
    for result in results.present(*ALGORITHMS, "spes-merge-strong", "alone"):
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
    return table(("H", "rounds", "held-out loss", "less H = 10", "MB of a peer in the run"), rows)


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
    header = ("peers", "experts each", "held-out loss", "less Centralised", "MB sent", "MB state")
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
    header = ("codec", "held-out loss", "less FP32", "MB sent", "MB received")
    return table(header, rows)


def _method(results: Results, pilot: Sequence[Trial]) -> Iterator[str]:
    trial = results[BASELINE].trials[0]
    seeds = ", ".join(str(each.seed) for each in results[BASELINE].trials)
    steps = trial.tokens // STEP_TOKENS
    schedule = trial.spec["training"]["schedule"]
    yield "## How\n"
    yield (
        "Every run is `spes run` of a generated job: real sync server, real trainers, one process "
        "each. Held equal:\n\n"
        f"- **Tokens**: {trial.tokens:,} of all peers together, in {steps} optimizer steps of "
        f"{STEP_TOKENS:,}. N peers share out each step; Centralised is one peer that has the whole "
        f"of it. At most {MICRO_BATCH_TOKENS} tokens are in memory at once, whatever the batch.\n"
        f"- **Optimizer**: AdamW, peak rate {LEARNING_RATE}, warm-up over "
        f"{schedule['warmupTokens']:,} tokens, then cosine to a tenth; all else as in "
        "`examples/moe-tiny.yaml`.\n"
        f"- **Data**: sequences of {SEQUENCE_TOKENS} bytes; each is used by one peer. The held-out "
        f"set is the same {HELD_OUT_TOKENS:,} tokens in every run, evaluated every "
        f"{EVALUATION_STEPS} steps (where rounds are longer: every round) on the committed model.\n"
        f"- **Seeds** {seeds}: each gives first weights and order of the data, the same for every "
        "arm.\n\n"
        "Not held equal: DiLoCo has its server's step (rate 0.7, Nesterov momentum 0.9, its "
        "paper's values). Merging (alpha 0.1, 4 donors) ends after 52 % of the run as in the "
        "paper's 1B model on 50 billion tokens, but every round, for the paper's every 300 steps "
        "would be never.\n"
    )
    if pilot:
        yield (
            f"The rate comes from a pilot, one run at each of {len(PILOT_RATES)} rates with seed "
            f"{PILOT_SEED}, which no other run has:\n"
        )
        yield _pilot(pilot)
    if "spes-again" in results:
        yield _repeated(results)


def _pilot(pilot: Sequence[Trial]) -> str:
    losses = {(trial.arm, trial.learning_rate): trial.loss for trial in pilot}
    rates = sorted({rate for _, rate in losses})
    rows = []
    for name in dict.fromkeys(arm for arm, _ in losses):
        best = min(losses[name, rate] for rate in rates)
        found = [losses[name, rate] for rate in rates]
        rows.append((name, *(f"**{x:.3f}**" if x == best else f"{x:.3f}" for x in found)))
    return table(("", *(f"rate {rate}" for rate in rates)), rows)


def _repeated(results: Results) -> str:
    (again,) = results["spes-again"].trials
    first = next(trial for trial in results["spes"].trials if trial.seed == again.seed)
    same = first.model_sha256 == again.model_sha256
    return (
        f"SPES with seed {again.seed} was run twice: the models are "
        f"{'the same, bit for bit' if same else 'NOT the same'} "
        f"(`{first.model_sha256[:12]}` and `{again.model_sha256[:12]}`).\n"
    )


def _limits(results: Results) -> Iterator[str]:
    num_seeds = results[BASELINE].loss.num_seeds
    yield "## What this cannot say\n"
    yield (
        f"- {num_seeds} seeds are few. Beyond two standard errors lie 12 of 100 comparisons of "
        "arms that do not differ, and there are more than a dozen on this page: one of them may "
        "be chance. What is not told apart may differ by less than the seeds do.\n"
        "- The runs are short: models are still learning fast when they end, so an algorithm that "
        "starts slowly is at a disadvantage, and DiLoCo's momentum has few rounds to act in.\n"
        "- One rate for all. An algorithm may have a better one between those of the pilot.\n"
        "- All peers draw from the same text. Where members' data differ, averaging costs more.\n"
        "- Time is not compared: the machine did other work.\n"
    )


def _raw(results: Results, pilot: Sequence[Trial]) -> Iterator[str]:
    trials = (*results.trials, *pilot)
    commits = sorted({trial.commit[:12] for trial in trials})
    versions = sorted({f"{k} {v}" for trial in trials for k, v in trial.versions.items()})
    minutes = sum(trial.cpu_seconds for trial in trials) / SECONDS_A_MINUTE
    data = {(trial.data["fingerprint"], trial.data["heldOutTokens"]) for trial in trials}
    yield "## Raw data\n"
    yield (
        "One JSON a run: the job, the curve, bytes, memory, the model's hash, the commit. "
        f"{len(results.trials)} runs in [`science/runs`](science/runs), {len(pilot)} of the pilot "
        f"in [`science/pilot`](science/pilot); {minutes:.0f} minutes of CPU in all, at commit "
        f"{', '.join(f'`{commit}`' for commit in commits)}, with {', '.join(versions)}. "
        f"{'One text' if len(data) == 1 else f'{len(data)} texts'} in all runs "
        f"({', '.join(f'`{fingerprint[:12]}`' for fingerprint, _ in sorted(data))}), which differs "
        "with the version of Python.\n\n"
        "`make science` makes the runs whose file is missing and writes this page; "
        "`python tests/bench/science --page` writes the page alone; `--quick` makes a few short "
        "runs and prints the tables.\n"
    )
