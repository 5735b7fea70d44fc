"""The chart as helm renders it."""

import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from spes_operator.k8s.api import JsonObject

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm/spes"
EXAMPLES = CHART / "examples"
# The API groups of Prometheus' operator.
MONITORING = "monitoring.coreos.com/v1"
# Far above the usual fraction of a second, for a loaded machine.
_SECONDS = 50
# Mode -> where its example is installed.
NAMESPACES: Mapping[str, str] = {"hub": "spes-system", "member": "spes", "both": "spes-system"}


class _AsGo(yaml.CSafeLoader):  # type: ignore[misc]  # the binding has no types
    """Takes 1e-06 for a number, as YAML 1.2 and Kubernetes do."""


_AsGo.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789")
)


class ChartRefusedError(Exception):
    """Helm does not render; holds what it says."""


def built_helm() -> Path:
    """The binary; without it the test is skipped, and in CI it fails."""
    found = subprocess.run(
        [sys.executable, str(ROOT / "hack/helm/build.py"), "--find"],
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    if found.returncode:
        message = "no helm binary; build it once with: python3 hack/helm/build.py"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return Path(found.stdout.strip())


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Renders."""

    helm: Path

    def render(
        self, mode: str, *values: str, namespace: str = "", apis: Iterable[str] = ()
    ) -> list[JsonObject]:
        """The objects of the mode's example; `values`: as `--set-json` takes them.

        Raises:
            ChartRefusedError: As helm says.
        """
        text = self.command(
            "template",
            *(f"--api-versions={api}" for api in apis),
            f"--namespace={namespace or NAMESPACES[mode]}",
            f"--values={EXAMPLES / mode}.yaml",
            *(f"--set-json={value}" for value in values),
        )
        return [document for document in yaml.load_all(text, _AsGo) if document]

    @functools.cache  # noqa: B019 - one chart a session
    def command(self, name: str, *arguments: str) -> str:
        """What `helm NAME` prints for the chart."""
        release = ["spes"] if name != "lint" else []
        ran = subprocess.run(
            [str(self.helm), name, *release, str(CHART), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
        if ran.returncode:
            raise ChartRefusedError(ran.stderr + ran.stdout)
        return ran.stdout


def only(objects: Iterable[JsonObject], kind: str, name: str) -> JsonObject:
    """The one object of that kind and name."""
    (found,) = [one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def pod_of(objects: Iterable[JsonObject], name: str) -> Any:
    """The pod's spec of a Deployment."""
    return only(objects, "Deployment", name)["spec"]["template"]["spec"]
