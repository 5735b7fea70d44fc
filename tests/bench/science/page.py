"""`docs/science.md` from the trials alone. Pure: the same trials give the same text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from bench.science.claims import Outcome, judge
from bench.science.design import (
    ARMS,
    EVALUATION_STEPS,
    HELD_OUT_TOKENS,
    LEARNING_RATE,
    MICRO_BATCH_TOKENS,
    PILOT_EVERY_STEPS,
    PILOT_SEED,
    PILOT_STEPS,
    SEQUENCE_TOKENS,
    STEP_TOKENS,
)
from bench.science.estimates import BEYOND
from bench.science.findings import findings
from bench.science.results import BASELINE, Results
from bench.science.tables import tables
from bench.science.trials import Trial
from bench.science.wording import table

SECONDS_A_MINUTE = 60


def write_page(results: Results, pilot: Sequence[Trial]) -> str:
    """The page; a table has those of its arms that were made."""
    parts = (
        _opening(results),
        *_answers(results),
        *tables(results),
        *_method(results, pilot),
        *_limits(results),
        *_raw(results, pilot),
    )
    return "\n".join(parts)


def write_tables(results: Results) -> str:
    """Only the tables, for a terminal."""
    return "\n".join((*_answers(results), *tables(results)))


def _opening(results: Results) -> str:
    trial = results[BASELINE].trials[0]
    return (
        "# SPES and its rivals on the same tokens\n\n"
        "Made by `make science` from the runs in [`science/runs`](science/runs); do not edit. "
        f"{len(results.trials)} runs of `spes run`, each of {trial.tokens:,} tokens of all peers "
        "together (one peer alone: a quarter): a model of 1.8 million parameters (`moe-tiny`, 8 "
        "experts, 2 for a token) on the source code of Python's standard library. The paper is [SPES](https://arxiv.org/abs/"
        "2602.11543); its models have 1 to 9 billion parameters and 50 to 500 billion tokens. What "
        "does not show here may show there, and the other way round.\n"
    )


def _answers(results: Results) -> Iterator[str]:
    claims = judge(results)
    counted = Counter(claim.outcome for claim in claims)
    yield "## What the paper claims, and what shows here\n"
    yield (
        f"Of {len(claims)} claims {counted[Outcome.SHOWN]} show, {counted[Outcome.NOT_SHOWN]} do "
        f"not show, of {counted[Outcome.OPPOSITE]} the opposite shows, and "
        f"{counted[Outcome.NOT_TESTED]} are not tested. A loss is lower or higher only if the "
        f"difference is larger than {BEYOND:.0f} standard errors, which stand after ±; else the "
        "two are not told apart: neither the claim nor its opposite shows. Differences by seed "
        "are of runs with the same first weights and data. Losses are nats per token; lower is "
        "better.\n"
    )
    yield table(
        ("claim", "in the paper", "here", "at this scale"),
        [(claim.says, claim.where, claim.here, f"**{claim.outcome}**") for claim in claims],
        text=4,
    )
    beside = [f"- {finding}" for finding in findings(results)]
    if beside:
        yield "Beside the paper's claims:\n"
        yield "\n".join(beside) + "\n"


def _method(results: Results, pilot: Sequence[Trial]) -> Iterator[str]:
    trial = results[BASELINE].trials[0]
    seeds = ", ".join(str(each.seed) for each in results[BASELINE].trials)
    steps = trial.tokens // STEP_TOKENS
    schedule = trial.spec["training"]["schedule"]
    yield "## How\n"
    yield (
        "Every run is `spes run` of a job that [`design.py`](../tests/bench/science/design.py) "
        "writes: real sync server, real trainers, one process each. Held equal:\n\n"
        f"- **Tokens**: {trial.tokens:,} of all peers together, in {steps} optimizer steps of "
        f"{STEP_TOKENS:,}. N peers share out each step; Centralised is one peer that has the whole "
        f"of it. At most {MICRO_BATCH_TOKENS} tokens are in memory at once, whatever the batch.\n"
        f"- **Optimizer**: AdamW, peak rate {LEARNING_RATE}, warm-up over "
        f"{schedule['warmupTokens']:,} tokens, then cosine to a tenth; all else as in "
        "`examples/moe-tiny.yaml`.\n"
        f"- **Data**: sequences of {SEQUENCE_TOKENS} bytes; each is used once, by one peer. The "
        f"held-out set is the same {HELD_OUT_TOKENS:,} tokens in every run, evaluated every "
        f"{EVALUATION_STEPS} steps, or every round where that is longer, on the committed "
        f"model. Knowing only how often each byte occurs gives {trial.data['unigramLoss']:.3f}.\n"
        f"- **Seeds** {seeds}: each gives first weights and order of the data, the same for every "
        "arm.\n\n"
        "Not held equal: DiLoCo has its server's step (rate 0.7, Nesterov momentum 0.9, its "
        "paper's values). Merging (alpha 0.1, 4 donors) ends after 52 % of the run as in the "
        "paper's 1B model on 50 billion tokens, but takes place every round: every 300 steps, as "
        "in the paper, would be never.\n"
    )
    if pilot:
        yield (
            f"The rate comes from a pilot with seed {PILOT_SEED}, which no other run has, of "
            f"{PILOT_STEPS} steps in rounds of {PILOT_EVERY_STEPS}; the best of each row is bold:\n"
        )
        yield _pilot(pilot)
    if "spes-again" in results:
        yield _repeated(results)


def _pilot(pilot: Sequence[Trial]) -> str:
    losses = {(trial.arm, trial.learning_rate): trial.loss for trial in pilot}
    rates = sorted({rate for _, rate in losses})
    rows = []
    for name in dict.fromkeys(trial.arm for trial in pilot):
        row = [losses[name, rate] for rate in rates]
        marked = (f"**{loss:.3f}**" if loss == min(row) else f"{loss:.3f}" for loss in row)
        rows.append((ARMS[name].label, *marked))
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
        f"- {num_seeds} seeds are few. Of arms that do not differ, chance puts 12 to 18 of 100 "
        "comparisons beyond two standard errors (Student's t with 4 to 2 degrees of freedom), and "
        "this page has more than a dozen: one or two may be chance. What is not told apart may "
        "still differ.\n"
        "- The runs are short: the models still learn fast when they end. An algorithm that starts "
        "slowly is at a disadvantage, DiLoCo's momentum has few rounds to act in (its paper has "
        "rounds of 500 steps), and a round is a larger part of the run than in the paper.\n"
        "- One rate for all, the lowest of the pilot's: what did better with it there may do "
        "better still with one below it.\n"
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
