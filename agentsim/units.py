"""Text with a unit to SI numbers, and SI numbers to text for people.

The only file that knows that a GB is 10^9 bytes and a GiB 2^30. Inside agentsim every quantity is a
float in SI base units with the unit in its name; the simulation clock alone is integer nanoseconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

N = TypeVar("N", int, float)

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_TIME = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_BYTES = {f"{p}B": f for p, f in {**_DECIMAL, **_BINARY}.items()}
_BITS = {f"{p}b": f / 8 for p, f in _DECIMAL.items() if p}

UNITS: Mapping[str, Mapping[str, float]] = {
    "time": _TIME,
    "size": _BYTES,
    "bandwidth": {f"{u}/s": f for u, f in {**_BYTES, **_BITS}.items()},
    "compute": {
        **{f"{p}FLOPS": f for p, f in _DECIMAL.items()},
        **{f"{p}FLOP/s": f for p, f in _DECIMAL.items()},
    },
    "power": {"W": 1.0, "kW": 1e3, "MW": 1e6},
    "price": {"USD/h": 1.0 / 3600.0},
    "token price": {"USD/Mtok": 1e-6},
    "token speed": {"tok/s": 1.0},
    "rate": {"/s": 1.0, "/min": 1.0 / 60.0, "/h": 1.0 / 3600.0},
    "time per token": {f"{u}/tok": f for u, f in _TIME.items()},
}
EXAMPLES = {
    "time": "18 s",
    "size": "12 KiB",
    "bandwidth": "3.35 TB/s",
    "compute": "989 TFLOPS",
    "power": "700 W",
    "price": "2.50 USD/h",
    "token price": "3 USD/Mtok",
    "token speed": "60 tok/s",
    "rate": "0.5/s",
    "time per token": "45 us/tok",
}

_POSITIVE = {"bandwidth", "compute", "token speed", "rate"}
_NUMBER = r"[+-]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_QUANTITY = re.compile(rf"^\s*({_NUMBER})\s*([^0-9\s].*?)?\s*$")
_NS_PER_S = 1e9
MAX_TOKENS = 10**9
MAX_LINE = 200
MAX_SECONDS = 1e9
_LARGEST = {"time": MAX_SECONDS, "size": 1e18, "rate": 1e9}
"""About thirty years, an exabyte, one a nanosecond: what is larger is a slip of the pen."""
_SMALLEST = {"bandwidth": 1e3, "compute": 1e6, "token speed": 1e-3}
"""Of what is divided by: less of it is one as well."""
LEAST_EFFICIENCY = 1e-4
MILLISECOND_S = _TIME["ms"]
MICROSECOND_S = _TIME["us"]
MINUTE_S = _TIME["min"]
HOUR_S = _TIME["h"]


def parse(text: object, dimension: str) -> float:
    """Return a quantity such as `"3.35 TB/s"` in SI base units.

    Raises `ValueError` with what was found and what is allowed: a bare number, an unknown unit, a
    negative or non-finite amount.
    """
    example = EXAMPLES[dimension]
    if not isinstance(text, str):
        raise ValueError(f"{_shown(text)} has no unit; write it like '{example}'")
    match = _QUANTITY.match(text)
    if match is None:
        raise ValueError(f"{_shown(text)} is not a {dimension}; write it like '{example}'")
    number, unit = float(match[1].replace("_", "")), (match[2] or "").strip()
    factor = UNITS[dimension].get(unit)
    if factor is None:
        raise ValueError(_unit_problem(text, unit, dimension))
    value = _checked(number * factor, text)
    if value > _LARGEST.get(dimension, math.inf):
        raise ValueError(f"{_shown(text)} is over {si_text(_LARGEST[dimension], dimension)}")
    if value == 0 and dimension in _POSITIVE:
        raise ValueError(f"{_shown(text)} is zero; a {dimension} must be over 0")
    if value < _SMALLEST.get(dimension, 0.0):
        raise ValueError(f"{_shown(text)} is under {si_text(_SMALLEST[dimension], dimension)}")
    return value


def _unit_problem(text: str, unit: str, dimension: str) -> str:
    allowed = ", ".join(UNITS[dimension])
    if not unit:
        return f"{_shown(text)} has no unit; write it like '{EXAMPLES[dimension]}'"
    return f"unknown unit '{unit}' in {_shown(text)} for a {dimension}; allowed: {allowed}"


def _checked(value: float, text: object) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{_shown(text)} is not a finite number")
    if value < 0:
        raise ValueError(f"{_shown(text)} is negative; it must be 0 or more")
    return value


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def parse_tokens(value: object) -> int:
    """Return a whole number of tokens from `14_000`, `"14k"` or `"1.5M"`; at most `MAX_TOKENS`."""
    amount = value if isinstance(value, int | float) and not isinstance(value, bool) else _suffixed(value)
    if not math.isfinite(amount):
        raise ValueError(f"{_shown(value)} is not a number of tokens; write it like 14_000 or 14k")
    amount = _checked(amount, value)
    if amount != int(amount):
        raise ValueError(f"{_shown(value)} is not a whole number of tokens")
    if amount > MAX_TOKENS:
        raise ValueError(f"{_shown(value)} tokens are over the {MAX_TOKENS:,} that are simulated")
    return int(amount)


def _suffixed(value: object) -> float:
    match = re.match(r"^\s*([+-]?[0-9][0-9_]*(?:\.[0-9]+)?|\.[0-9]+)\s*([kM]?)\s*$", str(value))
    if match is None or not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is not a number of tokens; write it like 14_000 or 14k")
    return float(match[1].replace("_", "")) * _DECIMAL[match[2]]


def parse_line(value: object) -> str:
    """Return a name or title: one line of printable text, not too long for a screen."""
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is not a text; put it in quotes")
    if not value.isprintable() or len(value) > MAX_LINE:
        raise ValueError(f"{_shown(value)} is not one line of at most {MAX_LINE} printable characters")
    return value


def parse_count(value: object) -> int:
    """Return a whole number that is 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{_shown(value)} is not a whole number")
    return int(_checked(value, value))


