"""The table of peers on the live screen. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spes_operator.display.palette import Mark, chip
from spes_operator.display.units import count, printable, ranges, size
from spes_operator.display.view import PeerView

_WARNING = "yellow"
# Room for the widest usual text, so that columns do not jump from picture to picture.
_NARROWEST = 80  # columns for which the widths below are made
_PEER_WIDTH, _EXPERTS_WIDTH = 14, 7
_STATE_WIDTH = len("training 10/10")
_NUMBERS = {"tok/s": 6, "loss": 5, "up": 7, "down": 7, "wait": 6}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The peers that there is room for, and those of them whose problem is told."""

    shown: tuple[PeerView, ...]
    troubled: tuple[PeerView, ...]
    num_more: int

    @property
    def lines(self) -> int:
        """How many lines they take, without the table's head."""
        return len(self.shown) + len(self.troubled) + bool(self.num_more)


def choose(peers: Sequence[PeerView], *, lines: int) -> Chosen:
    """Return as much about the peers as fits into so many lines."""
    shown = tuple(peers if len(peers) <= lines else peers[: lines - 1])
    num_more = len(peers) - len(shown)
    room = lines - len(shown) - bool(num_more)
    troubled = [peer for peer in shown if peer.problem]
    return Chosen(shown=shown, troubled=tuple(troubled[:room]), num_more=num_more)


def peer_table(chosen: Chosen, mark: Mapping[str, Mark], *, width: int) -> RenderableType:
    """Return one line per peer, then one per problem."""
    spare = max(0, width - _NARROWEST) // 2
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("peer", no_wrap=True, max_width=_PEER_WIDTH + spare)
    table.add_column("state", no_wrap=True, width=_STATE_WIDTH)
    table.add_column(
        "experts", no_wrap=True, min_width=_EXPERTS_WIDTH, max_width=_EXPERTS_WIDTH + spare
    )
    for head, columns in _NUMBERS.items():
        table.add_column(head, justify="right", no_wrap=True, min_width=columns)
    for peer in chosen.shown:
        table.add_row(*_cells(peer, mark[peer.peer]))
    more = [Text(f"and {chosen.num_more} more", style="dim")] if chosen.num_more else []
    troubles = [_trouble(peer, mark[peer.peer]) for peer in chosen.troubled]
    return Group(table, *more, *troubles)


def _cells(peer: PeerView, mark: Mark) -> list[Text]:
    active = bool(peer.experts)
    return [
        Text.assemble((f" {mark.letter} ", chip(mark)), f" {printable(peer.peer)}"),
        Text(_state(peer), style=_WARNING if peer.problem else "" if active else "dim"),
        Text(ranges(peer.experts)),
        Text(count(peer.tokens_per_second)),
        Text("-" if peer.loss is None else f"{peer.loss:.3f}"),
        Text(size(peer.bytes_up) if peer.bytes_up else "-"),
        Text(size(peer.bytes_down) if peer.bytes_down else "-"),
        Text(f"{peer.waited.total_seconds():.1f} s" if peer.waited else "-"),
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
