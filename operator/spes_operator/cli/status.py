"""`spes status [JOB]`: jobs and members in two tables, or one job on one screen.

Reads the hub's objects with the rights of whoever asks; asks no sync server and no member.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import RenderableType

from spes_operator.cli.cluster import add_cluster_options, namespace_of, on_cluster
from spes_operator.cli.console import stdout_console
from spes_operator.cli.status_json import as_document
from spes_operator.cli.status_question import Question, View
from spes_operator.cli.status_watch import watch
from spes_operator.display.live import LiveScreen
from spes_operator.display.status_screen import deleted_screen, job_screen, status_screen
from spes_operator.display.status_view import DeletedView, StatusView
from spes_operator.errors import ConfigError

if TYPE_CHECKING:
    from spes_api.terminal import Commands, Parser

    from spes_operator.k8s.api import KubeApi


def add_status(commands: Commands, common: Parser) -> None:
    """Add `spes status`."""
    parser = commands.add_parser(
        "status", parents=[common], help="say how jobs and members are, and who owns what"
    )
    parser.add_argument("job", nargs="?", default="", metavar="JOB", help="only this SpesJob")
    parser.add_argument("--watch", action="store_true", help="show every change, until Ctrl-C")
    parser.add_argument(
        "--deleted", action="store_true", help="what is left of jobs that were deleted"
    )
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    add_cluster_options(parser, namespaced=True)
    parser.set_defaults(act=_status)


def _status(options: argparse.Namespace) -> int:
    if options.job and options.deleted:
        raise ConfigError("--deleted shows all deleted jobs; leave JOB out")
    namespace = namespace_of(options) if options.job else options.namespace or ""
    question = Question(job=options.job, namespace=namespace, deleted=options.deleted)
    say = _say_json if options.output == "json" else _say_text
    if not options.verbose:  # what a watch meets is told by a note in the picture itself
        logging.getLogger("spes_operator.k8s.follow").setLevel(logging.ERROR)
    if not options.watch:
        return on_cluster(options, lambda api: _once(api, question, say))
    if options.output == "text" and sys.stdout.isatty():
        return on_cluster(options, lambda api: _on_screen(api, question))
    return on_cluster(options, lambda api: watch(api, question, say))


async def _once(api: KubeApi, question: Question, say: Callable[[View], None]) -> int:
    say(await question.answer(api))
    return 0


async def _on_screen(api: KubeApi, question: Question) -> int:
    with LiveScreen(sys.stdout) as screen:

        def draw(view: View) -> None:
            screen.draw(lambda room: picture(view, room.width, _now()))

        return await watch(api, question, draw, redraws=True)


def picture(view: View, width: int, now: datetime) -> RenderableType:
    """What people see."""
    if isinstance(view, DeletedView):
        return deleted_screen(view)
    if isinstance(view, StatusView):
        return status_screen(view, now=now)
    events = tuple(replace(event, time=event.time.astimezone()) for event in view.events)
    return job_screen(replace(view, events=events), width=width, now=now)


def _say_text(view: View) -> None:
    console = stdout_console()
    console.print(picture(view, console.width, _now()))


def _say_json(view: View) -> None:
    sys.stdout.write(json.dumps(as_document(view)) + "\n")
    sys.stdout.flush()


def _now() -> datetime:
    return datetime.now(UTC)