def over_zero(parse: Callable[[object], N]) -> Callable[[object], N]:
    """Return a reader of what `parse` reads, but for 0."""

    def parsed(value: object) -> N:
        number = parse(value)
        if number == 0:
            raise ValueError(f"{_shown(value)} is zero; it must be over 0")
        return number

    return parsed


def parse_share(value: object) -> float:
    """Return a plain number between 0 and 1."""
    share = parse_number(value)
    if share > 1:
        raise ValueError(f"{_shown(value)} is over 1; a share lies between 0 and 1")
    return share


def parse_efficiency(value: object) -> float:
    """Return a share of a peak that something can run at."""
    share = parse_share(value)
    if 0 < share < LEAST_EFFICIENCY:
        raise ValueError(f"{_shown(value)} is under {LEAST_EFFICIENCY:g}, with which nothing would end")
    return share


def parse_number(value: object) -> float:
    """Return a plain number that is 0 or more; a quantity with a unit is refused."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{_shown(value)} is not a plain number")
    return _checked(float(value), value)


def to_ns(seconds: float) -> int:
    """Round seconds to the simulation clock's integer nanoseconds: the one place that rounds."""
    return round(seconds * _NS_PER_S)


def to_s(nanoseconds: float) -> float:
    """Return clock nanoseconds as seconds."""
    return nanoseconds / _NS_PER_S


def duration_text(seconds: float) -> str:
    """Return a duration as a person would say it: `41 min 12 s`, `1.46 s`, `320 ms`."""
    if seconds < 0:
        return "-" + duration_text(-seconds)
    if seconds < 9.995:
        return f"{seconds:.2f} s" if seconds >= 0.9995 or seconds == 0 else _small(seconds)
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    if seconds < 3599.5:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min"


