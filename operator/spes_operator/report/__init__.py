"""What a run leaves for people: `summary.json` and `report.html`, made from its folder alone.

`spes run` calls `write_report` at its end, `spes report DIR` calls `report`. No live process is
asked and no clock is read: the same folder gives the same bytes.
"""

from spes_operator.report.writer import report, write_report

__all__ = ["report", "write_report"]
