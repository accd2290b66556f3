"""What importers of serving traces share: prefixes of block hashes, and the waits between untimed calls.

A serving trace tells when requests came and how long prompts were, seldom how long an answer took. An
answer's length is inferred where the wait after it is known; else the pause holds the answer as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsim.errors import ImportFormatError
from agentsim.importers._json_values import json_value, json_values
from agentsim.importers._values import tokens
from agentsim.recorded import RecordedCall, RecordedEvent, RecordedWait, Timing

TOOL, DELAY, UNTIMED = "tools and waits", "delay", "answer not timed, and wait"
MISFIT = "hash_ids do not fit input_length"
UNUSABLE = "rows without usable lengths left out"
NUMBERS = r"([0-9][0-9, ]*+)"
_HASHES = re.compile(rf'"hash_ids": ?\[{NUMBERS}\]', re.ASCII)


def hashes_of(row: Mapping[str, Any]) -> str:
    """Return a row's block hashes as text, nothing where one of them is no hash."""
    given = row.get("hash_ids")
    if not isinstance(given, list):
        return given if type(given) is _Hashes else ""
    return ", ".join(map(_written, given)) if set(map(type, given)) <= {int, str} else ""


class _Hashes(str):
    """Hashes that were taken out of a row as they stand there."""

    __slots__ = ()


def _written(block: int | str) -> str:
    """Return a hash as ASCII without a comma, each its own."""
    plain = str(block)
    return plain if plain.isalnum() and plain.isascii() else ascii(plain).replace(",", "\\2c")


def json_row(source: str) -> Any:
    """Return what a line of JSON holds; its hashes stay text, for speed."""
    inside = _HASHES.search(source)
    hashes = None if inside is None else plain_hashes(inside[1])
    if inside is not None and hashes is not None:
        row = json_value(source[: inside.start(1)] + source[inside.end(1) :])
        if isinstance(row, dict) and row.get("hash_ids") == []:
            row["hash_ids"] = _Hashes(hashes)
            return row
    return json_value(source)


def plain_hashes(listed: str) -> str | None:
    """Return numbers with `, ` between them; None where lists of JSON, by lines, are not so written."""
    if " " not in listed:
        listed = listed.replace(",", ", ")
    commas = listed.count(",")
    if commas != listed.count(", ") or commas != listed.count(" ") or listed[-1] == " " or ", ," in listed:
        return None
    inside = f" {listed},".replace("\n", ", ")
    return listed if inside.count(" 0") == inside.count(" 0,") else None  # `07` is no number of JSON


def blocks_in(hashes: str) -> int:
    """Return how many hashes a text holds."""
    return hashes.count(",") + 1 if hashes else 0


def fits(blocks: int, prompt: int, block: int) -> bool:
    """Tell whether so many blocks are what a prompt fills."""
    return (blocks - 1) * block < prompt <= blocks * block


def cached_tokens(leading: int, blocks: int, prompt: int, block: int) -> int:
    """Return the tokens in the leading blocks; of too many blocks each counts for less."""
    if (blocks - 1) * block >= prompt:
        return prompt * leading // blocks
    return min(leading * block, prompt)


