"""Start a command that cannot outlive the process that asked for it.

Run as a script, by path: `python -I -S launch.py PARENT_PID COMMAND...`; it replaces itself by the
command. A fresh process is used, not code between fork and exec: the parent has threads. Imports
nothing of SPES.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

# From <sys/prctl.h>: the kernel sends the process this signal when the thread that started it ends.
_PR_SET_PDEATHSIG = 1
# As shells do for a command that cannot be executed.
_CANNOT_EXECUTE = 126


def main() -> int:
    """Bind this process to its parent, then become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the line above took effect
        return _CANNOT_EXECUTE
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.stderr.write(f"cannot execute {command[0]}: {error.strerror}\n")
        return _CANNOT_EXECUTE


if __name__ == "__main__":
    sys.exit(main())
