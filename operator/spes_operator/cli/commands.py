"""The commands of `spes`, and how each of them ends. Imported by `main` when it is called."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from spes_api.exit_codes import FAILED, UNUSABLE
from spes_api.terminal import Parser, complain

from spes_operator.cli import DESCRIPTION
from spes_operator.cli.accept import add_accept, add_revoke
from spes_operator.cli.explain import add_explain
from spes_operator.cli.invite import add_invite
from spes_operator.cli.reassign import add_drain, add_reassign
from spes_operator.cli.run import add_run
from spes_operator.cli.status import add_status
from spes_operator.display import silence
from spes_operator.errors import ConfigError, SpesError
from spes_operator.report import report

if TYPE_CHECKING:
    from spes_api.terminal import Commands


def run(arguments: Sequence[str] | None = None) -> int:
    """Parse `arguments` (default: of the process), do it, answer the exit code."""
    if isinstance(sys.stdout, TextIOWrapper):  # a path may hold what its encoding does not
        sys.stdout.reconfigure(errors="backslashreplace")
    options = build_parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.DEBUG if options.verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    command = f"spes {options.command}"
    try:
        code: int = options.act(options)
    except ConfigError as error:
        complain(command, error)
        return UNUSABLE
    except SpesError as error:
        complain(command, error)
        return FAILED
    except BrokenPipeError:  # whoever read the output has seen enough
        silence(sys.stdout)
        return FAILED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        complain(command, f"{where}{error.strerror or error}")
        return FAILED
    return code


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options; `docs/reference/cli.md` is made from it."""
    parser = Parser(prog="spes", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"spes {version('spes')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = Parser(add_help=False)
    common.add_argument("-v", "--verbose", action="store_true", help="log every step to stderr")
    add_run(commands, common)
    add_explain(commands, common)
    _add_report(commands, common)
    for add in (add_status, add_invite, add_accept, add_revoke, add_drain, add_reassign):
        add(commands, common)
    return parser


def _add_report(
    commands: Commands,
    common: Parser,
) -> None:
    parser = commands.add_parser(
        "report", parents=[common], help="write report.html and summary.json of a run again"
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="the run's --output")
    parser.set_defaults(act=_report)


def _report(options: argparse.Namespace) -> int:
    return report(options.directory)
