"""The screens of `list` and `show`: what the catalog holds, each number with its source and basis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.terminal.layout import grid, indented, labelled, screen

if TYPE_CHECKING:
    from agentsim.sheets import Sheet, SheetRow

_STYLES = {"assumed": "yellow", "unknown": "red", "calibrated": "cyan"}


def list_screen(found: Mapping[str, Sequence[tuple[str, str]]]) -> RenderableType:
    """Return names and titles by kind."""
    parts: list[RenderableType] = []
    for kind, entries in found.items():
        table = grid("left", "left")
        table.columns[1].no_wrap, table.columns[1].overflow = False, "fold"
        for name, title in entries:
            table.add_row(Text(name, style="bold"), title)
        parts += [Text(kind, style="bold underline"), indented(table)]
    return screen(*parts)


def show_screen(sheets: Sequence[Sheet]) -> RenderableType:
    """Return every sheet with its data; sources are numbered over all of them and listed once."""
    numbers: dict[str, int] = {}
    parts: list[RenderableType] = []
    for sheet in sheets:
        parts.append(Text.assemble((sheet.name, "bold"), f"  {sheet.title}  ", (f"({sheet.kind})", "dim")))
        if sheet.choices:
            parts.append(indented(labelled((name, _plain(value)) for name, value in sheet.choices.items())))
        if sheet.rows:
            parts.append(indented(_data(sheet.rows, numbers)))
    parts.append(indented(labelled((f"[{number}]", text) for text, number in numbers.items())))
    return screen(*parts)


def _data(rows: Sequence[SheetRow], numbers: dict[str, int]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    table.add_column("datum", overflow="fold")
    table.add_column("value", overflow="fold")
    table.add_column("basis", no_wrap=True)
    table.add_column("source", no_wrap=True)
    for row in rows:
        origins = [numbers.setdefault(text, len(numbers) + 1) for text in row.origins]
        table.add_row(
            row.name,
            _value(row),
            Text(row.basis, style=_STYLES.get(row.basis, "green")),
            " ".join(f"[{number}]" for number in origins),
        )
    return table


def _value(row: SheetRow) -> str:
    text = "unknown" if row.value is None else _plain(row.value)
    if row.range is not None:
        text += f" ({_plain(row.range[0])} to {_plain(row.range[1])})"
    return text + (f" ±{row.spread:.0%}" if row.spread else "")


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_plain(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(map(_plain, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
