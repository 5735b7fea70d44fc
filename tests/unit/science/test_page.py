"""The verdicts, and how the page says them."""

from __future__ import annotations

import pytest
from bench.science.claims import Outcome, judge
from bench.science.findings import findings
from bench.science.page import write_page, write_tables
from bench.science.results import Results
from builders.trials import trial, trials


def outcomes(says: str, **losses: tuple[float, ...]) -> list[Outcome]:
    found = [
        each for arm, values in losses.items() for each in trials(arm.replace("_", "-"), *values)
    ]
    return [claim.outcome for claim in judge(Results.of(found)) if says in claim.says]


@pytest.mark.parametrize(
    ("merged", "outcome"),
    [
        ((1.8, 1.9, 2.0), Outcome.SHOWN),
        ((2.0, 2.1, 2.2), Outcome.NOT_SHOWN),
        ((2.3, 2.4, 2.5), Outcome.OPPOSITE),
    ],
)
def test_merging_is_shown_only_by_a_lower_loss(merged, outcome):
    assert outcomes("merging similar", spes=(2.0, 2.1, 2.2), spes_merge=merged) == [outcome]


def test_spes_that_ends_where_centralised_does_is_not_told_apart():
    same = {"spes_merge": (2.0, 2.1, 2.2), "centralised": (2.01, 2.1, 2.2)}
    assert outcomes("matches or outperforms centralised", **same) == [Outcome.NOT_SHOWN]


def test_catching_up_needs_a_gap_that_closes():
    """Straight lines from a common start to different ends only part."""
    losses = {"spes_merge": (2.4, 2.5, 2.6), "centralised": (2.0, 2.1, 2.2)}
    assert outcomes("catches up", **losses) == [Outcome.OPPOSITE]


def test_quality_that_falls_with_peers_is_what_the_paper_says():
    losses = {"spes_n2": (2.0, 2.0, 2.1), "spes_n8": (2.4, 2.4, 2.5)}
    assert outcomes("only its owner trains", **losses) == [Outcome.SHOWN]


def test_claims_whose_arms_are_missing_are_left_out():
    tested = [claim for claim in judge(Results.of([])) if claim.outcome is not Outcome.NOT_TESTED]
    assert tested == []


def test_tables_of_one_seed_have_no_errors():
    losses = {"centralised": 2.0, "spes": 2.1, "spes-merge": 2.1, "fedavg": 2.0, "diloco": 2.3}
    text = write_tables(Results.of(trial(arm, 0, loss) for arm, loss in losses.items()))
    assert "| Centralised | 2.000 |" in text
    assert "| SPES | 2.100 | +0.100 |" in text


@pytest.mark.parametrize(("again", "said"), [("a", "the same, bit for bit"), ("b", "NOT the same")])
def test_the_page_says_whether_a_repeated_run_gave_the_same_model(again, said):
    made = [
        *trials("centralised", 2.0, 2.1),
        *trials("spes", 2.0, 2.1),
        trial("spes-again", 0, 2.0, sha256=again * 64),
    ]
    assert said in write_page(Results.of(made), [])


def test_a_finding_gives_the_bytes_against_the_other_arm():
    made = Results.of([*trials("spes", 2.3, 2.3), *trials("fedavg", 2.2, 2.2)])
    (said,) = findings(made)
    assert said.endswith(
        "+0.100 ± 0.000, higher than FedAvg (by seed +0.100, +0.100), with 62.5 % of its bytes."
    )


def test_one_peer_has_no_bytes_to_compare():
    made = Results.of([*trials("alone", 2.4, 2.5), *trials("spes", 2.2, 2.3)])
    (said,) = findings(made)
    assert said.endswith("lower than one peer alone (by seed -0.200, -0.200).")
