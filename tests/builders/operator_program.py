"""`spes-operator` as a process of its own: started, killed, frozen and started again by tests."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from spes_operator.local import launch

_STOP_SECONDS = 30.0


class OperatorProgram:
    """One `spes-operator hub` or `member`; not started at first."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        """Its log is `folder`/`name`.log, over all its starts."""
        self._log = folder / f"{name}.log"
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it; it cannot outlive this process."""
        assert self._process is None
        program = Path(sys.executable).with_name("spes-operator")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", launch.__file__, str(os.getpid())),
                    *(str(program), *self._arguments),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def stop(self) -> int | None:
        """SIGTERM, and SIGKILL if it takes too long; its exit code. None if it does not run."""
        if self._process is None:
            return None
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            code = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process = None
        return code

    def kill(self) -> None:
        """SIGKILL; also reaps one that somebody else has killed."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    def freeze(self) -> None:
        """SIGSTOP: connections stay, nothing is said."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def log(self) -> str:
        """All it has written."""
        return self._log.read_text() if self._log.exists() else ""
