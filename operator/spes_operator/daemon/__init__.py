"""`spes-operator`: the programs that run in clusters, one sub-command each.

Only the chosen program is imported. Exit codes: 0 ended as asked by SIGTERM, 1 failed, 2 the user
can fix it.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import signal
import sys
from collections.abc import Coroutine, Sequence
from importlib.metadata import version
from types import ModuleType
from typing import Any

from spes_api.exit_codes import DONE, FAILED, UNUSABLE
from spes_api.terminal import Parser, complain

from spes_operator.errors import ConfigError, SpesError

# Sub-command -> what it does. Its module of this package has `add_arguments` and `run`.
_PROGRAMS = {
    "hub": "decide who trains which expert, and drive the sync servers",
    "member": "run a member's trainers as the hub asks",
    "check": "see whether a member reaches its hub, and say what to do if not",
    "check-hub": "see whether a hub finds what it works with, and say what to do if not",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse `arguments` (default: of the process), run until SIGTERM, answer the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = build_parser(given).parse_args(given)
    logging.basicConfig(
        level=logging.DEBUG if options.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    program = _program(given)
    assert program is not None  # the parser has refused everything else
    try:
        asyncio.run(_until_told(program.run(options)))
    except ConfigError as error:
        complain(f"spes-operator {options.program}", error)
        return UNUSABLE
    except SpesError as error:
        complain(f"spes-operator {options.program}", error)
        return FAILED
    return DONE


def _program(given: Sequence[str]) -> ModuleType | None:
    name = given[0] if given else ""
    if name not in _PROGRAMS:
        return None
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")


def build_parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """All programs, with the options of the given one; `docs/reference/cli.md` is made of it."""
    program = _program(given)
    parser = Parser(prog="spes-operator", description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=f"spes {version('spes')}")
    commands = parser.add_subparsers(dest="program", required=True, metavar="PROGRAM")
    for name, text in _PROGRAMS.items():
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("-v", "--verbose", action="store_true", help="log every step")
        if program is not None and name == given[0]:
            program.add_arguments(command)
    return parser


async def _until_told(running: Coroutine[Any, Any, None]) -> None:
    """Run until it ends by itself, or until SIGTERM or SIGINT cancels it."""
    task = asyncio.ensure_future(running)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        logging.getLogger(__name__).info("ended as asked")
