"""The table of peers on the live screen. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spes_operator.display.palette import Mark, chip
from spes_operator.display.units import count, printable, ranges, size
from spes_operator.display.view import PeerView

_WARNING = "yellow"
# Room for the widest usual text, so that columns do not jump from picture to picture.
_STATE_WIDTH = len("training 10/10")
_NUMBERS = {"tok/s": 6, "loss": 5, "up": 7, "down": 7, "wait": 6}


def peer_table(
    peers: Sequence[PeerView], mark: Mapping[str, Mark], *, limit: int
) -> RenderableType:
    """Return one line per peer, at most `limit`, then one per peer in trouble."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("peer", no_wrap=True, min_width=11)
    table.add_column("state", no_wrap=True, min_width=_STATE_WIDTH)
    table.add_column("experts", no_wrap=True, min_width=7)
    for head, width in _NUMBERS.items():
        table.add_column(head, justify="right", no_wrap=True, min_width=width)
    for peer in peers[:limit]:
        table.add_row(*_cells(peer, mark[peer.peer]))
    troubles = [_trouble(peer, mark[peer.peer]) for peer in peers[:limit] if peer.problem]
    more = [Text(f"and {len(peers) - limit} more", style="dim")] if len(peers) > limit else []
    return Group(table, *more, *troubles)


def _cells(peer: PeerView, mark: Mark) -> list[Text]:
    active = bool(peer.experts)
    return [
        Text.assemble((f" {mark.letter} ", chip(mark)), f" {printable(peer.peer)}"),
        Text(_state(peer), style=_WARNING if peer.problem else "" if active else "dim"),
        Text(ranges(peer.experts)),
        Text(count(peer.tokens_per_second)),
        Text("-" if peer.loss is None else f"{peer.loss:.3f}"),
        Text(size(peer.bytes_up)),
        Text(size(peer.bytes_down)),
        Text(f"{peer.waited.total_seconds():.1f} s"),
    ]


def _state(peer: PeerView) -> str:
    state = printable(peer.state)
    if peer.steps_per_round is None or peer.pushed or not peer.step:
        return state
    return f"{state} {peer.step}/{peer.steps_per_round}"


def _trouble(peer: PeerView, mark: Mark) -> Text:
    line = Text.assemble(
        (f" {mark.letter} ", chip(mark)),
        (f" ! {printable(peer.peer)}: {printable(peer.problem)}", _WARNING),
    )
    line.no_wrap, line.overflow = True, "ellipsis"
    return line
