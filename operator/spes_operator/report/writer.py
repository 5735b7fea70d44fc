"""Writes `summary.json` and `report.html` into a run's folder."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

from spes_operator.errors import ConfigError
from spes_operator.report.page import page
from spes_operator.report.plot import Plot
from spes_operator.report.record import RunRecord, load_record
from spes_operator.report.summary import installed_versions, summarise

_NO_PLOTS = (
    "There are no plots: matplotlib is missing. pip install 'spes[report]', then `spes report`."
)


def write_report(run_dir: Path) -> list[str]:
    """Write both files and return what a person should be told, in sentences.

    Raises:
        ConfigError: The folder holds nothing of a run.
    """
    run = load_record(run_dir)
    summary = summarise(run, installed_versions())
    _replace(run_dir / "summary.json", json.dumps(summary, indent=2, allow_nan=False) + "\n")
    plots, hint = _plots(run)
    _replace(run_dir / "report.html", page(run, summary, plots, hint=hint))
    return [*run.gaps, *([hint] if hint else [])]


def report(run_dir: Path) -> int:
    """Do `spes report DIR`: write both files, say where they are and what is missing."""
    try:
        told = write_report(run_dir)
    except ConfigError as error:
        sys.stderr.write(f"spes report: {error}\n")
        return 2
    for sentence in told:
        sys.stderr.write(f"{sentence}\n")
    sys.stdout.write(f"{run_dir / 'report.html'}\n{run_dir / 'summary.json'}\n")
    return 0


def _plots(run: RunRecord) -> tuple[tuple[Plot, ...], str]:
    if importlib.util.find_spec("matplotlib") is None:
        return (), _NO_PLOTS
    from spes_operator.report.plots import draw_plots

    return draw_plots(run), ""


def _replace(path: Path, content: str) -> None:
    """Write the whole file or leave the old one."""
    scratch = path.with_name(path.name + ".new")
    scratch.write_text(content, encoding="utf-8")
    scratch.replace(path)
