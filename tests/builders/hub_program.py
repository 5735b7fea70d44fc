"""`spes-operator hub` over a real API server, with the chart's rights, and its sync server by hand.

Where no kubelet is, `PlayedServer` is one: a real `spes-sync` at the address that it gives the pod.
"""

import base64
import itertools
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from builders.control_plane import ControlPlane
from builders.live_objects import LiveObjects
from builders.operator_program import OperatorProgram
from builders.rights import HUB, HUB_NAMESPACE, allow_jobs
from spes_operator.local import launch
from spes_operator.local.mounts import write_secret

_addresses = itertools.count(2)


class HubProgram:
    """One hub; its job namespaces are given."""

    def __init__(
        self, plane: ControlPlane, folder: Path, *namespaces: str, url: str = "", own: str = ""
    ) -> None:
        """Let it into the namespaces; its account has its rights already. Not started yet.

        Args:
            plane: The hub's.
            folder: For its settings and log.
            namespaces: Of jobs.
            url: Of a door before the API server.
            own: Namespace of its authorities; empty: the usual one.
        """
        self.folder = folder
        for namespace in namespaces:
            allow_jobs(plane, namespace)
        self.probe_port, self.metrics_port = free_port(), free_port()
        config = {
            "namespace": own or HUB_NAMESPACE,
            "jobNamespaces": list(namespaces),
            "images": {"trainer": "registry.example/trainer:1", "sync": "registry.example/sync:1"},
            "exposure": {"nodePort": {"externalHost": "127.0.0.1"}},
            "address": "127.0.0.1",
            "probePort": self.probe_port,
            "metricsPort": self.metrics_port,
        }
        self.config = folder / "hub.yaml"
        self.configure(config)
        self.settings = config
        arguments = ("--kubeconfig", str(HUB.kubeconfig(plane, url)), "--config", str(self.config))
        self.program = OperatorProgram(folder, "hub", "hub", *arguments)

    def configure(self, config: dict[str, object]) -> None:
        """Write its settings; read at its next start."""
        self.config.write_text(json.dumps(config))

    def metrics(self) -> dict[str, float]:
        """Series -> value; empty while it is not up."""
        text = _get(f"http://127.0.0.1:{self.metrics_port}/metrics")
        lines = [line for line in (text or "").splitlines() if not line.startswith("#")]
        return {series: float(value) for series, _, value in (one.rpartition(" ") for one in lines)}

    def is_alive(self) -> bool:
        """What a liveness probe sees."""
        return _get(f"http://127.0.0.1:{self.probe_port}/healthz") is not None

    def is_ready(self) -> bool:
        """What a readiness probe sees."""
        return _get(f"http://127.0.0.1:{self.metrics_port}/readyz") is not None

    def passes(self, kind: str, result: str = "ok") -> float:
        """How many passes of a kind ended so."""
        labels = f'kind="{kind}",result="{result}"'
        return self.metrics().get(f"spes_reconcile_duration_seconds_count{{{labels}}}", 0)


class PlayedServer:
    """The sync server of a job, run where no node runs its pod."""

    def __init__(self, live: LiveObjects, plane: ControlPlane, folder: Path) -> None:
        """Nothing runs yet."""
        self._live, self._plane, self._folder = live, plane, folder
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"127.{os.getpid() % 250 + 1}.{next(_addresses)}.9"

    def start(self, namespace: str, job: str) -> None:
        """Run it with the job's certificate, and say in the pod's status that it is ready."""
        secret = self._live.get("Secret", namespace, f"{job}-sync-tls")
        files = {name: base64.b64decode(text) for name, text in secret["data"].items()}
        write_secret(self._folder / "tls", files)
        program = Path(sys.executable).with_name("spes-sync")
        with (self._folder / "sync.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", launch.__file__, str(os.getpid())),
                    *(str(program), "serve", "--dir", str(self._folder / "sync")),
                    *("--tls", str(self._folder / "tls"), "--address", self.address),
                    *("--port", "7443", "--control-port", "7444"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.say(namespace, job, ready=True)

    def say(self, namespace: str, job: str, *, ready: bool, **status: object) -> None:
        """Write the pod's status, as a kubelet would."""
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        document = {"status": {"podIP": self.address, "conditions": [condition], **status}}
        arguments = ("--subresource=status", "--type=merge", "-p", json.dumps(document))
        self._plane.kubectl("patch", "pod", f"{job}-sync-0", "-n", namespace, *arguments)

    def stop(self) -> None:
        """End it, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _get(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None
