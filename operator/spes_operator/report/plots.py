"""The plots of a report, as inline SVG. Needs matplotlib; deterministic.

However long the run, a line has at most `_MAX_POINTS` points and the ownership map one box per stay
of an expert with a peer, so a report stays small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter, MaxNLocator

from spes_operator.display.units import thin
from spes_operator.report.journal import PeerRound
from spes_operator.report.plot import Plot
from spes_operator.report.record import RunRecord
from spes_operator.report.stays import stays
from spes_operator.report.svg import INK, SIZE, page_style, to_svg

_MAX_POINTS = 400
_MAX_MARKED = 40  # points up to which each gets a dot
_LETTERED = 24  # experts up to which boxes carry letters
_MAX_LETTERS = 12  # lines up to which each gets a letter
_LETTER_SHARE = 0.06  # of an axis: the room that a letter takes


def draw_plots(run: RunRecord) -> tuple[Plot, ...]:
    """Return the plots; none if no round was committed."""
    if not run.journal.commits:
        return ()
    with page_style():
        owned = (_ownership(run),) if any(run.ownership.values()) else ()
        return (_loss(run), *owned, _rate(run), _traffic(run), _wait(run), _time(run))


def _loss(run: RunRecord) -> Plot:
    figure, axes = _axes("tokens of all peers", "loss, nats per token")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    tokens = {commit.round: commit.tokens for commit in run.journal.commits}
    _peer_lines(axes, run, lambda part: part.loss, xs=list(tokens.values()), from_zero=False)
    seen = [(tokens.get(at.version, 0), at.loss) for at in run.journal.evaluations]
    if seen:
        _line(axes, [x for x, _ in seen], [y for _, y in seen], color=INK, linewidth=2.4)
        axes.annotate("held out", seen[len(seen) // 6], (6, 4), textcoords="offset points")
    for name in ("uniform", "unigram", "alone"):
        value = getattr(run.baselines, name)
        if value is not None:
            axes.axhline(value, color=INK, linestyle=(0, (4, 3)), linewidth=1)
            said = f"{name} {value:.2f}"
            place = (0.99, value)
            axes.annotate(
                said, place, (0, 2), axes.get_yaxis_transform(), "offset points", ha="right"
            )
    return Plot(
        title="Loss",
        caption="Held-out loss of each committed version (thick) and training loss of each peer.",
        svg=to_svg(figure, label="Held-out and training loss over tokens"),
    )


def _ownership(run: RunRecord) -> Plot:
    figure, axes = _axes("round", "expert")
    boxes = stays(run.ownership)
    patches = [
        Rectangle((stay.first - 0.5, stay.expert - 0.43), stay.last - stay.first + 1, 0.86)
        for stay in boxes
    ]
    colours = [run.marks[stay.peer].colour for stay in boxes]
    axes.add_collection(PatchCollection(patches, facecolors=colours, edgecolors="none"))
    moved = [stay for stay in boxes if stay.moved]
    edges = [stay.first - 0.5 for stay in moved]
    lows, highs = [s.expert - 0.48 for s in moved], [s.expert + 0.48 for s in moved]
    axes.vlines(edges, lows, highs, color=INK, linewidth=2.2)
    first, last = min(run.ownership, default=0), max(run.ownership, default=1)
    if run.num_experts <= _LETTERED:
        for stay in boxes:
            if stay.last - stay.first + 1 >= (last - first + 1) * _LETTER_SHARE:
                middle = (stay.first + stay.last) / 2
                letter = run.marks[stay.peer].letter
                axes.text(
                    middle,
                    stay.expert,
                    letter,
                    color="#ffffff",
                    ha="center",
                    va="center",
                    clip_on=True,
                )
    axes.set_xlim(first - 0.5, last + 0.5)
    axes.set_ylim(run.num_experts - 0.5, -0.5)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.grid(visible=False)
    return Plot(
        title="Who owns which expert",
        caption="Colour and letter are the owner; an upright line marks a move.",
        svg=to_svg(figure, label="Owner of each expert over the rounds"),
    )


def _rate(run: RunRecord) -> Plot:
    figure, axes = _axes("round", "tokens/s")
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    totals = [
        sum(part.tokens_per_second for part in commit.peers) for commit in run.journal.commits
    ]
    rounds = [commit.round for commit in run.journal.commits]
    _line(axes, rounds, totals, color=INK, linewidth=2.4)
    axes.annotate("all", (rounds[-1], totals[-1]), (0, 6), textcoords="offset points", ha="right")
    _peer_lines(axes, run, lambda part: part.tokens_per_second)
    return Plot(
        title="Speed",
        caption="Tokens per second of training of each peer, and of all together (thick).",
        svg=to_svg(figure, label="Tokens per second over the rounds"),
    )


def _traffic(run: RunRecord) -> Plot:
    figure, axes = _axes("round", "bytes per round")
    axes.yaxis.set_major_formatter(EngFormatter(unit="B"))
    commits = run.journal.commits
    rounds = [commit.round for commit in commits]
    for name, line, counted in (
        ("down", "--", [sum(part.bytes_down for part in commit.peers) for commit in commits]),
        ("up", "-", [sum(part.bytes_up for part in commit.peers) for commit in commits]),
    ):
        _line(axes, rounds, counted, color=INK, linestyle=line)
        end = (rounds[-1], counted[-1])
        axes.annotate(name, end, (0, 6), textcoords="offset points", ha="right")
    axes.set_ylim(bottom=0)
    return Plot(
        title="Traffic",
        caption="Bytes that all peers together sent (up) and received (down) in each round.",
        svg=to_svg(figure, label="Bytes up and down over the rounds"),
    )


def _wait(run: RunRecord) -> Plot:
    figure, axes = _axes("round", "seconds waited")
    _peer_lines(axes, run, lambda part: part.wait_seconds)
    return Plot(
        title="Waiting",
        caption="How long each peer waited for the others after its push.",
        svg=to_svg(figure, label="Seconds each peer waited over the rounds"),
    )


def _time(run: RunRecord) -> Plot:
    figure, axes = _axes("round", "seconds")
    commits = run.journal.commits
    rounds = [commit.round for commit in commits]
    _line(axes, rounds, [commit.seconds for commit in commits], color=INK)
    axes.set_ylim(bottom=0)
    return Plot(
        title="Time of a round",
        caption="From the opening of a round to its commit.",
        svg=to_svg(figure, label="Seconds each round took"),
    )


def _axes(x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.margins(x=0)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    return figure, axes


def _line(axes: Axes, xs: Sequence[float], ys: Sequence[float], **style: Any) -> None:
    kept = thin(len(xs), _MAX_POINTS)
    if len(kept) <= _MAX_MARKED:
        style = {"marker": "o", "markersize": 2.6} | style
    axes.plot([xs[i] for i in kept], [ys[i] for i in kept], **style)


def _peer_lines(
    axes: Axes,
    run: RunRecord,
    value: Callable[[PeerRound], float | None],
    *,
    xs: Sequence[float] | None = None,
    from_zero: bool = True,
) -> None:
    """Draw a line per peer, broken where it took no part, with its letter at the end."""
    commits = run.journal.commits
    places = xs if xs is not None else [commit.round for commit in commits]
    series = {peer: [math.nan] * len(commits) for peer in run.peers}
    for place, commit in enumerate(commits):
        for part in commit.peers:
            number = value(part)
            series[part.peer][place] = math.nan if number is None else number
    ends: dict[str, tuple[float, float]] = {}
    for peer, ys in series.items():
        _line(axes, places, ys, color=run.marks[peer].colour)
        known = [place for place, y in enumerate(ys) if not math.isnan(y)]
        if known:
            ends[peer] = (places[known[-1]], ys[known[-1]])
    if from_zero:
        axes.set_ylim(bottom=0)
    _letter_ends(axes, run, ends)


def _letter_ends(axes: Axes, run: RunRecord, ends: Mapping[str, tuple[float, float]]) -> None:
    """Write each peer's letter beside the end of its line; those that would collide are spread."""
    if len(ends) > _MAX_LETTERS:
        return
    low, high = axes.get_ylim()
    gap = (high - low) * _LETTER_SHARE
    free: dict[float, float] = {}
    for peer, (x, y) in sorted(ends.items(), key=lambda end: end[1][1]):
        height = max(y, free.get(x, low))
        free[x] = height + gap
        mark = run.marks[peer]
        axes.annotate(
            mark.letter,
            (x, height),
            (4, 0),
            textcoords="offset points",
            color=mark.colour,
            va="center",
            weight="bold",
            annotation_clip=False,
        )
