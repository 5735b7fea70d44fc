"""Workflows have few rights, pinned actions, time limits, and run what there is."""

import re
import subprocess

import pytest
import yaml
from builders.doc_commands import judge
from builders.doc_pages import ROOT, Page

PATHS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
WRITES = {
    ("release.yml", "image"): {"packages", "id-token"},
    ("release.yml", "chart"): {"packages", "id-token"},
    ("release.yml", "page"): {"contents"},
}


def jobs(path):
    return yaml.safe_load(path.read_text())["jobs"].items()


def scripts(path):
    return [step["run"] for _, job in jobs(path) for step in job.get("steps", ()) if "run" in step]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_actions_are_pinned_to_a_commit(path):
    used = re.findall(r"uses: (.*)$", path.read_text(), re.M)
    assert used
    for action in used:
        assert action.startswith("./") or PINNED.fullmatch(action), action


def test_one_version_of_each_action_is_used():
    used = set(re.findall(r"uses: (\S+@.*)$", "".join(map(str, map(read, PATHS))), re.M))
    names = [action.partition("@")[0] for action in used]
    assert sorted(set(names)) == sorted(names)


def read(path):
    return path.read_text()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_job_may_write_only_what_it_makes(path):
    whole = yaml.safe_load(path.read_text())
    assert set(whole["permissions"].values()) <= {"read"}
    for name, job in jobs(path):
        given = job.get("permissions", whole["permissions"])
        writes = {right for right, level in given.items() if level == "write"}
        assert writes == WRITES.get((path.name, name), set()), name


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_job_ends_in_time(path):
    for name, job in jobs(path):
        assert "uses" in job or job["timeout-minutes"] <= 120, name


def test_every_supported_version_of_kubernetes_is_played():
    called = dict(jobs(ROOT / ".github/workflows/e2e.yml"))
    for job in called.values():
        judge(f"make {job['with']['target']}", files=())
    nodes = called["every-version"]["strategy"]["matrix"]["node"]
    played = [
        re.fullmatch(r"kindest/node:v(1\.\d+)\.\d+@sha256:[0-9a-f]{64}", one)[1] for one in nodes
    ]
    page = Page(ROOT / "docs/guides/releases.md").text
    low, high = re.search(r"\| Kubernetes \| 1\.(\d+) to 1\.(\d+)", page).groups()
    assert played == [f"1.{minor}" for minor in range(int(low), int(high) + 1)]
    chart = yaml.safe_load((ROOT / "helm/spes/Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">=1.{low}.0-0"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_scripts_get_no_text_of_strangers(path):
    """An expression in a script is code; an environment variable is text."""
    assert not [script for script in scripts(path) if "${{" in script]
    assert "pull_request_target" not in path.read_text()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_command_that_fails_in_a_pipe_fails_the_step(path):
    """GitHub sets pipefail only where bash is named."""
    if any(re.search(r"[^|]\|[^|]", script) for script in scripts(path)):
        assert yaml.safe_load(path.read_text())["defaults"] == {"run": {"shell": "bash"}}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_push_does_not_end_what_a_timer_began(path):
    whole = yaml.safe_load(path.read_text())
    started_by = whole[True]  # "on", for YAML 1.1
    if "schedule" in started_by and whole["concurrency"]["cancel-in-progress"]:
        assert "${{ github.event_name }}" in whole["concurrency"]["group"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_scripts_are_shell_and_make_has_their_targets(path):
    for script in scripts(path):
        ran = subprocess.run(
            ["bash", "-n"], input=script, capture_output=True, text=True, check=False, timeout=20
        )
        assert ran.returncode == 0, ran.stderr
        for line in re.findall(r"^make [^$\n]*$", script, re.M):
            judge(line, files=())
        for name in re.findall(r"hack/[\w./-]+\.py", script):
            assert (ROOT / name).exists(), name
