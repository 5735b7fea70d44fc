"""`report.html`: one safe file that stays small, whatever the run was like."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser

import pytest
from builders.finished_run import Stage, write_run
from spes_operator.report import report, write_report


class Balance(HTMLParser):
    """Checks that every element is closed in turn."""

    VOID = frozenset({"meta"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):  # noqa: ARG002 - the parser's signature
        self.seen.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):  # noqa: ARG002 - the parser's signature
        self.seen.add(tag)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    run_dir = write_run(tmp_path_factory.mktemp("runs") / "run")
    write_report(run_dir)
    return (run_dir / "report.html").read_text()


def test_the_tiles_fill_their_rows(page):
    columns = {int(number) for number in re.findall(r"\.tiles \{[^}]*repeat\((\d+),", page)}
    assert columns == {2, 4}
    assert page.count('class="tile"') % 4 == 0


def test_page_is_well_formed_and_has_no_scripts(page):
    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    assert balance.seen & {"script", "link", "iframe", "img", "object"} == set()


def test_page_points_nowhere_outside(page):
    assert not re.search(r"https?:|//\w|@import|\bsrc=", page)
    assert set(re.findall(r'(?:href=|url\()"?(.)', page)) <= {"#"}


def test_every_plot_is_there_in_the_colours_of_the_page(page):
    assert page.count("<svg ") == 6
    assert "var(--ink)" in page
    assert "#010203" not in page


def test_peer_has_one_colour_everywhere(page):
    assert page.count("background:#117352") == 2  # legend and table
    assert page.count("fill: #117352") > 2  # plots


def test_the_same_folder_gives_the_same_bytes(tmp_path, page):
    run_dir = write_run(tmp_path / "run")
    write_report(run_dir)
    assert (run_dir / "report.html").read_text() == page


def test_text_from_outside_is_escaped(tmp_path):
    run_dir = write_run(tmp_path / "run", rounds=2)
    evil = "<script>alert(1)</script>"
    cluster = json.loads((run_dir / "cluster.json").read_text())
    cluster["objects"][1]["object"]["message"] = evil
    (run_dir / "cluster.json").write_text(json.dumps(cluster))
    journal = run_dir / "sync" / "journal.jsonl"
    journal.write_text(journal.read_text().replace("uni-a.0", "<b>$x^{$"))
    (run_dir / "sample.txt").write_text(evil)

    write_report(run_dir)

    page = (run_dir / "report.html").read_text()
    assert "<script" not in page
    assert "<b>$" not in page
    assert page.count("&lt;script&gt;") == 2


def test_without_matplotlib_there_is_a_hint_and_a_summary(tmp_path, monkeypatch):
    run_dir = write_run(tmp_path / "run", rounds=2)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    (hint,) = write_report(run_dir)
    assert "pip install 'spes[report]'" in hint
    assert json.loads((run_dir / "summary.json").read_text())["rounds"] == 2
    assert "matplotlib is missing" in (run_dir / "report.html").read_text()


@pytest.mark.parametrize("rounds", [0, 1])
def test_hardly_begun_run_is_reported(tmp_path, rounds):
    run_dir = write_run(tmp_path / "run", rounds=rounds)
    assert report(run_dir) == 0
    assert ("No round was committed." in (run_dir / "report.html").read_text()) == (rounds == 0)


def test_folder_that_is_no_run_is_a_user_error(tmp_path, capsys):
    assert report(tmp_path) == 2
    assert "is not the folder of a run" in capsys.readouterr().err


def test_long_run_with_many_moves_stays_small(tmp_path):
    """1,000 rounds, all of 64 experts moving every 10 rounds: 1 MB at most; 2 without a limit."""
    peers = ["uni-a.0", "uni-b.0"]
    stages = tuple(
        Stage(
            first=1 + 10 * turn,
            epoch=turn + 1,
            owners={
                peer: f"{32 * place}-{32 * place + 31}"
                for place, peer in enumerate(peers[turn % 2 :] + peers[: turn % 2])
            },
            reason="turn",
        )
        for turn in range(100)
    )
    run_dir = write_run(tmp_path / "run", rounds=1000, stages=stages)
    write_report(run_dir)
    assert (run_dir / "report.html").stat().st_size < 1_000_000
