"""The whole result as JSON, nanoseconds and all, which `Result.from_json` and `agentsim report` read."""

from __future__ import annotations

import json
from collections.abc import Iterator

from agentsim.exports.base import Export
from agentsim.result import SCHEMA, Result

_HEAD = f'{{"schema": "{SCHEMA}",\n'


def render(result: Result) -> Iterator[str]:
    """Yield the pieces of `result.json`: a line a field, and a line a turn, span, task or source."""
    yield _HEAD
    comma = ""
    for key, value in result.to_json().items():
        if key != "schema":
            rows = ",\n ".join(map(json.dumps, value)) if isinstance(value, list | tuple) else None
            text = json.dumps(value) if rows is None else f"[{rows}]"
            yield f'{comma}"{key}": {text}'
            comma = ",\n"
    yield "\n}\n"


PLUGIN = Export("result.json", _HEAD, render, in_folder=True)