def lengths_of(row: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return prompt and output tokens of a row, None where they are missing or no counts."""
    prompt = tokens(row["input_length"] if "input_length" in row else row.get("input_tokens"))
    output = tokens(row["output_length"] if "output_length" in row else row.get("output_tokens"))
    return None if prompt is None or output is None else (prompt, output)


def rows_of(path: str, odd: Counter[str], wanted: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, row) of a trace; what is no object is counted in `odd`."""
    for line, value in json_values(path, odd, json_row):
        for row in rows_in(value, odd, wanted):
            yield line, row


def rows_in(value: Any, odd: Counter[str], wanted: str) -> Iterator[dict[str, Any]]:
    """Yield the row that a value is, or the rows in it; what is no object is counted in `odd`."""
    for row in value if isinstance(value, list) else (value,):
        if isinstance(row, dict):
            yield row
        else:
            odd[wanted] += 1


def refuse_empty(path: str, what: str) -> ImportFormatError:
    """Return the error of a trace that holds no usable row."""
    return ImportFormatError(f"{path}:1: no row with {what}")


@dataclass(slots=True)
class Request:
    """One request of a lane. `tool_s` and `delay_s` went by before it, None where that is not told."""

    start_s: float
    prompt: int
    cached: int
    output: int
    model: str = "unknown"
    length_s: float = 0.0
    timing: Timing = "absent"
    tool_s: float | None = None
    delay_s: float | None = None
    tools: tuple[tuple[str, float, float], ...] = ()
    said: str = ""

    @property
    def end_s(self) -> float:
        return self.start_s + self.length_s

    @property
    def wait_s(self) -> float | None:
        """Return what is told of the time since the answer before."""
        if self.tool_s is None and self.delay_s is None:
            return None
        return (self.tool_s or 0.0) + (self.delay_s or 0.0)

    def at(self, start_s: float, cached: int) -> Request:
        """Return the same request at another time."""
        made = Request(start_s, self.prompt, cached, self.output, self.model, self.length_s, self.timing)
        made.tool_s, made.delay_s, made.tools, made.said = self.tool_s, self.delay_s, self.tools, self.said
        return made

    def call(self) -> RecordedCall:
        """Return the request as a model call."""
        cached = min(self.cached, self.prompt)
        tokens_ = self.prompt, cached, self.output
        known = self.timing, self.said
        return RecordedCall(self.start_s, self.length_s, self.model, *tokens_, 0, None, *known)


def lane_events(requests: Sequence[Request], odd: Counter[str]) -> tuple[RecordedEvent, ...]:
    """Return calls and waits of one lane, whose requests are in order of start."""
    events: list[RecordedEvent] = []
    for index, request in enumerate(requests):
        if index:
            events += _waits(requests[index - 1], request)
        after = requests[index + 1] if index + 1 < len(requests) else None
        if after is not None and request.timing == "absent":
            infer_length(request, after)
        if request.timing == "absent":
            odd["answers not timed"] += 1
        events.append(request.call())
    return tuple(events)


def infer_length(request: Request, after: Request) -> None:
    """Let an answer end where the wait before the next request began, if that is told."""
    gap_s = after.start_s - request.start_s
    if after.wait_s is not None and 0 < after.wait_s < gap_s:
        request.length_s, request.timing = gap_s - after.wait_s, "inferred"


def _waits(before: RecordedCall | Request, request: Request) -> Iterator[RecordedWait]:
    start_s, free_s = before.end_s, request.start_s - before.end_s
    if free_s <= 0:
        return
    if before.timing == "absent" and (request.wait_s is None or request.wait_s < free_s):
        untimed_s = free_s - (request.wait_s or 0.0)
        yield RecordedWait(start_s, untimed_s, "harness", UNTIMED, timing="inferred")
        start_s, free_s = start_s + untimed_s, free_s - untimed_s
    if request.tool_s is not None:
        tool_s = min(request.tool_s, free_s)
        yield from _tools(request, start_s, tool_s)
        if free_s - tool_s > 1e-9:
            yield RecordedWait(start_s + tool_s, free_s - tool_s, "harness", DELAY)
    elif free_s > 0:
        told = request.delay_s is not None and abs(request.delay_s - free_s) < 1e-6
        timing: Timing = "measured" if told else "inferred"
        yield RecordedWait(start_s, free_s, "tool", TOOL, timing=timing)


def _tools(request: Request, start_s: float, length_s: float) -> Iterator[RecordedWait]:
    """Yield the tools by name where their spans fit into the time that tools took, else as one."""
    ends_s = max((offset_s + tool_s for _, offset_s, tool_s in request.tools), default=0.0)
    if request.tools and ends_s <= length_s + 1e-3:
        for name, offset_s, tool_s in request.tools:
            yield RecordedWait(start_s + offset_s, tool_s, "tool", name)
    elif length_s > 0:
        yield RecordedWait(start_s, length_s, "tool", TOOL)
