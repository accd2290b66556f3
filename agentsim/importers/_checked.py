"""Values out of span and trace files, each checked before it is believed; what does not fit is None."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from sys import intern
from typing import Any

from agentsim.errors import ImportFormatError
from agentsim.importers.base import STRICT_JSON, joined, lines_of
from agentsim.units import MAX_TOKENS

MAX_SECONDS = 1e9
EARLIEST_NS, LATEST_NS = 1_262_304_000 * 10**9, 2_240_611_200 * 10**9
"""The years 2010 and 2041: what lies outside is no time of a log of model calls."""

DAMAGED = "damaged rows left out"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PER_S = ((1e17, 1), (1e14, 10**3), (1e11, 10**6), (0.0, 10**9))
"""From which size on an epoch counts ns, us, ms or s, and how many ns that unit has."""


def tokens(value: Any) -> int | None:
    """Return a token count, written as a number or as digits."""
    if type(value) is int:
        return value if 0 <= value <= MAX_TOKENS else None
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 16 else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def number(value: Any) -> float | None:
    """Return a finite number, written as one or as text; its size is not checked."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def seconds(value: Any, per_s: float = 1.0) -> float | None:
    """Return a length of time in s, `per_s` of whose units make a second."""
    found = number(value)
    if found is None or not 0 <= found / per_s <= MAX_SECONDS:
        return None
    return found / per_s


def text(value: Any) -> str:
    """Return an identifier or a name, empty where there is none; equal ones share memory."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**40:
        return str(value)
    return intern(value[:200]) if isinstance(value, str) else ""


def instant_ns(value: Any) -> int | None:
    """Return a time in ns since 1970: ISO text (UTC if it names no zone), an epoch of any unit, [s, ns]."""
    if isinstance(value, list):
        return _pair_ns(value)
    if isinstance(value, str) and not _is_number(value):
        return _within(_iso_ns(value))
    return _within(_epoch_ns(value))


def _is_number(value: str) -> bool:
    return value.replace(".", "", 1).isdigit() and value.isascii()


def _pair_ns(value: list[Any]) -> int | None:
    """Return what OpenTelemetry's JavaScript writes: whole seconds and the nanoseconds within."""
    if len(value) != 2 or not all(isinstance(part, int) for part in value):
        return None
    return _within(value[0] * 10**9 + value[1])


def _iso_ns(value: str) -> int | None:
    try:
        found = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    zoned = found if found.tzinfo else found.replace(tzinfo=UTC)
    since = zoned - _EPOCH
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000


def _epoch_ns(value: Any) -> int | None:
    if isinstance(value, str) and value.isdigit():
        value = int(value) if len(value) < 25 else None
    found = number(value)
    if found is None or found <= 0:
        return None
    unit = next(ns for least, ns in _PER_S if found >= least)
    return value * unit if isinstance(value, int) else round(found * unit)


def _within(value_ns: int | None) -> int | None:
    return value_ns if value_ns is not None and EARLIEST_NS <= value_ns <= LATEST_NS else None


def json_value(source: str) -> Any:
    """Return what JSON text holds; `ValueError` where it is none, or nested too deep to be read."""
    try:
        return STRICT_JSON.decode(source)
    except RecursionError:
        raise ValueError("nested too deep") from None


def json_values(
    path: str, odd: Counter[str], decode: Callable[[str], Any] = json_value
) -> Iterator[tuple[str, Any]]:
    """Yield (`file:line`, value) of JSON lines, or of one JSON value over the whole file.

    Lines that are no JSON are left out and counted in `odd`; where no line is, that is an error.
    `decode` reads a line and raises `ValueError` where it cannot.
    """
    lines = lines_of(path)
    head = [line for line in (next(lines, None), next(lines, None)) if line]
    if len(head) < 2 or any(_is_row(source) for _, source in head):
        yield from _rows(path, chain(head, lines), odd, decode)
    else:
        yield f"{path}:1", _whole(path, chain(head, lines))


def _is_row(source: str) -> bool:
    try:
        return bool(json_value(source)) and source.lstrip()[0] in "{["
    except ValueError:
        return False


def _rows(
    path: str, lines: Iterable[tuple[int, str]], odd: Counter[str], decode: Callable[[str], Any]
) -> Iterator[tuple[str, Any]]:
    first_problem, found = "", False
    for number_, source in lines:
        try:
            value = decode(source)
        except ValueError as bad:
            first_problem = first_problem or f"{path}:{number_}: not JSON: {bad}"
            odd[DAMAGED] += 1
        else:
            found = True
            yield f"{path}:{number_}", value
    if not found:
        raise ImportFormatError(first_problem or f"{path}:1: the file is empty")


def _whole(path: str, lines: Iterable[tuple[int, str]]) -> Any:
    try:
        return json_value(joined(lines, path))
    except ValueError as bad:
        raise ImportFormatError(f"{path}:1: not JSON: {bad}") from None
