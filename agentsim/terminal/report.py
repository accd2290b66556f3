"""The lines of `report`: the page that was written, and what it does not hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from agentsim.units import bytes_text

if TYPE_CHECKING:
    from agentsim.verbs_report import Report


def report_screen(report: Report) -> RenderableType:
    """Return what was written and what was left out for want of a result."""
    written = f"{report.path}: {bytes_text(report.size_bytes)}, one file that loads nothing"
    lines = [written, *(f"Not in it: {line}" for line in report.missing)]
    return Text("\n".join(lines), no_wrap=True, overflow="ignore")  # a path is copied whole
