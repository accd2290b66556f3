"""What the importers of benchmark trajectories share: lenient reading of files, estimates of tokens.

The fields of such logs are written by many hands. What is not of the expected type counts as absent; what
that costs is counted by the importer in `odd`, by reason.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

from agentsim.errors import ImportFormatError
from agentsim.importers._estimate import text_tokens
from agentsim.importers._values import first_tokens
from agentsim.importers.base import joined, lines_of
from agentsim.units import MAX_TOKENS

ESTIMATED = "tokens estimated from text"
NO_CACHE = "cached tokens not recorded"

_TEXT_KEYS = ("text", "content", "thinking", "tool_calls", "function", "arguments")
_IMAGE = re.compile(r"data:[\w/+.-]{1,60};base64,[A-Za-z0-9+/=]+")
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:,]')


# ---- files


def parsed(text: str, place: str) -> Any:
    """Return the JSON value that `text` holds; numbers that are none (`NaN`) count as null."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ImportFormatError(f"{place}: not JSON that is read here: nested too deep") from None
    except json.JSONDecodeError as bad:
        raise ImportFormatError(f"{_place(place, bad.lineno)}: not JSON: {bad.msg}") from None
    except ValueError as bad:
        raise ImportFormatError(f"{place}: not JSON: {str(bad)[:80]}") from None


def _place(place: str, line: int) -> str:
    path, _, number = place.rpartition(":")
    return f"{path}:{int(number) + line - 1}" if number.isdigit() else place


def document(path: str) -> Any:
    """Return the JSON value of a whole file."""
    text = joined(lines_of(path), path)
    if not text:
        raise ImportFormatError(f"{path}:1: the file is empty")
    return parsed(text, f"{path}:1")


def documents(path: str) -> Iterator[Any]:
    """Yield the value of each line of a JSON-lines file, or of the one document over many lines.

    A line that cannot be read yields its `ImportFormatError`.
    """
    first = True
    for line_number, text in lines_of(path):
        value = _parsed_or_error(text, f"{path}:{line_number}")
        if first and isinstance(value, ImportFormatError) and not _is_of_lines(path, text):
            yield document(path)
            return
        first = False
        yield value
    if first:
        raise ImportFormatError(f"{path}:1: the file is empty")


def _is_of_lines(path: str, first: str) -> bool:
    """Tell whether a file whose first line cannot be read holds a value a line, by the two lines after it."""
    if first.strip() in ("{", "["):
        return False
    return any(isinstance(_parsed_or_error(text, path), dict) for _, text in islice(lines_of(path), 1, 3))


def _parsed_or_error(text: str, place: str) -> Any:
    try:
        return parsed(text, place)
    except ImportFormatError as bad:
        return bad


def is_list_of_objects(head: bytes) -> bool:
    """Tell whether a file begins as a list of objects."""
    return re.match(rb"\s*\[\s*\{", head) is not None


def top_keys(head: bytes) -> dict[bytes, bytes]:
    """Return the keys of the object that a file begins with, and the first token of each one's value.

    A list of objects is looked into; as far as the head reaches.
    """
    inner = head.lstrip().removeprefix(b"[").lstrip() if is_list_of_objects(head) else head.lstrip()
    keys: dict[bytes, bytes] = {}
    depth, before, key = 0, b"", b""
    for match in _TOKEN.finditer(inner):
        token = match[0]
        if key and before == b":":
            keys[key], key = token[1:-1] if token[:1] == b'"' else token, b""
        if token == b":" and depth == 1 and before[:1] == b'"':
            key = before[1:-1]
        depth += (token in b"{[") - (token in b"}]")
        before = token
        if depth == 0:
            break
    return keys | ({key: b""} if key else {})


def stem(path: str) -> str:
    """Return a file's name without folder and endings."""
    return os.path.basename(path).removesuffix(".gz").split(".json")[0].removesuffix(".traj") or "unnamed"


# ---- values


def sub(value: Any, *keys: str) -> dict[str, Any]:
    """Return the object under `keys`, empty where there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def words(value: Any, default: str = "") -> str:
    """Return a name: text of up to 200 printable characters, or the default."""
    if not isinstance(value, str) or not value.strip():
        return default
    name = value.strip()[:200]
    return name if name.isprintable() else "".join(c if c.isprintable() else "?" for c in name)


def chars(value: Any) -> int:
    """Return how many characters of text a message holds; images, encoded or linked, are none."""
    if isinstance(value, str):
        return len(_IMAGE.sub("", value)) if ";base64," in value else len(value)
    if isinstance(value, list):
        return sum(map(chars, value))
    if isinstance(value, dict):
        if "image" in str(value.get("type", "")):
            return 0
        return sum(chars(value.get(key)) for key in _TEXT_KEYS)
    return 0


# ---- usage


@dataclass(slots=True)
class Usage:
    """Tokens of a call as far as told; `prompt` includes `cached`, `output` includes `thinking`."""

    prompt: int | None = None
    output: int | None = None
    cached: int | None = None
    thinking: int = 0

    def __bool__(self) -> bool:
        return bool(self.prompt)


def usage_of(data: Mapping[str, Any]) -> Usage:
    """Read an OpenAI-like usage object, of chat completions or of responses, or one of OpenHands."""
    inner = sub(data, "prompt_tokens_details") or sub(data, "input_tokens_details")
    details = sub(data, "completion_tokens_details") or sub(data, "output_tokens_details")
    cached = first_tokens(inner, "cached_tokens")
    if cached is None:
        cached = first_tokens(
            data, "cache_read_tokens", "cached_tokens", "cache_read_input_tokens", "prompt_cache_hit_tokens"
        )
    return Usage(
        first_tokens(data, "prompt_tokens", "input_tokens"),
        first_tokens(data, "completion_tokens", "output_tokens"),
        cached,
        first_tokens(details, "reasoning_tokens") or first_tokens(data, "reasoning_tokens") or 0,
    )


class Context:
    """Estimates what the log does not tell: the prompt is the last one known and all text since.

    `odd` counts each call that needed an estimate.
    """

    def __init__(self, odd: Counter[str]) -> None:
        self.odd, self.known, self.since = odd, 0, 0

    def add(self, characters: int) -> None:
        self.since += characters

    def settle(self, usage: Usage, output_chars: int) -> tuple[int, int, int, int]:
        """Return prompt, cached, output and thinking tokens of a call; what was added came before it."""
        prompt, output = usage.prompt, usage.output
        if not prompt or output is None:
            self.odd[ESTIMATED] += 1
        elif usage.cached is None:
            self.odd[NO_CACHE] += 1
        if not prompt:
            prompt = min(self.known + text_tokens(self.since), MAX_TOKENS)
        if output is None:
            output = text_tokens(output_chars)
        if (usage.cached or 0) > prompt:
            self.odd["more cached tokens than prompt"] += 1
        thinking = min(usage.thinking, output)
        self.known, self.since = prompt + output - thinking, 0
        return prompt, min(usage.cached or 0, prompt), output, thinking


def scaled_to(total: int | None, estimates: list[int]) -> list[int]:
    """Return estimates in proportion, with the recorded total as their sum; as they are without one."""
    base = sum(estimates)
    if not total or not base:
        return estimates
    edges = [0]
    for estimate in estimates:
        edges.append(edges[-1] + estimate)
    marks = [round(edge * total / base) for edge in edges]
    return [after - before for before, after in pairwise(marks)]
