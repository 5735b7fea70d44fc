"""docs/reference/cli.md: every command and option, as the programs' own parsers have them. Pure.

Written from what the parsers hold, not from their `--help`, whose layout differs between Pythons.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

import spes_operator.cli.commands
import spes_operator.daemon
import spes_sync.cli
import spes_trainer.cli

_HEAD = """# Commands

Written by `hack/docs/generate.py` from the programs' own argument parsers. Every command has
`--help`. Exit codes of all of them: 0 done, 1 failed, 2 something that you can correct, 130
interrupted by Ctrl-C; of `spes-trainer train` also 75, told to stop and saved.

`spes` is for people. The other three run in pods, or are started by it; by hand they are of use
as the tables say.
"""
_DAEMONS = ("hub", "member", "check", "check-hub")


def cli_page() -> str:
    """The page."""
    return "\n".join([_HEAD, *_sections()])


def _sections() -> Iterator[str]:
    yield from _program(spes_operator.cli.commands.build_parser())
    daemons = {
        name: _commands(spes_operator.daemon.build_parser([name]))[name] for name in _DAEMONS
    }
    yield from _program(spes_operator.daemon.build_parser([]), daemons)
    yield from _program(spes_sync.cli.build_parser())
    yield from _program(spes_trainer.cli.build_parser())


def _program(
    parser: argparse.ArgumentParser, complete: Mapping[str, argparse.ArgumentParser] | None = None
) -> Iterator[str]:
    """A program and its commands; `complete`: commands that know all of their options."""
    yield f"## {parser.prog}\n\n{parser.description}\n"
    yield from _tables(parser)
    texts = {one.dest: one.help or "" for one in _choices(parser)._get_subactions()}
    for name, command in (complete or _commands(parser)).items():
        yield f"### {parser.prog} {name}\n\n{_sentence(texts[name])}\n"
        yield from _tables(command)


def _choices(
    parser: argparse.ArgumentParser,
) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    return next(
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )


def _commands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    return dict(_choices(parser).choices)


def _tables(parser: argparse.ArgumentParser) -> Iterator[str]:
    hidden = (argparse._SubParsersAction, argparse._HelpAction)
    shown = [action for action in parser._actions if not isinstance(action, hidden)]
    if not shown:
        return
    lines = ["| Argument | Default | What it is |", "|---|---|---|"]
    lines += [f"| {_usage(one)} | {_default(one)} | {_text(one)} |" for one in shown]
    yield "\n".join(lines) + "\n"


def _usage(action: argparse.Action) -> str:
    value = _value(action)
    if not action.option_strings:
        return f"`{value}`"
    return f"`{', '.join(action.option_strings)}{' ' + value if value else ''}`"


def _value(action: argparse.Action) -> str:
    """How the argument's value is written; empty: it has none."""
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        name = "|".join(map(str, action.choices))
    else:
        name = str(action.metavar or action.dest.upper())
    name = name.replace("|", "\\|")
    return f"[{name}]" if action.nargs == "?" else name


def _default(action: argparse.Action) -> str:
    if action.required and action.nargs != "?":
        return "needed"
    if action.default in (None, False, "", [], argparse.SUPPRESS):
        return ""
    return f"`{action.default}`"


def _text(action: argparse.Action) -> str:
    text = action.help or ""
    if "%(" in text:
        text %= vars(action)
    return text.replace("|", "\\|").replace("<", "&lt;")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
