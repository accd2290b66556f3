"""The look of every screen: bars, aligned figures, wrapped lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

BAR = "█"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEVELS = "▁▂▃▄▅▆▇█"
STYLES = {
    "queue": "magenta",
    "prefill": "cyan",
    "decode": "blue",
    "kv_transfer": "magenta",
    "tool": "yellow",
    "file": "green",
    "network": "bright_black",
    "compaction": "red",
}


def bar(share: float, width: int, style: str = "") -> Text:
    """Return a bar that fills `share` of `width` cells, to an eighth of a cell."""
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    text = BAR * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return Text(text, style=style)


def sparkline(shares: Sequence[float], width: int) -> str:
    """Return a line of `width` cells at most whose heights are shares of 1; each the most of its stretch."""
    cells = min(width, len(shares))
    edges = [len(shares) * cell // cells for cell in range(cells + 1)] if cells else [0]
    tops = [max(shares[a:b]) for a, b in pairwise(edges)]
    return "".join(_LEVELS[min(int(max(top, 0.0) * len(_LEVELS)), len(_LEVELS) - 1)] for top in tops)


def grid(*justify: str, padding: int = 2) -> Table:
    """Return a borderless table whose columns are justified as named."""
    table = Table.grid(padding=(0, padding, 0, 0))
    for how in justify:
        table.add_column(justify=how, no_wrap=True)  # type: ignore[arg-type]
    return table


def indented(renderable: RenderableType) -> Padding:
    """Return a part of a screen, two cells in."""
    return Padding(renderable, (0, 0, 0, 2))


def labelled(rows: Iterable[tuple[str, str]]) -> Table:
    """Return label and text side by side; long texts wrap under themselves."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(label, text)
    return table


def screen(*parts: RenderableType) -> Group:
    """Return parts below each other with a blank line between."""
    spaced: list[RenderableType] = []
    for part in parts:
        spaced += [part, Text()] if part is not parts[-1] else [part]
    return Group(*spaced)


def joined(parts: Sequence[str]) -> str:
    """Return facts on one line, the way the headings write them."""
    return " · ".join(part for part in parts if part)
