"""`spes`: train a job on this machine, or look after the jobs and members of a hub.

Only the modules of this package read the environment and write to the terminal. Exit codes: 0 done,
1 failed, 2 the user can fix it, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence

from spes_api.terminal import interrupted

# Of `spes --help`.
DESCRIPTION = __doc__.splitlines()[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a Ctrl-C ends it in one line, also while its modules are imported."""
    try:
        from spes_operator.cli.commands import run

        return run(arguments)
    except KeyboardInterrupt:
        return interrupted("spes")
