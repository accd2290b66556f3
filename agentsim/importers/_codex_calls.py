"""One model call of a Codex rollout: its rows, its usage, and what its tools say of their time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agentsim.importers._estimate import text_tokens
from agentsim.importers._rows import (
    LONGEST_CALL_S,
    Row,
    name_of,
)
from agentsim.importers._values import Odd, counted
from agentsim.importers.base import objects
from agentsim.recorded import RecordedCall, RecordedEvent, RecordedWait

_WALL = re.compile(r'Wall time: ([0-9.]{1,12}) seconds|"duration_seconds":\s*([0-9.]{1,12})')
_ENDS_KEPT = 400
"""Where in a tool's result its duration stands: in the first or the last characters."""


@dataclass(slots=True)
class Round:
    """What one model call put out so far. `start_s` is None where no input before it is known."""

    start_s: float | None
    first_s: float
    end_s: float
    chars: int = 0
    uses: list[str] = field(default_factory=list)
    said: str = ""
    text: str = ""


Tokens = tuple[int, int, int, int]
"""Prompt, of it cached, output, of it reasoning."""


@dataclass(slots=True)
class Done:
    """A round with its tokens, None where the log has none; `context` are the characters before it.

    `first` tells that it is the first of its turn, `timed` that its rows have times.
    """

    round: Round
    usage: Tokens | None
    model: str | None
    context: int
    turn: int
    first: bool
    timed: bool


def call_of(done: Done, ttft_s: float | None, model: str | None, odd: Odd) -> RecordedCall:
    """Return the call. `model` is the session's last, for calls before any was named."""
    round_ = done.round
    start_s = round_.first_s if round_.start_s is None else min(round_.start_s, round_.end_s)
    length_s = round_.end_s - start_s
    known = done.timed and round_.start_s is not None and length_s <= LONGEST_CALL_S
    prompt, cached, output, thinking = _tokens(done, odd)
    return RecordedCall(
        start_s,
        length_s if known else 0.0,
        name_of(done.model or model),
        prompt,
        cached,
        output,
        thinking,
        ttft_s if known and ttft_s is not None and ttft_s <= length_s else None,
        "inferred" if known else "absent",
        round_.said,
        round_.text,
    )


def broken_off(done: Done) -> list[RecordedEvent]:
    """Return the time of an answer that has no usage in a log whose others do."""
    start_s = done.round.start_s
    if start_s is None or not done.timed or not 0 < done.round.end_s - start_s <= LONGEST_CALL_S:
        return []
    length_s = done.round.end_s - start_s
    return [RecordedWait(start_s, length_s, "harness", "answer broken off", timing="inferred")]


def _tokens(done: Done, odd: Odd) -> Tokens:
    if done.usage is not None:
        return done.usage
    odd["tokens estimated from text"] += 1
    return text_tokens(done.context), 0, text_tokens(done.round.chars), 0


def tokens_in(usage: Row, odd: Odd) -> Tokens:
    """Return the tokens that a usage tells; its input includes what was cached."""
    keys = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
    prompt, cached, output, thinking = (counted(usage.get(key), odd) for key in keys)
    return prompt, min(cached, prompt), output, min(thinking, output)


def less(total: dict[str, float], before: dict[str, float]) -> Row:
    """Return what a total grew by; the total itself where it was set back."""
    grown = {key: value - before.get(key, 0.0) for key, value in total.items()}
    return dict(total) if any(value < 0 for value in grown.values()) else grown


def wall_s(output: Any) -> float | None:
    """Return what a shell's result says of its time."""
    for text in _texts(output):
        found = _WALL.search(text[:_ENDS_KEPT]) or _WALL.search(text[-_ENDS_KEPT:])
        if found:
            try:
                return float(found[1] or found[2])
            except ValueError:
                return None
    return None


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in [content] if isinstance(content, dict) else objects(content):
        text = part.get("text", part.get("output", part.get("content")))
        if isinstance(text, str):
            yield text


def chars_of(item: Row, *keys: str) -> int:
    """Return the length of an item's texts; images are left out."""
    chars = 0
    for content in map(item.get, keys):
        if isinstance(content, str):
            chars += len(content)
        elif content:
            chars += sum(map(len, _texts(content)))
    return chars
