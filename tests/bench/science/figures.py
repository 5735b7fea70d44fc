"""The page's figures as SVG. Needs matplotlib; the same results give the same bytes.

Colours are those of Okabe and Ito, which people who confuse red and green can tell apart; each line
has a marker of its own besides.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import matplotlib as mpl
from bench.science.design import EVERY_STEPS
from bench.science.results import BASELINE, Result, Results
from bench.science.wording import MEGABYTE
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullFormatter, ScalarFormatter

ALGORITHMS = (BASELINE, "spes", "spes-merge", "fedavg", "diloco")
BY_STEPS = ("spes", "spes-h20", "spes-h40")
BY_PEERS = (BASELINE, "spes-n2", "spes", "spes-n8")
_COLOURS = {
    BASELINE: "#000000",
    "spes": "#0072b2",
    "spes-merge": "#56b4e9",
    "fedavg": "#e69f00",
    "diloco": "#d55e00",
}
_OTHER = "#7a7a7a"
_MARKERS = dict(zip(ALGORITHMS, "osD^v", strict=True))
_STYLE = {
    "svg.hashsalt": "spes",
    "font.size": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#dddddd",
    "legend.frameon": False,
}
_LOSS = "held-out loss, nats per token"


def draw(results: Results) -> dict[str, str]:
    """File names and SVG; a figure whose arms were not all made is left out."""
    figures: tuple[tuple[str, tuple[str, ...], Callable[[Results], Figure]], ...] = (
        ("curves.svg", (BASELINE,), _curves),
        ("final.svg", (BASELINE,), _final),
        ("sweeps.svg", ("spes",), _sweeps),
        ("cost.svg", (BASELINE, "spes"), _cost),
    )
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]  # the stubs list no keys by name
        return {
            name: _svg(figure(results))
            for name, needed, figure in figures
            if all(arm in results for arm in needed)
        }


def _curves(results: Results) -> Figure:
    """Loss over tokens, without the start, which would flatten the rest; and its distance."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    central = results[BASELINE]
    points = central.points[1:]
    for result in results.present(*ALGORITHMS):
        name = result.arm.name
        losses = [result.loss_at(tokens) for tokens in points]
        means = [loss.mean for loss in losses]
        deviations = [loss.deviation or 0.0 for loss in losses]
        look = {"color": _COLOURS[name], "marker": _MARKERS[name], "markersize": 5}
        left.plot(points, means, label=result.arm.label, **look)
        _band(left, points, means, deviations, _COLOURS[name])
        gaps = [
            mean - central.loss_at(tokens).mean for tokens, mean in zip(points, means, strict=True)
        ]
        right.plot(points, gaps, **look)
        _band(right, points, gaps, deviations, _COLOURS[name])
    left.set_ylabel(_LOSS)
    left.legend()
    right.set_ylabel("the same, less that of Centralised")
    for axes in (left, right):
        axes.set_xlabel("tokens of all peers")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    return figure


def _band(
    axes: Axes,
    xs: Sequence[float],
    means: Sequence[float],
    deviations: Sequence[float],
    colour: str,
) -> None:
    low = [mean - deviation for mean, deviation in zip(means, deviations, strict=True)]
    high = [mean + deviation for mean, deviation in zip(means, deviations, strict=True)]
    axes.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)


def _final(results: Results) -> Figure:
    """Every run's last loss as a dot, an arm's mean as a stroke."""
    shown = [result for result in results.by_arm.values() if not result.arm.seeds]
    figure = Figure(figsize=(9, 0.9 + 0.3 * len(shown)), layout="constrained")
    axes = figure.subplots()
    for row, result in enumerate(shown):
        colour = _COLOURS.get(result.arm.name, _OTHER)
        losses = [trial.loss for trial in result.trials]
        axes.plot(losses, [row] * len(losses), "o", color=colour, markersize=6, alpha=0.7)
        axes.plot([result.loss.mean], [row], "|", color=colour, markersize=16, markeredgewidth=2)
    axes.axvline(results[BASELINE].loss.mean, color="black", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(shown)), [result.arm.label for result in shown])
    axes.invert_yaxis()
    axes.set_xlabel(_LOSS)
    return figure


def _sweeps(results: Results) -> Figure:
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _sweep(left, results.present(*BY_STEPS), lambda result: result.arm.every_steps)
    _sweep(right, results.present(*BY_PEERS), lambda result: result.arm.num_peers)
    left.set_xlabel("H, steps of a round (4 peers)")
    right.set_xlabel(f"peers (H = {EVERY_STEPS}); 1 is Centralised")
    left.set_ylabel(_LOSS)
    return figure


def _sweep(axes: Axes, arms: Sequence[Result], place: Callable[[Result], int]) -> None:
    places = [place(result) for result in arms]
    losses = [result.loss for result in arms]
    axes.errorbar(
        places,
        [loss.mean for loss in losses],
        yerr=[loss.deviation or 0.0 for loss in losses],
        color=_COLOURS["spes"],
        marker="s",
        capsize=4,
    )
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, [str(each) for each in places])
    axes.xaxis.set_minor_formatter(NullFormatter())


def _cost(results: Results) -> Figure:
    """What a peer moves in the whole run, and what that buys."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots()
    shown = [
        result
        for result in results.by_arm.values()
        if result.arm.num_peers > 1 and not result.arm.seeds
    ]
    for result in shown:
        name, place = result.arm.name, (result.run_bytes / MEGABYTE, result.loss.mean)
        axes.errorbar(
            *place,
            yerr=result.loss.deviation or 0.0,
            color=_COLOURS.get(name, _OTHER),
            marker=_MARKERS.get(name, "o"),
            capsize=3,
        )
        _label(axes, result, place)
    central = results[BASELINE].loss.mean
    axes.axhline(central, color="black", linewidth=0.8, linestyle="--")
    axes.annotate(
        results[BASELINE].arm.label,
        (0.01, central),
        (0, 3),
        axes.get_yaxis_transform(),
        "offset points",
        fontsize=9,
    )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel("megabytes that a peer sends and receives in the run")
    axes.set_ylabel(_LOSS)
    axes.margins(x=0.18)
    return figure


def _label(axes: Axes, result: Result, place: tuple[float, float]) -> None:
    """Beside the point; SPES has its neighbour with merging on the other side."""
    left = result.arm.name == "spes"
    axes.annotate(
        result.arm.label,
        place,
        (-7 if left else 7, 4),
        textcoords="offset points",
        ha="right" if left else "left",
        fontsize=9,
    )


def _svg(figure: Figure) -> str:
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()
