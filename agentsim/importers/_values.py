"""Numbers, token counts, lengths of time and instants out of a log, each checked before it is believed.

What is none, or too large to be one, is None; readers that count what they do not believe give `odd`.

Why so: the limits stand together, so that no session holds what a workflow would refuse. All instants lie
within the thirty years that one duration may last, and a prompt may be the sum of several counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from agentsim.units import MAX_TOKENS

Odd = Counter[str]

EARLIEST_NS, LATEST_NS = 1_262_304_000 * 10**9, 2_208_988_800 * 10**9
"""The years 2010 and 2040: what lies outside is no time of a log of model calls."""
EARLIEST_S = EARLIEST_NS / 1e9

LONGEST_S = 366 * 86_400.0
"""A model call or a tool of over a year is a broken clock."""
FURTHEST_S = (LATEST_NS - EARLIEST_NS) / 1e9
"""So long after the start of a trace its last request may come."""

MOST_TOKENS = MAX_TOKENS // 10
"""In one field: a prompt is the sum of up to three. A total over many calls may be `MAX_TOKENS`."""

_EXACT = 2**53
UNREADABLE_TIME, ABSURD_LENGTH = "time not readable", "duration negative or absurd"
UNREADABLE_TOKENS = "token count not readable"
_EPOCH, _US = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_PER_S = ((1e17, 1), (1e14, 10**3), (1e11, 10**6), (0.0, 10**9))
"""From which size on an epoch counts ns, us, ms or s, and how many ns that unit has."""
_NS_DIGITS = len(str(EARLIEST_NS))
"""Of every time between the earliest and the latest."""


def number(value: Any) -> float | None:
    """Return a finite number, written as one or as text; its size is not checked."""
    if type(value) is int and -_EXACT < value < _EXACT:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def tokens(value: Any, most: int = MOST_TOKENS) -> int | None:
    """Return a token count, written as a number or as digits."""
    if type(value) is int:
        return value if 0 <= value <= most else None
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 16 else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= most else None


def counted(value: Any, odd: Odd) -> int:
    """Return a token count, 0 where there is none or it cannot be one; the latter is noted."""
    if value is None:
        return 0
    found = tokens(value)
    if found is None:
        odd[UNREADABLE_TOKENS] += 1
    return found or 0


def first_tokens(data: Mapping[str, Any], *keys: str, most: int = MOST_TOKENS) -> int | None:
    """Return the count under the first of `keys` that holds one."""
    for key in keys:
        found = tokens(data.get(key), most)
        if found is not None:
            return found
    return None


def seconds(value: Any, per_s: float = 1.0, longest_s: float = LONGEST_S) -> float | None:
    """Return a length of time in s, `per_s` of whose units make a second."""
    if value is None:
        return None
    found = number(value)
    if found is None or not 0 <= found / per_s <= longest_s:
        return None
    return found / per_s


def duration(value: Any, odd: Odd, per_s: float = 1.0) -> float | None:
    """Return a length of time in s; one that is given and cannot be believed is noted."""
    found = seconds(value, per_s)
    if found is None and number(value) is not None:
        odd[ABSURD_LENGTH] += 1
    return found


def instant_ns(value: Any) -> int | None:
    """Return a time in ns since 1970: ISO text (UTC if it names no zone), an epoch of any unit, [s, ns]."""
    if isinstance(value, str):
        if len(value) == _NS_DIGITS and value.isascii() and value.isdigit():
            return _within(int(value))
        plain = _plain_iso_ns(value)
        if plain is None:
            plain = _epoch_ns(value) if _is_number(value) else _iso_ns(value)
        return _within(plain)
    return _within(_pair_ns(value) if isinstance(value, list) else _epoch_ns(value))


def instant(value: Any) -> float | None:
    """Return a time in s since 1970, of all that `instant_ns` reads."""
    found = instant_ns(value)
    return None if found is None else found / 1e9


def time_of(value: Any, odd: Odd) -> float | None:
    """Return a time in s since 1970; one that is given and cannot be read, or names no zone, is noted."""
    if value is None:
        return None
    found = instant_ns(value)
    if found is None:
        odd[UNREADABLE_TIME] += 1
        return None
    if isinstance(value, str) and not (value.endswith("Z") or _is_number(value)) and _is_naive(value):
        odd["time without zone, read as UTC"] += 1
    return found / 1e9


def _is_number(value: str) -> bool:
    return value.replace(".", "", 1).isdigit() and value.isascii()


def _is_naive(value: str) -> bool:
    return datetime.fromisoformat(value.strip()).tzinfo is None


def _pair_ns(value: list[Any]) -> int | None:
    """Return what OpenTelemetry's JavaScript writes: whole seconds and the nanoseconds within."""
    if len(value) != 2 or not all(isinstance(part, int) for part in value):
        return None
    return int(value[0]) * 10**9 + int(value[1])


def _plain_iso_ns(value: str) -> int | None:
    """Return a time written `2026-03-02T10:00:05.123Z`, as most logs do; None for any other."""
    if len(value) != 24 or value[16] != ":" or value[19] != "." or value[23] != "Z":
        return None
    ms, minute_ns = value[17:19] + value[20:23], _minute_ns(value[:17])
    if minute_ns is None or not (ms.isdigit() and ms.isascii()) or ms >= "6":
        return None
    return minute_ns + int(ms) * 10**6


@lru_cache(maxsize=64)
def _minute_ns(value: str) -> int | None:
    return _iso_ns(f"{value}00Z")


def _iso_ns(value: str) -> int | None:
    try:
        found = datetime.fromisoformat(value.strip())
        since = (found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return None
    return since // _US * 1000


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