def _small(seconds: float) -> str:
    for unit, factor in (("ms", 1e-3), ("us", 1e-6)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit (name, seconds) that suits a table whose largest time is `seconds`."""
    if seconds >= 60_000:
        return "h", 3600.0
    if seconds >= 600:
        return "min", 60.0
    return ("s", 1.0) if seconds >= 1 else ("ms", 1e-3)


def count_text(number: float) -> str:
    """Return a count of tokens for people: `640`, `14.2k`, `214k`, `1.6M`."""
    for suffix, factor in (("M", 1e6), ("k", 1e3)):
        if number >= factor * 0.9995:
            scaled = number / factor
            return f"{scaled:.0f}{suffix}" if scaled >= 99.5 else f"{scaled:.3g}{suffix}"
    return f"{number:.0f}"


def rounded_text(number: float) -> str:
    """Return a number to three figures, never in powers of ten: `1,090`, `47.3`, `0.0126`."""
    return f"{number:,.0f}" if abs(number) >= 999.5 else f"{number:.3g}"


def share_text(share: float) -> str:
    """Return a share in percent; none and all are said of nothing less."""
    if 0 < share < 0.005:
        return "under 1%"
    return "over 99%" if 0.995 <= share < 1 else f"{share:.0%}"


def bytes_text(size: float) -> str:
    """Return a size for people in decimal units: `31.4 GB`."""
    for suffix in ("P", "T", "G", "M", "k"):
        if size >= _DECIMAL[suffix]:
            return f"{size / _DECIMAL[suffix]:.3g} {suffix}B"
    return f"{size:.0f} B"


def energy_text(joules: float) -> str:
    """Return an energy for people: `1.24 kWh`, `310 Wh`."""
    watt_hours = joules / _TIME["h"]
    return f"{watt_hours / 1e3:.3g} kWh" if watt_hours >= 999.5 else f"{watt_hours:.3g} Wh"


def si_text(value: float, dimension: str) -> str:
    """Return an SI value in the unit of its dimension that reads best, such as `3.35 TB/s`."""
    if dimension == "time":
        return duration_text(value)
    if dimension == "size":
        return bytes_text(value)
    units = UNITS[dimension]
    fitting = [(u, f) for u, f in units.items() if f <= value and "b" not in u and "i" not in u]
    unit, factor = max(fitting, key=lambda item: item[1]) if fitting else next(iter(units.items()))
    return f"{value / factor:.4g} {unit}"


_TOKENS = {"": 1.0, "k": 1e3, "M": 1e6}


def amount(value: object) -> tuple[float, str] | None:
    """Return a plain number, a count such as `14k` or a quantity in SI units, and its dimension.

    The dimension of plain numbers and counts is empty; None is for what is no number at all.
    """
    found = _parted(value)
    if found is None:
        return None
    number, unit = found
    return next(((number * f[unit], name) for name, f in _scales().items() if unit in f), None)


def between(first: object, last: object, steps: int, by_factors: bool) -> tuple[object, ...]:
    """Return `steps` values from `first` to `last`, evenly or by equal factors, in the unit of `first`.

    Whole ends give whole numbers. Raises `ValueError` where the ends are not two amounts of one kind, or
    the steps are too fine for whole numbers.
    """
    ends = [(_parted(end), amount(end)) for end in (first, last)]
    (parted, low), (_, high) = ends
    if parted is None or low is None or high is None or low[1] != high[1]:
        raise ValueError(f"{_shown(first)} and {_shown(last)} are not two amounts of one kind")
    if steps < 2:
        raise ValueError(f"{steps} steps; a range has its two ends at least")
    if by_factors and not (low[0] > 0 and high[0] > 0):
        raise ValueError(f"a log range from {_shown(first)} to {_shown(last)} needs both ends over 0")
    unit, scale = parted[1], _scales()[low[1]][parted[1]]
    numbers = [_between(low[0], high[0], step / (steps - 1), by_factors) / scale for step in range(steps)]
    whole = not low[1] and not isinstance(first, float) and not isinstance(last, float)
    for digits in (4, 9):
        told = [f"{number:.{digits}g}" for number in numbers]
        values: list[object] = [f"{text} {unit}" if low[1] else float(text) for text in told]
        if whole:
            values = [round(number * scale) for number in numbers]
        if len(set(values)) == steps:
            break
    else:
        raise ValueError(f"{steps} steps are too many from {_shown(first)} to {_shown(last)}{_finer(values)}")
    return tuple(values)


def _finer(values: list[object]) -> str:
    return ": whole ends give whole numbers (write 0.0 for fractions)" if isinstance(values[0], int) else ""


def _between(low: float, high: float, share: float, by_factors: bool) -> float:
    return float(low * (high / low) ** share) if by_factors else low + (high - low) * share


def _parted(value: object) -> tuple[float, str] | None:
    """Return the number and the unit of what is written; no unit where it has none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (float(value), "") if math.isfinite(value) else None
    match = _QUANTITY.match(value) if isinstance(value, str) else None
    if match is None or not math.isfinite(float(match[1].replace("_", ""))):
        return None
    return float(match[1].replace("_", "")), (match[2] or "").strip()


def _scales() -> Mapping[str, Mapping[str, float]]:
    return {**UNITS, "": _TOKENS}
