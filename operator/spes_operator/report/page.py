"""`report.html`: the run for people, one file without links or scripts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from spes_operator.display.units import clock, compact, count, ranges, size
from spes_operator.report.markup import Markup, Row, join, table, tag, text
from spes_operator.report.plot import Plot
from spes_operator.report.record import RunRecord
from spes_operator.report.story import Moment, moves_sentence, tell
from spes_operator.report.stylesheet import STYLESHEET

_MAX_ROWS = 400  # of one table: its first half and its last half are shown
_MAX_SAMPLE = 4000  # characters


def page(run: RunRecord, summary: Mapping[str, Any], plots: Sequence[Plot], *, hint: str) -> str:
    """Return the document.

    Args:
        run: What is known of the run.
        summary: The same as `summary.json` says.
        plots: The figures; none if they could not be drawn.
        hint: Why there are no figures; empty: nothing is wrong.
    """
    title = f"{run.name}: training report"
    body = join(
        [
            tag("h1", text(run.name)),
            tag("p", text(_subtitle(run, summary)), classes="soft"),
            _tiles(run, summary),
            _gaps([*run.gaps, *([hint] if hint else [])]),
            _plots(run, plots),
            _section("What happened", _story(run)),
            _section("Why experts moved", _decisions(run)),
            _section("Peers", _peers(run, summary)),
            _section("Refused pushes and joins", _refusals(run)),
            _section("Sample of the model's text", _sample(run)),
            _section("Fingerprints", _fingerprints(summary)),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLESHEET}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _section(title: str, content: Markup) -> Markup:
    return tag("section", tag("h2", text(title)), content) if content else content


def _subtitle(run: RunRecord, summary: Mapping[str, Any]) -> str:
    begun = f"{run.journal.start:%Y-%m-%d %H:%M} UTC" if run.journal.start else "not begun"
    model = summary["preset"] or "a model of its own shape"
    return f"{model}, seed {summary['seed']}, {begun}" if run.job else begun


def _tiles(run: RunRecord, summary: Mapping[str, Any]) -> Markup:
    loss = summary["heldOutLoss"]
    target = f"of {compact(run.job.spec.training.max_tokens)}" if run.job else ""
    pushed = sum(1 for peer in summary["peers"] if peer["rounds"])
    seconds = summary["seconds"]
    least = sum(bound for bound in _bounds(run) if bound is not None)
    tiles = [
        (_loss(loss["last"]), "held-out loss", f"from {_loss(loss['first'])}"),
        (compact(summary["tokens"]), "tokens", target),
        (count(summary["rounds"]), "rounds", ""),
        (clock(timedelta(seconds=seconds)), "time", ""),
        (count(summary["tokens"] / seconds if seconds else None), "tokens/s", "all in all"),
        (count(pushed), "peers", f"epoch {summary['epoch']}"),
        (count(len(run.moves)), "moves", f"at least {least}" if least else ""),
        (count(summary["refusals"]), "refusals", ""),
    ]
    return tag(
        "div",
        *(
            tag("div", tag("b", text(value)), text(name), tag("span", text(aside)), classes="tile")
            for value, name, aside in tiles
        ),
        classes="tiles",
    )


def _bounds(run: RunRecord) -> list[int | None]:
    """The bound of every change of ownership: its moves all carry the same."""
    return [next(moves).lower_bound for _, moves in groupby(run.moves, key=lambda m: m.epoch)]


def _gaps(gaps: Sequence[str]) -> Markup:
    if not gaps:
        return Markup("")
    return tag("div", *(tag("p", text(gap)) for gap in gaps), classes="gaps")


def _plots(run: RunRecord, plots: Sequence[Plot]) -> Markup:
    if not plots:
        return Markup("")
    legend = (tag("li", _mark(run, peer), Markup(" "), text(peer)) for peer in run.peers)
    figures = (
        tag(
            "figure",
            tag("h3", text(plot.title)),
            Markup(plot.svg),
            tag("figcaption", text(plot.caption)),
        )
        for plot in plots
    )
    return join(
        [
            tag("h2", text("Course")),
            tag("ul", *legend, classes="legend"),
            tag("div", *figures, classes="plots"),
        ]
    )


def _mark(run: RunRecord, peer: str) -> Markup:
    mark = run.marks[peer]
    return Markup(f'<span class="mark" style="background:{mark.colour}">{text(mark.letter)}</span>')


def _story(run: RunRecord) -> Markup:
    moments = tell(run)
    return _long_table(("time", "round", "what"), [_moment(run, moment) for moment in moments])


def _moment(run: RunRecord, moment: Moment) -> Row:
    cells = (_since(run, moment.time), text(moment.round or "-"), text(moment.text))
    return Row(cells, warning=moment.warning)


def _since(run: RunRecord, time: datetime) -> Markup:
    return text(clock(time - (run.journal.start or time)))


def _long_table(heads: Sequence[str], rows: list[Row]) -> Markup:
    if not rows:
        return Markup("")
    half = _MAX_ROWS // 2
    if len(rows) > _MAX_ROWS:
        left_out = f"{count(len(rows) - 2 * half)} more are left out here."
        filler = [text("…")] * (len(heads) - 1) + [text(left_out)]
        rows = [*rows[:half], Row(filler), *rows[-half:]]
    return table(heads, rows)


def _decisions(run: RunRecord) -> Markup:
    rows = []
    for epoch, group in groupby(run.moves, key=lambda move: move.epoch):
        moves = tuple(group)
        reasons = dict.fromkeys(move.reason for move in moves if move.reason)
        cells = (text(moves[0].round), text(epoch), text(moves_sentence(moves)), _lines(reasons))
        rows.append(Row(cells))
    return _long_table(("round", "epoch", "moves", "reasons"), rows)


def _lines(sentences: Mapping[str, None]) -> Markup:
    return Markup("<br>".join(text(sentence) for sentence in sentences))


def _peers(run: RunRecord, summary: Mapping[str, Any]) -> Markup:
    heads = ("peer", "last experts", "rounds", "tokens", "tokens/s", "sent", "received", "waited")
    last = run.ownership[max(run.ownership)] if run.ownership else {}
    rows = []
    for peer in summary["peers"]:
        name = peer["peer"]
        owned = ranges(expert for expert, owner in last.items() if owner == name)
        cells = (
            join([_mark(run, name), text(name)]),
            text(owned),
            text(count(peer["rounds"])),
            text(count(peer["tokens"])),
            text(count(peer["tokensPerSecond"])),
            text(size(peer["bytesUp"])),
            text(size(peer["bytesDown"])),
            text(f"{peer['waitSeconds']:.1f} s"),
        )
        rows.append(Row(cells))
    return table(heads, rows, numbers=6) if rows else Markup("")


def _refusals(run: RunRecord) -> Markup:
    rows = [
        Row(
            (
                _since(run, note.time),
                text("-" if note.round is None else note.round),
                text(note.peer),
                text(note.reason),
                text(note.detail),
            )
        )
        for note in run.journal.refusals
    ]
    return _long_table(("time", "round", "peer", "reason", "detail"), rows)


def _sample(run: RunRecord) -> Markup:
    return tag("pre", text(run.sample[:_MAX_SAMPLE])) if run.sample else Markup("")


def _fingerprints(summary: Mapping[str, Any]) -> Markup:
    versions = ", ".join(f"{name} {value}" for name, value in summary["versions"].items())
    model = summary["modelSha256"] or "none"
    return join(
        [
            tag("p", text("Model (SHA-256 of its weights): "), tag("code", text(model))),
            tag("p", text(f"Versions: {versions}."), classes="soft"),
        ]
    )


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
