"""A sync server as a process of its own, that can be killed at a named durable write."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from builders.sync_server import DEADLINE_SECONDS, Hub, eventually, hub_channel
from builders.tls import TestTls
from spes_proto.v1 import control_pb2_grpc
from spes_sync.server.server import Ports


@dataclass
class ServerProcess:
    """`spes-sync serve` on one directory; later processes take the ports of the first."""

    directory: Path
    tls: TestTls
    ports: Ports = field(default_factory=lambda: Ports(port=0, control_port=0, metrics_port=0))
    _process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.directory.with_suffix(".log")

    @property
    def address(self) -> str:
        return f"localhost:{self.ports.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def arguments(self) -> list[str]:
        return [
            *(sys.executable, "-m", "spes_sync.cli", "serve", "--dir", str(self.directory)),
            *("--tls", str(self.tls.directory), "--port", str(self.ports.port)),
            *("--control-port", str(self.ports.control_port)),
        ]

    def start(self, crash_after: str = "") -> None:
        """Start a process and wait until it serves, or until it has killed itself."""
        (self.directory / "ready.json").unlink(missing_ok=True)
        environment = {**os.environ, "SPES_SYNC_CRASH_AFTER": crash_after}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.arguments(), env=environment, stdout=log, stderr=log
            )
        process = self._process
        eventually(
            lambda: self._ready() or process.poll() is not None, "server is ready", seconds=60
        )

    def killed(self) -> bool:
        """Whether the process is dead by SIGKILL; fails if it ended otherwise."""
        assert self._process is not None
        code = self._process.poll()
        assert code in (None, -signal.SIGKILL), self.log.read_text()[-2000:]
        return code is not None

    def end(self) -> int:
        """SIGTERM, and the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(DEADLINE_SECONDS)

    def reap(self) -> None:
        """Make sure that nothing runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(DEADLINE_SECONDS)

    @contextmanager
    def hub(self) -> Iterator[Hub]:
        """A hub that speaks to whichever process is there."""
        with hub_channel(self.tls, self.ports.control_port) as channel:
            yield Hub(control_pb2_grpc.ControlStub(channel))

    def journal(self, event: str) -> list[dict]:
        lines = (self.directory / "journal.jsonl").read_text().splitlines()
        return [each for each in map(json.loads, lines) if each["event"] == event]

    def _ready(self) -> bool:
        path = self.directory / "ready.json"
        if not path.exists():
            return False
        said = json.loads(path.read_text())
        self.ports = Ports(
            port=said["port"], control_port=said["controlPort"], metrics_port=said["metricsPort"]
        )
        return True
