"""Spec files as people read them: every datum as it is written, with basis and origins."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from agentsim import yaml_file
from agentsim.errors import SpecError
from agentsim.specs import catalog
from agentsim.specs.sourced import Datum, UsedDatum, data_of
from agentsim.yaml_file import Document

_NOT_CHOICES = ("title", "sources")


@dataclass(frozen=True, slots=True)
class SheetRow:
    """One datum: its value and range as the file writes them; `origins` are source, fit and reason."""

    name: str
    value: Any
    basis: str
    range: tuple[Any, Any] | None
    spread: float | None
    origins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sheet:
    """One spec: its choices (fields that are no data), then its data."""

    kind: str
    name: str
    title: str
    choices: dict[str, Any]
    rows: tuple[SheetRow, ...]

    def to_json(self) -> dict[str, Any]:
        rows = [{key: getattr(row, key) for key in row.__slots__} for row in self.rows]
        return {
            "kind": self.kind,
            "name": self.name,
            "title": self.title,
            "choices": self.choices,
            "data": rows,
        }


def sheet(kind: str, name: str, document: Document) -> Sheet:
    """Return the sheet of a spec file."""
    spec = catalog.from_document(catalog.schema_of(kind), document, name)
    found = list(data_of(spec))
    holders = {path[0] for path, _ in found}
    choices = {k: v for k, v in document.data.items() if k not in holders and k not in _NOT_CHOICES}
    rows = tuple(_row(path, datum, document.data) for path, datum in found)
    return Sheet(kind, name, str(getattr(spec, "title", name)), choices, rows)


def used_sheets(used: Iterable[UsedDatum]) -> Iterator[Sheet]:
    """Yield the sheets of the specs that a plan used, each with the data that it used."""
    names = {entry.name for entry in used}
    for kind in ("hardware", "models", "engines"):
        for name in catalog.names(kind):
            if any(n.startswith(f"{name}.") for n in names):
                whole = sheet(kind, name, catalog.document(kind, name))
                rows = tuple(row for row in whole.rows if f"{name}.{row.name}" in names)
                if rows:
                    yield Sheet(kind, name, whole.title, {}, rows)


def own_sheets(document: Document) -> Iterator[Sheet]:
    """Yield the sheets of the files that a deployment refers to by path."""
    for engine in document.data.get("engines", {}).values():
        for kind, key in (("hardware", "hardware"), ("engines", "software")):
            path = str(engine.get(key, ""))
            if path.endswith((".yaml", ".yml")):
                place = os.path.join(os.path.dirname(document.name), path)
                yield sheet(kind, path, yaml_file.read(place, SpecError))


def _row(path: tuple[str, ...], datum: Datum[Any], data: Any) -> SheetRow:
    for part in path:
        data = data[int(part)] if isinstance(data, list) else data[part]
    written = data.get("range")
    return SheetRow(
        name=".".join(path),
        value=data.get("value"),
        basis=datum.basis,
        range=(written[0], written[1]) if written else None,
        spread=datum.spread,
        origins=tuple(_origins(datum)),
    )


def _origins(datum: Datum[Any]) -> Iterator[str]:
    if datum.source:
        yield datum.source_text
    if datum.fitted_on:
        yield f"fitted on {datum.fitted_on}"
    if datum.why:
        yield datum.why
