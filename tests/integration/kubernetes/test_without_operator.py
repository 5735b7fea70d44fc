"""Nothing of SPES outlives its operators: no finalizer, and namespaces end without them."""

import re
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
WORDS = re.compile(
    r"[\"']finalizers[\"']|\bfinalizers:|kopf\.(daemon|timer)|on\.(delete|create|update|resume)\("
)
DEADLINE_SECONDS = 60.0


def test_no_code_and_no_manifest_sets_a_finalizer():
    """Neither itself nor by handlers for which kopf would set one."""
    folders = ("operator", "crds", "helm")
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".yaml", ".tpl")
        for line in path.read_text().splitlines()
        if WORDS.search(line)
    ]
    assert found == []


def test_namespace_with_a_job_ends_while_no_operator_runs(hub_control_plane, namespace):
    """Also one whose job has a status and a server's objects."""
    job = yaml.safe_load((ROOT / "examples/moe-tiny.yaml").read_text())
    job["metadata"]["namespace"] = namespace
    plane = hub_control_plane
    plane.kubectl("create", "-f", "-", stdin=yaml.safe_dump(job))
    plane.kubectl("create", "configmap", "moe-tiny-ownership", "--namespace", namespace)
    plane.kubectl("delete", "namespace", namespace, "--wait=false")
    deadline = time.monotonic() + DEADLINE_SECONDS
    while exists(plane, namespace):
        assert time.monotonic() < deadline, plane.kubectl("get", "namespace", namespace, "-oyaml")
        time.sleep(0.2)


def exists(plane, namespace):
    return bool(plane.kubectl("get", "namespace", namespace, "--ignore-not-found").strip())
