"""A tag is a release only if the project, the chart and the changelog have its version."""

import subprocess
import sys

import pytest
from builders.doc_pages import ROOT

CHANGELOG = """# Changelog

## [Unreleased]

### Added
- later

## [1.2.0] - 2026-01-01

### Added
- a thing

## [1.1.0] - 2025-01-01

- older
"""


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "helm/spes").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    chart = 'apiVersion: v2\nversion: 1.2.0\nappVersion: "1.2.0"\n'
    (tmp_path / "helm/spes/Chart.yaml").write_text(chart)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def notes(tag, root):
    return subprocess.run(
        [sys.executable, str(ROOT / "hack/release/notes.py"), tag, "--root", str(root)],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


def test_notes_are_that_versions_part_of_the_changelog(tree):
    ran = notes("v1.2.0", tree)
    assert (ran.returncode, ran.stdout) == (0, "### Added\n- a thing\n")


@pytest.mark.parametrize(
    ("tag", "words"),
    [
        ("v1.1.0", "pyproject.toml project.version must be 1.1.0, as the tag says (got 1.2.0)"),
        ("v1.1.0", "helm/spes/Chart.yaml appVersion must be 1.1.0"),
        ("v1.3.0", "CHANGELOG.md must have a section [1.3.0]"),
        ("1.2.0", "must be v1.2.3 or v1.2.3-rc.1 (got '1.2.0')"),
    ],
)
def test_a_tag_of_another_version_is_refused(tree, tag, words):
    ran = notes(tag, tree)
    assert ran.returncode == 2
    assert words in ran.stderr
    assert not ran.stdout
