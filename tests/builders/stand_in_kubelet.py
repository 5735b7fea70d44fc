"""The stand-in kubelet of hack/kubelet as a process, for one control plane; orders go by socket."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import yaml
from builders.control_plane import ControlPlane
from spes_operator.k8s.api import JsonObject
from spes_operator.local import launch

_PROGRAM = Path(__file__).parents[2] / "hack/kubelet"
# Far above what each takes, for a loaded machine; an order may wait for pods to end.
_START_SECONDS = 50.0
_ORDER_SECONDS = 120.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.05


class StandInKubelet:
    """The nodes of one control plane."""

    def __init__(self, plane: ControlPlane, *nodes: dict[str, Any]) -> None:
        """Start to play `nodes`, each with `name`, `labels`, `capacity`; `wait` until it does."""
        self._folder = plane.folder / "nodes"
        self._folder.mkdir(exist_ok=True)
        (self._folder / "orders").unlink(missing_ok=True)
        file = self._folder / "nodes.yaml"
        file.write_text(yaml.safe_dump(list(nodes)))
        command = [sys.executable, str(_PROGRAM), "--kubeconfig", str(plane.kubeconfig)]
        command += ["--dir", str(self._folder), "--nodes", str(file), "--env", "OMP_NUM_THREADS=1"]
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"
        with (self._folder / "kubelet.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), *command],
                env={"PATH": programs, "HOME": str(self._folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait(self) -> Self:
        """Itself, once its nodes are there and it takes orders."""
        deadline = time.monotonic() + _START_SECONDS
        while not (self._folder / "orders").exists():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(_POLL_SECONDS)
        return self

    def stop(self) -> None:
        """End it and every pod's process; a second call does nothing."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self, namespace: str, pod: str) -> None:
        """SIGKILL to a pod's processes."""
        self._order(order="kill", namespace=namespace, pod=pod)

    def pause(self, namespace: str, pod: str) -> None:
        """SIGSTOP to a pod's processes: connections stay, nothing is said."""
        self._order(order="pause", namespace=namespace, pod=pod)

    def resume(self, namespace: str, pod: str) -> None:
        """SIGCONT to them."""
        self._order(order="resume", namespace=namespace, pod=pod)

    def lose(self, node: str) -> None:
        """A node's power goes."""
        self._order(order="lose", node=node)

    def shut_down(self, node: str) -> None:
        """A node is taken away with notice; answers when its pods have ended."""
        self._order(order="shutdown", node=node)

    def start(self, node: str) -> None:
        """A node is there again."""
        self._order(order="start", node=node)

    def cut(self, namespace: str, service: str) -> None:
        """Break what passes a NodePort, and let nothing through until `mend`."""
        self._order(order="cut", namespace=namespace, service=service)

    def mend(self, namespace: str, service: str) -> None:
        """Let connections through again."""
        self._order(order="mend", namespace=namespace, service=service)

    def folder(self, namespace: str, pod: str) -> Path:
        """Where the newest pod of that name lies: `root`, `log`."""
        folders = list((self._folder / "pods").glob(f"{namespace}_{pod}_*"))
        return max(folders, key=lambda path: path.stat().st_ctime_ns)

    def claim(self, claim: JsonObject) -> Path:
        """The folder of a volume claim."""
        return self._folder / "claims" / str(claim["metadata"]["uid"])

    def output(self, namespace: str, pod: str) -> str:
        """What the newest pod of that name has printed; nothing if there was none."""
        try:
            return (self.folder(namespace, pod) / "log").read_text()
        except (FileNotFoundError, ValueError):
            return ""

    def log(self) -> str:
        """The program's own log."""
        return (self._folder / "kubelet.log").read_text()

    def _order(self, **order: str) -> None:
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as line:
            line.settimeout(_ORDER_SECONDS)
            line.connect(str(self._folder / "orders"))
            line.sendall(json.dumps(order).encode() + b"\n")
            answer = json.loads(line.makefile().readline())
        if answer:
            raise ValueError(f"order {order} refused: {answer['error']}")
