"""`spes status` for people: from a view to rich renderables. Pure; knows no terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from spes_operator.display.event_lines import latest_events
from spes_operator.display.frame import LABEL, bar, row
from spes_operator.display.palette import Mark, chip, marks
from spes_operator.display.status_view import (
    DeletedView,
    JobRow,
    JobView,
    MemberRow,
    PeerRow,
    StatusView,
)
from spes_operator.display.strip import ownership_strip
from spes_operator.display.units import clock, compact, count, printable, ranges

_WARNING = "yellow"
# Lines of events: the screen is one, and what is older is told by kubectl.
_EVENT_LINES = 8
# In which nobody has to do anything.
_WELL = ("ready", "training", "starting", "done", "drained")


def status_screen(view: StatusView, *, now: datetime) -> RenderableType:
    """Return two tables, and below each what is wrong."""
    return Group(
        *(_jobs(view.jobs, now) if view.jobs else [Text("no jobs")]),
        Text(),
        *(_members(view.members, now) if view.members else [Text("no members")]),
        *_notes(view.notes),
    )


def job_screen(view: JobView, *, width: int, now: datetime) -> RenderableType:
    """Return one screen about one job."""
    mark = marks(peer.peer for peer in view.peers)
    return Group(
        _title(view.job, now),
        *_problems(view.job),
        row("round", _round(view.job)),
        row("tokens", _tokens(view.job, width - LABEL)),
        row("loss", _loss(view.job)),
        *(row("" if i else "experts", line) for i, line in enumerate(_experts(view, mark, width))),
        Text(),
        *(_peers(view.peers, mark) if view.peers else [Text("no peers yet")]),
        Text(),
        *(_members(view.members, now) if view.members else [Text("no members are selected")]),
        Text(),
        *latest_events(view.events, width=width, lines=_EVENT_LINES),
        *_notes(view.notes),
    )


def deleted_screen(view: DeletedView) -> RenderableType:
    """Return what is left of deleted jobs, each with what becomes of it."""
    lines: list[RenderableType] = []
    for job in view.deleted:
        lines.append(Text.assemble((printable(job.job), "bold"), (f"  {job.uid}", "dim")))
        lines += [
            Text(f"  trainer {printable(peer.peer)} is {peer.state}: {_fate(peer)}")
            for peer in job.peers
        ]
        for one in job.volumes:
            lines.append(Text(f"  volume {one.name} of {one.size} is kept; to remove it:"))
            lines.append(Text(f"    kubectl delete pvc -n {one.namespace} {one.name}"))
    return Group(*(lines or [Text("nothing is left of deleted jobs")]), *_notes(view.notes))


def _fate(peer: PeerRow) -> str:
    if peer.state == "silent":
        return "its member stops it when it is back"
    if peer.state in ("training", "draining"):
        return "it ends once its last push is in"
    return "its member stops it"


def _title(job: JobRow, now: datetime) -> Rule:
    name = Text.assemble((printable(job.name), "bold"), f"  {job.reason or 'new'}  ")
    age = f" for {clock(now - job.created)}" if job.created else ""
    return Rule(name.append(f"{job.namespace}{age}", "dim"), style="dim", align="left")


def _problems(job: JobRow) -> list[RenderableType]:
    """Why it is not ready, and what is missing while the rest goes on."""
    lines = []
    if job.ready != "True":
        lines.append(Text(f"! {printable(job.message)}", style="bold red"))
    if job.degraded and job.degraded != job.message:
        lines.append(Text(f"! {printable(job.degraded)}", style=_WARNING))
    return [*lines, Text()] if lines else []


def _round(job: JobRow) -> Text:
    line = Text(f"{job.round}" if job.round else "none yet", style="bold")
    line.append(f"  {job.peers_ready} of {job.peers_wanted} peers ready", "not bold")
    if job.ownership_epoch:
        line.append(f"  ownership epoch {job.ownership_epoch}", "not bold")
    return line


def _tokens(job: JobRow, width: int) -> Text:
    share = min(1.0, job.tokens / job.max_tokens) if job.max_tokens else 0.0
    said = f"  {count(job.tokens)} of {count(job.max_tokens)}  {share:.0%}"
    return bar(share, said, width=width)


def _loss(job: JobRow) -> Text:
    if job.loss is None:
        return Text("not evaluated yet", style="dim")
    return Text.assemble((f"{job.loss:.3f}", "bold"), " held out, nats per token")


def _experts(view: JobView, mark: Mapping[str, Mark], width: int) -> list[Text]:
    total = view.job.experts_total
    if view.replicated:
        return [Text(f"every peer trains all {total}")]
    if not view.job.ownership_epoch:
        return [Text("not placed yet", style="dim")]
    return ownership_strip(view.peers, total, mark, width=width - LABEL)


def _peers(peers: Sequence[PeerRow], mark: Mapping[str, Mark]) -> list[RenderableType]:
    table = _table("peer", "state", "experts", "restarts", "pod")
    for peer in peers:
        table.add_row(
            Text.assemble(_chip(mark[peer.peer]), f" {printable(peer.peer)}"),
            _state(peer.state),
            Text(ranges(peer.experts)),
            Text(str(peer.restarts)),
            Text(peer.pod or "-", style="dim"),
        )
    troubles = [
        Text.assemble(
            _chip(mark[peer.peer]),
            (f" ! {printable(peer.peer)}: {printable(peer.problem)}", _WARNING),
        )
        for peer in peers
        if peer.problem
    ]
    return [table, *troubles]


def _members(members: Sequence[MemberRow], now: datetime) -> list[RenderableType]:
    table = _table("member", "state", "slots", "GPUs", "jobs", "version", "last heartbeat")
    for member in members:
        table.add_row(
            Text(printable(member.name)),
            _state(member.state),
            *(Text(str(number)) for number in (member.slots, member.gpus, member.jobs)),
            Text(printable(member.version) or "-"),
            Text(_since(member.last_heartbeat, now, " ago")),
        )
    troubles = [
        Text(f"! {printable(member.name)}: {printable(member.problem)}", style=_WARNING)
        for member in members
        if member.problem
    ]
    return [table, *troubles]


def _jobs(jobs: Sequence[JobRow], now: datetime) -> list[RenderableType]:
    table = _table("job", "state", "peers", "experts", "round", "epoch", "tokens", "loss", "age")
    for job in jobs:
        table.add_row(
            Text(f"{job.namespace}/{job.name}"),
            Text(job.reason or "-", style="" if job.ready == "True" else _WARNING),
            Text(f"{job.peers_ready}/{job.peers_wanted}"),
            Text(f"{job.experts_owned}/{job.experts_total}"),
            Text(str(job.round)),
            Text(str(job.ownership_epoch)),
            Text(compact(job.tokens)),
            Text("-" if job.loss is None else f"{job.loss:.3f}"),
            Text(_since(job.created, now)),
        )
    troubles = [
        Text(f"! {job.namespace}/{job.name}: {printable(words)}", style=_WARNING)
        for job in jobs
        if (words := job.degraded if job.ready == "True" else job.message)
    ]
    return [table, *troubles]


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in (first, *others):
        table.add_column(name, no_wrap=True)
    return table


def _state(state: str) -> Text:
    return Text(state, style="" if state in _WELL else _WARNING)


def _chip(mark: Mark) -> tuple[str, str]:
    return f" {mark.letter} ", chip(mark)


def _since(moment: datetime | None, now: datetime, ending: str = "") -> str:
    return "-" if moment is None else f"{clock(max(timedelta(), now - moment))}{ending}"


def _notes(notes: Sequence[str]) -> list[RenderableType]:
    return [Text(), *(Text(note, style=_WARNING) for note in notes)] if notes else []
