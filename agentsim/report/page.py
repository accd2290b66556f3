"""The page: sections of HTML around the data. Everything that a file says is escaped, in text and in data.

Figures stand in `<data value=…>` with the number that the JSON has, whatever is printed. The page may load
nothing: its Content Security Policy names the one style and the one script by their hashes.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Iterable, Iterator
from hashlib import sha256
from html import escape
from string import Template
from typing import Any

from agentsim.report import tables
from agentsim.report.read import Inputs
from agentsim.report.timeline import parts_drawn, timeline
from agentsim.report.words import Answer, answer, missing

SCHEMA = "agentsim.report/1"
MARK = f'<!DOCTYPE html>\n<html lang="en" data-format="{SCHEMA}">'
"""How every report begins."""


def page(inputs: Inputs, version: str = "") -> str:
    """Return the page of what `read` returned. The same inputs give the same bytes."""
    style, script = _template("report.css"), _template("report.js")
    charts = timeline(inputs.result) if inputs.result is not None else None
    data = {"schema": SCHEMA, **inputs.raw, "timeline": charts}
    return Template(_template("report.html")).substitute(
        mark=MARK,
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        title=escape(f"{inputs.workflow}: how long the task takes"),
        main="\n".join(_sections(inputs, charts)),
        data=_json_in_html(data),
        footer=_footer(inputs, version),
    )


def _template(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _json_in_html(data: Any) -> str:
    """Return JSON in which nothing can end the element around it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _sections(inputs: Inputs, charts: dict[str, Any] | None) -> Iterator[str]:
    yield _header(inputs, answer(inputs))
    if notes := list(_notes(inputs)):
        yield _section("What to know", f'<ul class="notes">{"".join(notes)}</ul>')
    if inputs.runs:
        yield _section("Where the task's time goes", *tables.breakdown(inputs))
    if inputs.sessions is not None:
        yield _section("Where the recorded time went", *tables.sessions(inputs.sessions.sessions))
    if charts is not None:
        yield _section("One run, from start to end", *_charts(charts))
    if inputs.runs and (latency := tables.latency(inputs)):
        yield _section("Latency per turn", latency)
    if inputs.sensitivity is not None:
        yield _section("What moves the answer", *tables.tornado(inputs.sensitivity))
    if inputs.runs:
        yield _section("Where the numbers are from", *tables.sources(inputs.runs))
    if absent := [f"<li>{escape(line)}</li>" for line in missing(inputs)]:
        yield _section("Not in this report", f'<ul class="notes">{"".join(absent)}</ul>')


def _section(title: str, *content: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n" + "\n".join(content) + "\n</section>"


def _header(inputs: Inputs, said: Answer) -> str:
    tiles = "".join(
        f"<li><b>{escape(tile.figure)}</b><span>{escape(tile.caption)}</span></li>" for tile in said.tiles
    )
    with_ = sorted({override for run in inputs.runs for override in run.overrides})
    changed = f'<p class="changed">with {escape(", ".join(with_))}</p>' if with_ else ""
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in said.sentences)
    return (
        f'<header>\n<p class="kicker">{escape(inputs.workflow)}</p>\n<h1>{escape(said.headline)}</h1>\n'
        f'{changed}<div class="lead">{sentences}</div>\n<ul class="tiles">{tiles}</ul>\n</header>'
    )


def _notes(inputs: Inputs) -> Iterator[str]:
    for label, run in zip(inputs.labels(), inputs.runs, strict=True):
        for warning in run.warnings:
            yield f"<li><b>{escape(label)}</b> {escape(warning)}</li>"


def _charts(charts: dict[str, Any]) -> Iterator[str]:
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in charts["notes"])
    where = f"{escape(charts['deployment'])}, seed {charts['seed']}"
    yield (
        f'<p class="note">On {where}. Choose a turn by a click or with the arrow keys; drag to move, '
        "Ctrl and wheel to zoom. Paler: off the critical path.</p>" + notes
    )
    yield tables.legend(parts_drawn(charts))
    yield _template("report.charts.html")


def _footer(inputs: Inputs, version: str) -> str:
    names: Iterable[str] = (escape(name) for name in inputs.names)
    return f"Made by agentsim {escape(version)} from {', '.join(names)}. One file; it loads nothing."
