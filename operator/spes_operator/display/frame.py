"""One picture of a run for a terminal of a given size: from RunView to rich renderables.

Pure: the same view and size give the same picture. Every row takes one line, but for the sentences
about a held round and of events; peers and events are cut to the height, so the picture never
scrolls.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from spes_operator.display.event_lines import latest_events
from spes_operator.display.palette import marks
from spes_operator.display.peer_table import choose, peer_table
from spes_operator.display.strip import ownership_strip
from spes_operator.display.units import clock, count, printable, thin
from spes_operator.display.view import HeldOut, RunView

LABEL = 9  # columns before a row's value
_MIN_PEERS, _MIN_EVENT_LINES, _MAX_EVENT_LINES = 3, 3, 10
_ROWS = 8  # title, round, tokens, loss, table heads, two blanks, the line the cursor rests on
_ROWS_OF_PROBLEM = 4  # a hint of two lines and a blank among them
_BLOCKS = "▁▂▃▄▅▆▇█"
_SPARKLINE = 40  # columns


def frame(view: RunView, *, width: int, height: int) -> RenderableType:
    """Return the picture of `view`, `width` columns wide and at most `height` lines tall."""
    mark = marks(peer.peer for peer in view.peers)
    strip = ownership_strip(view.peers, view.num_experts, mark, width=width - LABEL)
    room = height - _ROWS - len(strip) - _ROWS_OF_PROBLEM * bool(view.problem)
    peers = choose(view.peers, lines=max(_MIN_PEERS, room - _MIN_EVENT_LINES))
    num_lines = max(_MIN_EVENT_LINES, min(_MAX_EVENT_LINES, room - peers.lines))
    return Group(
        _title(view),
        *_problem(view),
        row("round", _round(view)),
        row("tokens", _progress(view, width - LABEL)),
        row("loss", _loss(view.held_out)),
        *(row("" if i else "experts", line) for i, line in enumerate(strip)),
        Text(),
        peer_table(peers, mark, width=width),
        Text(),
        *latest_events(view.events, width=width, lines=num_lines),
    )


def sparkline(values: Sequence[float], *, width: int) -> str:
    """Return at most `width` blocks whose heights follow the values, highest value = full block."""
    shown = [values[i] for i in thin(len(values), width)]
    low, span = min(shown), max(shown) - min(shown)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round((value - low) / span * top) if span else 0] for value in shown)


def _title(view: RunView) -> Rule:
    title = Text.assemble(
        (printable(view.job), "bold"), f"  {printable(view.phase)}  ", clock(view.elapsed)
    )
    return Rule(title, style="dim", align="left")


def _problem(view: RunView) -> list[RenderableType]:
    if not view.problem:
        return []
    said = Text(f"! {printable(view.problem)}", style="bold red")
    hint = [Text(f"  {printable(view.hint)}")] if view.hint else []
    return [said, *hint, Text()]


def row(label: str, value: Text) -> Text:
    """Return one line: what it is about, and what there is to say."""
    line = Text.assemble((f"{label:<{LABEL}}", "dim"), value)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _round(view: RunView) -> Text:
    if not view.round:
        return Text("not begun")
    parts = [f"{view.round}"]
    placed = [peer for peer in view.peers if peer.experts]
    if view.deadline_in is not None:
        pushed = sum(1 for peer in view.peers if peer.pushed)
        parts.append(f"{pushed} of {len(placed)} pushed")
        parts.append(f"closes in at most {clock(view.deadline_in)}")
    parts.append(f"ownership epoch {view.epoch}")
    return Text.assemble((parts[0], "bold"), "".join(f"  {part}" for part in parts[1:]))


def _progress(view: RunView, width: int) -> Text:
    share = min(1.0, view.tokens / view.max_tokens)
    said = f"  {count(view.tokens)} of {count(view.max_tokens)}  {share:.0%}"
    if view.tokens_per_second and share < 1:
        left = timedelta(seconds=(view.max_tokens - view.tokens) / view.tokens_per_second)
        said += f"  {count(view.tokens_per_second)}/s  about {clock(left)} left"
    return bar(share, said, width=width)


def bar(share: float, said: str, *, width: int) -> Text:
    """Return a bar that is `share` full, and what it means."""
    columns = max(8, width - len(said))
    done = round(share * columns)
    return Text.assemble(("━" * done, "green"), ("─" * (columns - done), "dim"), said)


def _loss(held_out: Sequence[HeldOut]) -> Text:
    if not held_out:
        return Text("not evaluated yet", style="dim")
    first, last = held_out[0], held_out[-1]
    line = Text.assemble((f"{last.loss:.3f}", "bold"), f" held out, after round {last.version}  ")
    if len(held_out) > 1:
        line.append(sparkline([point.loss for point in held_out], width=_SPARKLINE), "cyan")
        line.append(f"  from {first.loss:.3f}", "dim")
    return line
