"""What `spes explain` prints, and what it refuses."""

import json
from pathlib import Path

import pytest
from spes_api.errors import ConfigError
from spes_operator.cli.explain import explain, size

EXAMPLES = Path(__file__).parents[3] / "examples"
MEMBERS = EXAMPLES / "members.yaml"


def printed(capsys, job, members=None, output="text"):
    assert explain(EXAMPLES / job, members, output) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("moe-*.yaml")), ids=lambda path: path.stem)
def test_every_example_can_be_explained(path, capsys):
    assert path.stem in printed(capsys, path.name)


def test_moe_7b_shows_both_units(capsys):
    text = printed(capsys, "moe-7b.yaml")
    for figure in ("10.006 GB", "9.771", "29.333 GB", "28.646", "65.9% less"):
        assert figure in text


def test_a_push_longer_than_the_grace_period_is_marked(tmp_path, capsys):
    job = tmp_path / "job.yaml"
    text = (EXAMPLES / "moe-7b.yaml").read_text()
    job.write_text(text.replace("gracePeriodSeconds: 1200", "gracePeriodSeconds: 120"))
    assert explain(job, None, "text") == 0
    shown = capsys.readouterr().out
    assert "1,000.6 s, too long" in shown
    assert "100.1 s, too long" not in shown


def test_the_members_example_gets_places_and_reasons(capsys):
    text = printed(capsys, "moe-tiny.yaml", MEMBERS)
    assert "uni-a.0 owns 3 of 8 experts: its share by speed is 2.29, its memory holds 8" in text
    assert "8 experts" in text
    assert "had no owner" not in text


def test_json_holds_bytes_for_programs(capsys):
    told = json.loads(printed(capsys, "moe-7b.yaml", output="json"))
    (peer,) = told["peers"]
    assert (peer["peers"], peer["experts"]) == (4, 8)
    assert (peer["upBytes"], peer["upPaperGB"]) == (10_005_798_912, 9.771)
    assert (told["round"]["fullBytes"], told["round"]["fullPaperGB"]) == (29_333_151_744, 28.646)
    assert peer["uplinkSaving"] == pytest.approx(0.6589)


def test_unequal_shares_get_a_row_each(tmp_path, capsys):
    job = tmp_path / "job.yaml"
    text = (EXAMPLES / "moe-tiny.yaml").read_text()
    job.write_text(text.replace("max: 4", "max: 3"))
    assert explain(job, None, "json") == 0
    rows = json.loads(capsys.readouterr().out)["peers"]
    assert [(row["peer"], row["experts"]) for row in rows] == [
        ("each of 2 peers", 3),
        ("1 peer", 2),
    ]


def test_experts_that_no_memory_covers_are_refused_with_the_numbers(tmp_path):
    members = tmp_path / "members.yaml"
    members.write_text(
        "members: [{name: a, slots: [{memory: 34Mi, activation: 16Mi},"
        " {memory: 34Mi, activation: 16Mi}]}]"
    )
    with pytest.raises(ConfigError) as caught:
        explain(EXAMPLES / "moe-tiny.yaml", members, "text")
    assert str(caught.value) == (
        f"{members}: 8 experts need an owner, but the peers have memory for 4 (a.0 2, a.1 2); "
        "add members or memory, or take a smaller model"
    )


def test_members_too_small_for_the_model_are_refused_with_the_numbers():
    with pytest.raises(ConfigError, match="0 of 4 selected peers") as caught:
        explain(EXAMPLES / "moe-1b.yaml", MEMBERS, "text")
    assert "uni-a.0 has 0.050 of" in str(caught.value)


def test_a_selector_that_matches_nobody_is_refused(tmp_path):
    job = tmp_path / "job.yaml"
    text = (EXAMPLES / "moe-tiny.yaml").read_text()
    job.write_text(text.replace("selector: {}", "selector: {region: north}"))
    with pytest.raises(ConfigError, match="0 of 0 selected peers"):
        explain(job, MEMBERS, "text")


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (10_005_798_912, "10.006 GB"),
        (999_999_999, "1,000.000 MB"),
        (2_372_096, "2.372 MB"),
        (512, "0.512 kB"),
        (157 * 10**12, "157.000 TB"),
    ],
)
def test_sizes_are_decimal(num_bytes, text):
    assert size(num_bytes) == text
