"""What `spes explain` prints, and what it refuses."""

import json
from pathlib import Path

import pytest
from spes_api.errors import ConfigError
from spes_operator.cli.estimate_text import size
from spes_operator.cli.explain import explain

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


def job_with(tmp_path, algorithm, *, peers=4):
    path = tmp_path / "job.yaml"
    text = (EXAMPLES / "moe-tiny.yaml").read_text()
    text = text.replace("algorithm: {name: SPES, weights: Uniform}", f"algorithm: {algorithm}")
    path.write_text(text.replace("min: 2, max: 4", f"min: {min(2, peers)}, max: {peers}"))
    return path


def explained(capsys, path, members=None):
    assert explain(path, members, "text") == 0
    return capsys.readouterr().out


def test_replicated_jobs_move_the_whole_model(tmp_path, capsys):
    text = explained(capsys, job_with(tmp_path, "{name: DiLoCo}"))
    assert "by 4 peers with DiLoCo" in text
    assert "Every peer sends and gets the whole model." in text
    assert "keeps a velocity of 7.091 MB beside every version" in text


def test_an_outer_step_without_momentum_keeps_nothing(tmp_path, capsys):
    text = explained(capsys, job_with(tmp_path, "{name: DiLoCo, outer: {momentum: 0}}"))
    assert "velocity" not in text


def test_merging_is_part_of_the_traffic(tmp_path, capsys):
    text = explained(capsys, job_with(tmp_path, "{merge: {everyRounds: 5}}"))
    assert "Experts are merged in 4 rounds; each gives 6.291 MB more" in text


def test_too_little_memory_for_all_experts_is_refused_with_the_numbers(tmp_path):
    short = r"all 8 experts, but 1 of 4 peers .*uni-b\.0 has 0\.042 of 0\.050 GB, uni-c\.0"
    with pytest.raises(ConfigError, match=short):
        explain(job_with(tmp_path, "{name: FedAvg}"), MEMBERS, "text")


def test_a_peer_that_trains_alone_needs_room_for_everything(tmp_path, capsys):
    path = job_with(tmp_path, "{name: Centralised}", peers=1)
    assert "uni-a.0" in explained(capsys, path, MEMBERS)
