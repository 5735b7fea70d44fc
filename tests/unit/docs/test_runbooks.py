"""docs/runbooks has one entry for each reason of docs/reference/conditions.md, and no other."""

import re

import pytest
from builders.doc_pages import ROOT, Page, sections

RUNBOOKS = ROOT / "docs/runbooks"
BOOKS = [path for path in sorted(RUNBOOKS.glob("*.md")) if path.name != "alerts.md"]
PARTS = ("Means", "Look", "Do", "Worry")


def reasons():
    """First column of the tables of reasons; that page is compared with the code elsewhere."""
    found, inside = set(), False
    for line in (ROOT / "docs/reference/conditions.md").read_text().splitlines():
        inside = line.startswith("|") and (inside or line.startswith("| Reason"))
        if inside and (name := re.match(r"\| `(\w+)`", line)):
            found.add(name[1])
    return found


def entries(path):
    """Heading -> text of each entry: a heading that is nothing but reasons."""
    return {
        title: text
        for title, text in sections(Page(path), 3).items()
        if re.fullmatch(r"`\w+`(, `\w+`)*", title)
    }


def test_every_reason_has_one_entry_and_no_entry_is_without_reason():
    told = [name for path in BOOKS for title in entries(path) for name in re.findall(r"\w+", title)]
    assert sorted(told) == sorted(reasons())


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.name)
def test_an_entry_says_what_it_means_and_what_to_do(path):
    for title, text in entries(path).items():
        told = re.findall(r"^- \*\*(\w+)\.\*\*", text, re.M)
        assert tuple(told) == PARTS, title


def test_the_index_names_every_book():
    linked = set(Page(RUNBOOKS / "README.md").links)
    assert {path.name for path in RUNBOOKS.glob("*.md")} - linked == {"README.md"}
