"""`spes run`: its options, the environment of what it starts, and what it says at the end."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from spes_api.exit_codes import DONE, INTERRUPTED
from spes_api.terminal import complain

from spes_operator.cli.closing import closing_words
from spes_operator.display import ProgressLine, WhileWatched, open_display, silence
from spes_operator.errors import ConfigError, SpesError
from spes_operator.local.data_look import TrainersLook
from spes_operator.local.finale import compare_alone, write_sample, write_unigram
from spes_operator.local.machine import TRAINER, Machine
from spes_operator.local.prepare import Options, Prepared, prepare
from spes_operator.local.run import Interrupts, LocalRun, Outcome
from spes_operator.report import write_report

if TYPE_CHECKING:
    from spes_api.terminal import Commands, Parser

# What a process gets of this one's environment, besides PATH; everything else stays here.
_INHERITED = ("HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
# One peer alone takes about as long as the run; on a loaded machine a few times as long.
_ALONE_LIMIT = timedelta(hours=2)


def add_run(commands: Commands, common: Parser) -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "run", parents=[common], help="train a SpesJob over members on this machine"
    )
    option = parser.add_argument
    option("file", type=Path, nargs="?", metavar="FILE", help="the SpesJob")
    option("--members", type=Path, metavar="F", help="members file (default: four small ones)")
    option("--event", action="append", default=[], metavar="E", help=_EVENT_HELP)
    option("--data", type=Path, metavar="PATH", help="train on every file below PATH instead")
    option(
        "--dataset",
        type=_dataset,
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="where a dataset of the job lies; may be repeated",
    )
    option("--output", type=Path, metavar="DIR", help="folder of the run (default: runs/NAME)")
    option("--resume", type=Path, metavar="DIR", help="go on with an interrupted run")
    option("--compare-alone", action="store_true", help=_ALONE_HELP)
    option("--plain", action="store_true", help="print lines, no live screen")
    parser.set_defaults(act=_run)


_EVENT_HELP = (
    "MEMBER joins|leaves|preempted|crashes|killed @ round N, or @ N s, for example "
    "'uni-c preempted @ round 8'; may be repeated"
)
_ALONE_HELP = "afterwards train one peer alone on as many tokens as one had, and report its loss"


def _dataset(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"must be NAME=PATH (got {text!r})")
    return name, Path(path)


def _run(arguments: argparse.Namespace) -> int:
    machine = Machine(environment=_environment())
    _require_trainer(machine)
    prepared = prepare(
        Options(
            job=arguments.file,
            members=arguments.members,
            events=tuple(arguments.event),
            data=arguments.data,
            datasets=dict(arguments.dataset),
            output=arguments.output,
            resume=arguments.resume,
        ),
        TrainersLook(machine=machine),
    )
    for notice in prepared.notices:
        _say(notice)
    try:
        outcome = asyncio.run(_train(prepared, machine, plain=arguments.plain))
        if outcome is Outcome.INTERRUPTED:
            _say(f"saved; go on with: spes run --resume {prepared.folder.root}")
            return INTERRUPTED
        asyncio.run(_follow_up(prepared, machine))
        if arguments.compare_alone:
            asyncio.run(_compare_alone(prepared, machine, plain=arguments.plain))
    except asyncio.CancelledError:  # the training is done and saved
        return INTERRUPTED
    else:
        return DONE
    finally:
        _report(prepared)
        prepared.lock.release()


async def _train(prepared: Prepared, machine: Machine, *, plain: bool) -> Outcome:
    interrupts = Interrupts()
    _on_interrupt(interrupts.interrupt)
    with WhileWatched(open_display(plain=plain), sys.stdout) as display:
        return await LocalRun(prepared, machine, display).run(interrupts)


def _on_interrupt(act: Callable[[], object]) -> None:
    """Call `act` on Ctrl-C, on being asked to end, and when the terminal closes.

    Whoever has said that the terminal does not matter (nohup) is taken at their word.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number is signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, act)


async def _follow_up(prepared: Prepared, machine: Machine) -> None:
    """What the report is better with; its failure is told and harms nothing."""
    _cancel_on_interrupt()
    write_unigram(prepared.folder)
    try:
        await write_sample(prepared.folder, machine)
    except SpesError as error:
        complain("spes run", error)


async def _compare_alone(prepared: Prepared, machine: Machine, *, plain: bool) -> None:
    """Train one peer alone; as harmless as the rest of the follow-up."""
    _cancel_on_interrupt()
    _say("training one peer alone for comparison")
    try:
        with WhileWatched(ProgressLine(sys.stdout, plain=plain), sys.stdout) as line:
            await compare_alone(
                prepared.job, prepared.folder, machine, _ALONE_LIMIT, show=line.show
            )
    except SpesError as error:
        complain("spes run", error)


def _cancel_on_interrupt() -> None:
    task = asyncio.current_task()
    assert task is not None  # the caller's
    _on_interrupt(task.cancel)


def _report(prepared: Prepared) -> None:
    """Write the report of whatever the run came to, and say the most important of it."""
    for sentence in write_report(prepared.folder.root):
        _say(sentence)
    summary = json.loads((prepared.folder.root / "summary.json").read_bytes())
    if summary["rounds"]:
        _say(closing_words(summary, prepared.folder.root).rstrip())


def _require_trainer(machine: Machine) -> None:
    """What is started must be installed; torch is an extra.

    Raises:
        ConfigError: It is not.
    """
    for program in ("spes-sync", TRAINER):
        if shutil.which(program, path=machine.environment["PATH"]) is None:
            raise ConfigError(f"{program} is not installed beside spes; install SPES anew")
    if importlib.util.find_spec("torch") is None:
        raise ConfigError("training needs torch, which is missing; pip install 'spes[trainer]'")


def _environment() -> dict[str, str]:
    """PATH with this installation's programs first, and what programs need of a user's settings."""
    here = Path(sys.executable).parent
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {"PATH": f"{here}{os.pathsep}{os.environ.get('PATH', os.defpath)}", **inherited}


def _say(sentence: str) -> None:
    try:
        sys.stdout.write(f"{sentence}\n")
        sys.stdout.flush()
    except OSError:
        silence(sys.stdout)
