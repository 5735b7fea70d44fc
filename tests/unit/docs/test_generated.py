"""Pages that are generated are as their sources say."""

from builders.doc_pages import ROOT, Page
from builders.generated_files import check_generated


def test_reference_pages_are_fresh():
    check_generated("hack/docs/generate.py")


def test_every_command_has_its_section():
    anchors = Page(ROOT / "docs/reference/cli.md").anchors
    assert {"spes-run", "spes-operator-hub", "spes-sync-serve", "spes-trainer-train"} <= anchors


def test_defaults_are_those_of_a_cluster():
    page = (ROOT / "docs/reference/fields.md").read_text()
    assert "| `reassignAfterSeconds` | integer, at least 1, at most 31,536,000 | `180` |" in page
    assert "| `intervalSeconds` | integer, at least 1, at most 600 | `10` |" in page
