"""The screens of `list` and `show`: what the catalog holds, each number with its source and basis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.fields import Quantity, Strict
from agentsim.specs.sourced import Datum, data_of
from agentsim.terminal.layout import grid, indented, screen
from agentsim.units import si_text

_STYLES = {"assumed": "yellow", "unknown": "red", "calibrated": "cyan"}


def list_screen(found: Mapping[str, Sequence[tuple[str, str]]]) -> RenderableType:
    """Return names and titles by kind."""
    parts: list[RenderableType] = []
    for kind, entries in found.items():
        table = grid("left", "left")
        table.columns[1].no_wrap = False
        for name, title in entries:
            table.add_row(Text(name, style="bold"), title)
        parts += [Text(kind, style="bold underline"), indented(table)]
    return screen(*parts)


def show_screen(kind: str, name: str, spec: Strict) -> RenderableType:
    """Return every datum of a spec with value, basis and source; then what it refers to."""
    title = getattr(spec, "title", name)
    heading = Text.assemble((name, "bold"), f"  {title}  ", (f"({kind})", "dim"))
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    table.add_column("datum", overflow="fold", max_width=28)
    table.add_column("value", overflow="fold", max_width=34)
    table.add_column("basis", no_wrap=True)
    table.add_column("source", overflow="fold", ratio=1)
    for path, datum in data_of(spec):
        value = _value(datum, _dimension(spec, path))
        basis = Text(datum.basis, style=_STYLES.get(datum.basis, "green"))
        table.add_row(".".join(path), value, basis, _origin(datum))
    rest = _plain_fields(spec)
    return screen(heading, *([indented(rest)] if rest.row_count else []), indented(table))


def _plain_fields(spec: Strict) -> Table:
    """Fields that are no data: names, counts of chips, choices."""
    table = grid("left", "left")
    table.columns[1].no_wrap = False
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        if name in ("title", "sources") or value is None or any(True for _ in data_of(value)):
            continue
        table.add_row(Text(name, style="dim"), _plain(value))
    return table


def _plain(value: Any) -> str:
    if isinstance(value, BaseModel):
        return _plain(value.model_dump(exclude_none=True))
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_plain(v)}" for k, v in value.items())
    return str(value)


def _dimension(spec: Any, path: tuple[str, ...]) -> str | None:
    """Return the dimension of a datum's value, read from its type."""
    for part in path:
        spec = spec[part] if isinstance(spec, dict) else getattr(spec, part)
    field = type(spec).model_fields["value"]
    found = [*field.metadata, *_metadata(field.annotation)]
    return next((m.dimension for m in found if isinstance(m, Quantity)), None)


def _metadata(annotation: Any) -> list[Any]:
    own = list(getattr(annotation, "__metadata__", ()))
    return own + [m for argument in get_args(annotation) for m in _metadata(argument) if argument is not annotation]


def _value(datum: Datum[Any], dimension: str | None) -> str:
    if datum.value is None:
        return "unknown"
    text = _one(datum.value, dimension)
    if datum.range is not None:
        text += f" ({_one(datum.range[0], dimension)} to {_one(datum.range[1], dimension)})"
    return text + (f" ±{datum.spread:.0%}" if datum.spread else "")


def _one(value: Any, dimension: str | None) -> str:
    if isinstance(value, BaseModel):
        return _plain({k: v for k, v in value.model_dump(exclude_defaults=True).items() if not isinstance(v, tuple)})
    if isinstance(value, tuple):
        return "; ".join(_one(v, dimension) for v in value)
    if dimension is not None and isinstance(value, float):
        return si_text(value, dimension)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _origin(datum: Datum[Any]) -> str:
    notes = [datum.source_text]
    if datum.fitted_on:
        notes.append(f"fitted on {datum.fitted_on}")
    if datum.why and datum.why not in notes:
        notes.append(datum.why)
    return "; ".join(notes)
