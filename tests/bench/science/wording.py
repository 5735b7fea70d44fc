"""How the page writes numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.science.estimates import Difference, Estimate, Told

MEGABYTE = 1_000_000
_PLACES = 3


def with_deviation(value: Estimate, *, places: int = _PLACES) -> str:
    """A mean and the standard deviation over the seeds."""
    if value.deviation is None:
        return f"{value.mean:.{places}f}"
    return f"{value.mean:.{places}f} ± {value.deviation:.{places}f}"


def with_error(value: Difference, *, places: int = _PLACES) -> str:
    """A difference, its sign always written, and its standard error."""
    if value.standard_error is None:
        return f"{value.mean:+.{places}f}"
    return f"{value.mean:+.{places}f} ± {value.standard_error:.{places}f}"


def against(above: Difference, rival: str, by_seed: Sequence[float]) -> str:
    """How a loss compares with a rival's."""
    said = {
        Told.LOWER: "lower than",
        Told.HIGHER: "higher than",
        Told.NOT_APART: "not told apart from",
        Told.UNKNOWN: "one seed, against",
    }[above.told]
    each = ", ".join(f"{value:+.{_PLACES}f}" for value in by_seed)
    return f"{with_error(above)}, {said} {rival} (by seed {each})"


def megabytes(num_bytes: float) -> str:
    """With one decimal."""
    return f"{num_bytes / MEGABYTE:.1f}"


def per_cent(share: float) -> str:
    """With one decimal."""
    return f"{100 * share:.1f} %"


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, text: int = 1) -> str:
    """A Markdown table; the first `text` columns are text, the others numbers."""
    ruler = (*["---"] * text, *["---:"] * (len(header) - text))
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ruler, *rows)) + "\n"
