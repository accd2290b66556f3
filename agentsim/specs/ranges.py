"""What a datum may be in place of its value: the distribution that its range or spread stands for.

An assumed value with a range is its own median. Half of the probability lies on either side of it, even on
a logarithmic scale from the value to that end of the range (on a plain one where the end is 0). A
calibrated value with a relative spread s is normal in the logarithm, sigma = s, cut at two sigma.

Why so: the value stays the median, so that the middle of a band is the answer without it. Nothing but the
ends is known, so that no value between is preferred; they bracket by factors (1 ms to 70 ms), hence the
scale. A wider range moves no draw inwards. A value at an end of its range is drawn half of the time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

from pydantic import BaseModel

from agentsim.specs.sourced import Datum, Ledger

DISTRIBUTION = (
    "each range with its value as the median, even by factors to either end; a calibrated spread as a "
    "normal one of the logarithm, cut at two sigma"
)
"""What is drawn, in one sentence for people."""
MIDDLE = 0.5
_SIGMAS = 2.0
_NORMAL = NormalDist()
_OUTSIDE = _NORMAL.cdf(-_SIGMAS)


def is_uncertain(datum: Datum[Any]) -> bool:
    """Tell whether a datum has numbers, and a range or spread that is wider than nothing."""
    if datum.value is None or not _is_numeric(datum.value):
        return False
    if datum.range is not None:
        return bool(datum.range[0] != datum.range[1])
    return bool(datum.spread)


def value_at(datum: Datum[Any], share: float) -> Any:
    """Return the value that a datum stays under with probability `share`; its own value at one half.

    Numbers of a row move together. Counts stay whole; a power of two between powers of two stays one, for
    chips, lanes and budgets come in doublings.
    """
    if share == MIDDLE or not is_uncertain(datum):
        return datum.value
    if datum.range is None:
        inside = _OUTSIDE + share * (1.0 - 2.0 * _OUTSIDE)
        return _times(datum.value, math.exp((datum.spread or 0.0) * _NORMAL.inv_cdf(inside)))
    least, most = datum.range
    end, way = (least, 1.0 - 2.0 * share) if share < MIDDLE else (most, 2.0 * share - 1.0)
    return _towards(datum.value, end, way)


def drawn(shares: Mapping[str, float]) -> Ledger:
    """Return a ledger in which the data of these names take their values at these shares."""

    def value(datum: Datum[Any]) -> Any:
        share = shares.get(datum.name)
        return datum.value if share is None else value_at(datum, share)

    return Ledger(value)


def _is_numeric(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_numeric, value))
    if isinstance(value, BaseModel):
        return all(_is_numeric(getattr(value, name)) for name in type(value).model_fields)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _towards(value: Any, end: Any, way: float) -> Any:
    """Return what lies the share `way` of the distance from a value to an end of its range."""
    if isinstance(value, tuple):
        return tuple(_towards(one, other, way) for one, other in zip(value, end, strict=True))
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        moved = {name: _towards(getattr(value, name), getattr(end, name), way) for name in fields}
        return value.model_copy(update=moved)
    if isinstance(value, int) and isinstance(end, int):
        return _whole(value, end, way)
    if value <= 0 or end <= 0:
        return value + way * (end - value)
    return value * (end / value) ** way


def _whole(value: int, end: int, way: float) -> int:
    if value > 0 and end > 0 and _is_doubling(value) and _is_doubling(end):
        steps = end.bit_length() - value.bit_length()
        return 1 << (value.bit_length() - 1 + round(steps * way))
    moved: float = _towards(float(value), float(end), way)
    return round(moved)


def _is_doubling(count: int) -> bool:
    return count & (count - 1) == 0


def _times(value: Any, factor: float) -> Any:
    """Scale every number but counts, which say where a number was measured."""
    if isinstance(value, tuple):
        return tuple(_times(one, factor) for one in value)
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return value.model_copy(update={name: _times(getattr(value, name), factor) for name in fields})
    return value if isinstance(value, int) else value * factor
