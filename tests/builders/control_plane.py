"""A real Kubernetes control plane as processes: etcd, kube-apiserver, kube-controller-manager.

No kubelet and no scheduler: Jobs and StatefulSets get their pods, which then wait for somebody to
play the node (`stand_in_kubelet`). RBAC is on. Everything lies in one folder, the logs too. The
processes end with `stop`, and also when the process that started them is killed.
"""

import contextlib
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from builders.control_plane_pki import ControlPlanePki
from builders.held_ports import HeldPort, HeldRange
from spes_operator.local import launch

_ROOT = Path(__file__).parents[2]
# Far above the usual 7 s, for a loaded machine; below a test's time limit, which hides the log.
START_SECONDS = 50.0
KUBECTL_SECONDS = 30.0
_POLL_SECONDS = 0.05
_LOG_LINES = 20
# A node that says nothing for so long is NotReady; 50 s by default.
_NODE_SILENCE = "12s"
_TOKEN_ISSUER = "https://kubernetes.default.svc.cluster.local"
# The defaults, less what needs nodes with volumes, a cloud, or kinds that SPES does not use.
_CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "disruption-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
    "validatingadmissionpolicy-status-controller",
)


class ControlPlaneError(Exception):
    """A process ended or did not answer in time; holds the end of its log."""


def find_binaries() -> Path | None:
    """The folder of the binaries; None if they are not built."""
    found = subprocess.run(
        [sys.executable, str(_ROOT / "hack/controlplane/build.py"), "--find"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return Path(found.stdout.strip()) if found.returncode == 0 else None


class ControlPlane:
    """One running control plane."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        """Start it; `wait` until it can be used."""
        self._binaries = binaries
        self.folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._etcd_port, self._port = HeldPort(), HeldPort()
        self._node_ports = HeldRange()
        self.url = f"https://127.0.0.1:{self._port.number}"
        self._pki = ControlPlanePki(folder / "pki")
        self._accounts_key = self._pki.service_account_key()
        self.ca_file = self._pki.ca_file
        self.server_certificate = self._pki.server()
        """Certificate and key of the API server; also for a door before it."""
        self.kubeconfig = self.kubeconfig_of("admin", ["system:masters"])
        self._start_etcd()
        self._start_api_server()

    def wait(self) -> Self:
        """Itself, once it serves and its controllers work.

        Raises:
            ControlPlaneError: It did not come up in time; nothing of it runs any more.
        """
        try:
            self._wait("kube-apiserver", "/readyz")
            self._start_controllers()
        except BaseException:
            self.stop()
            raise
        return self

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: object, _trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self.stop()

    def kubeconfig_of(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig of a user that the API server knows by certificate, with RBAC's rights."""
        return self._pki.kubeconfig(self.url, user, groups)

    def kubeconfig_with_token(self, user: str, token_file: Path, url: str = "") -> Path:
        """A kubeconfig that reads its bearer token from a file; `url`: of a door before it."""
        return self._pki.kubeconfig_with(url or self.url, user, {"tokenFile": str(token_file)})

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl prints, as cluster admin.

        Raises:
            subprocess.CalledProcessError: It failed; its stderr is a note of the error.
        """
        command = [str(self._binaries / "kubectl"), "--kubeconfig", str(self.kubeconfig)]
        try:
            return subprocess.run(
                [*command, f"--cache-dir={self.folder / 'kubectl'}", *arguments],
                input=stdin,
                capture_output=True,
                text=True,
                check=True,
                timeout=KUBECTL_SECONDS,
            ).stdout
        except subprocess.CalledProcessError as error:
            error.add_note(error.stderr)
            raise

    def start_api_server(self) -> None:
        """Start the API server again after `kill_api_server`: the port stays the same."""
        self._start_api_server()
        self._wait("kube-apiserver", "/readyz")

    def _start_api_server(self) -> None:
        certificate, key = self.server_certificate
        options = {
            "etcd-servers": f"http://127.0.0.1:{self._etcd_port.number}",
            "bind-address": "127.0.0.1",
            "secure-port": self._port.number,
            "permit-port-sharing": "true",
            "tls-cert-file": certificate,
            "tls-private-key-file": key,
            "client-ca-file": self.ca_file,
            "cert-dir": self.folder / "certificates",
            "service-account-key-file": self._accounts_key,
            "service-account-signing-key-file": self._accounts_key,
            "service-account-issuer": _TOKEN_ISSUER,
            "service-cluster-ip-range": "10.0.0.0/24",
            "service-node-port-range": self._node_ports.text,
            "authorization-mode": "RBAC",
            "endpoint-reconciler-type": "none",
            "profiling": "false",
        }
        self._start("kube-apiserver", options)

    def kill_api_server(self) -> None:
        """End the API server as a crash would; its clients see the connection break."""
        self._kill("kube-apiserver")

    def stop(self) -> None:
        """End and reap every process; a second call does nothing."""
        for name in reversed(list(self._processes)):
            self._kill(name)
        self._etcd_port.release()
        self._port.release()
        self._node_ports.release()

    def logs(self) -> str:
        """The last lines of every process."""
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text().splitlines()[-_LOG_LINES:])
            for path in sorted(self.folder.glob("*.log"))
        )

    def _start_etcd(self) -> None:
        url = f"http://127.0.0.1:{self._etcd_port.number}"
        options = {
            "data-dir": self.folder / "etcd",
            "listen-client-urls": url,
            "advertise-client-urls": url,
            "listen-peer-urls": "http://127.0.0.1:0",  # it has no peers
            "socket-reuse-port": "true",
            "unsafe-no-fsync": "true",
            "log-level": "error",
        }
        self._start("etcd", options)

    def _start_controllers(self) -> None:
        manager = "system:kube-controller-manager"
        options = {
            "kubeconfig": self.kubeconfig_of(manager),
            "use-service-account-credentials": "true",
            "service-account-private-key-file": self._accounts_key,
            "root-ca-file": self.ca_file,
            "leader-elect": "false",
            "node-monitor-period": "1s",
            "node-monitor-grace-period": _NODE_SILENCE,
            "secure-port": 0,
            "controllers": ",".join(_CONTROLLERS),
        }
        self._start("kube-controller-manager", options)
        self._wait("kube-controller-manager", "/api/v1/namespaces/default/serviceaccounts/default")

    def _start(self, name: str, options: dict[str, object]) -> None:
        """Start a binary that cannot outlive this process; its output goes to <name>.log."""
        # It ends with the thread that started it.
        assert threading.current_thread() is threading.main_thread()
        command = [str(self._binaries / name), *(f"--{k}={v}" for k, v in options.items())]
        launcher = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid())]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*launcher, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        process.wait()

    def _wait(self, name: str, path: str) -> None:
        """Poll until GET `path` answers 200 to the admin."""
        tls = ssl.create_default_context(cafile=str(self.ca_file))
        tls.load_cert_chain(
            self.ca_file.with_name("admin.crt"), self.ca_file.with_name("admin.key")
        )
        deadline = time.monotonic() + START_SECONDS
        while not _answers(self.url + path, tls):
            if (status := self._processes[name].poll()) is not None:
                raise ControlPlaneError(f"{name} ended (exit status {status})\n{self.logs()}")
            if time.monotonic() > deadline:
                raise ControlPlaneError(f"{name} is not ready in time\n{self.logs()}")
            time.sleep(_POLL_SECONDS)


def _answers(url: str, tls: ssl.SSLContext) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5, context=tls) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
