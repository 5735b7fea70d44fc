"""The one voice of all commands: what is wrong, in lines that begin with the command's name.

Called by the `cli` of every package.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, NoReturn

from spes_api.exit_codes import INTERRUPTED, UNUSABLE

if TYPE_CHECKING:
    # What sub-commands are added to.
    Commands = argparse._SubParsersAction["Parser"]


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the arguments. Sub-commands get one of these too."""

    def error(self, message: str) -> NoReturn:
        """End the process."""
        self.exit(UNUSABLE, f"{self.prog}: {message}; see {self.prog} --help\n")


def complain(command: str, text: object) -> None:
    """Say what is wrong, each line under the command's name."""
    sys.stderr.writelines(f"{command}: {line}\n" for line in str(text).splitlines())


def interrupted(command: str) -> int:
    """Answer a Ctrl-C that nothing else has answered; returns the exit code."""
    complain(command, "interrupted")
    return INTERRUPTED
