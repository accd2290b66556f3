"""What a claim about speed asserts, in numbers, and whether it holds.

    "hours to minutes"     a task of at least an hour takes less than an hour, and at most half as long
    "4x"                   the task takes at most a quarter of the time
    "under 10 min"         the task takes less than that
    "4x tokens"            tokens are written at least four times as fast: says nothing of the task
    "35x per MW"           tokens per second and megawatt: says nothing of the task, either

A claim of the task holds where it does in at least half of the runs. Base and other see the same draws.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from agentsim.errors import InputError
from agentsim.units import HOUR_S, duration_text, parse

Kind = Literal["time", "tokens", "power"]
LEAST_SPEEDUP = 2.0
"""Passing from 61 to 59 minutes is no claim kept: the task must at least take half the time."""
ENOUGH = 0.5
"""The share of runs in which a claim that holds does."""
FORMS = '"hours to minutes", "4x", "under 10 min", "4x tokens", "35x per MW"'
_UNITS_S = {"seconds": 1.0, "minutes": 60.0, "hours": HOUR_S, "days": 24 * HOUR_S}
_LARGEST = 1e9
_FACTOR = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?(?:x|times)(?: (?:as )?(?:fast(?:er)?|task|time|speed-?up))?")
_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?(?:x|times)(?: the)? (.+)")
_TOKENS = {"tokens", "token speed", "tok/s", "tps", "tokens/s", "tokens per second"}
_POWER = {"per mw", "/mw"} | {f"{what}{per}" for what in _TOKENS for per in (" per mw", "/mw")}
_CHANGE = re.compile(r"(days|hours|minutes) (?:to|become|into) (hours|minutes|seconds)")


@dataclass(frozen=True, slots=True)
class Claim:
    """`other` is at least `factor` times better than `base`; where they are given, base takes at least
    `from_s` and other less than `below_s`."""

    text: str
    kind: Kind
    factor: float
    from_s: float = 0.0
    below_s: float = inf

    @property
    def asserted(self) -> str:
        """What is asserted, in numbers, for `BASE` and `OTHER` to be replaced by names."""
        if self.kind == "power":
            return f"OTHER writes at least {self.factor:g} times as many tokens per second and MW as BASE"
        if self.kind == "tokens":
            return f"OTHER writes tokens at least {self.factor:g} times as fast as BASE"
        if self.from_s:
            return (
                f"the task takes {duration_text(self.from_s)} or more on BASE, less than "
                f"{duration_text(self.below_s)} on OTHER, and is at least {self.factor:g} times faster"
            )
        if self.below_s < inf:
            return f"the task takes less than {duration_text(self.below_s)} on OTHER"
        return f"the task takes at least {self.factor:g} times as long on BASE as on OTHER"

    def is_kept(self, base_s: float, other_s: float) -> bool:
        """Tell whether a claim of the task holds for one run on each."""
        return base_s >= self.from_s and other_s < self.below_s and base_s >= self.factor * other_s

    def share(self, base_s: Sequence[float], other_s: Sequence[float]) -> float:
        """Return the share of runs, seed by seed, in which a claim of the task holds; 0 without runs."""
        kept = [self.is_kept(a, b) for a, b in zip(base_s, other_s, strict=True)]
        return sum(kept) / len(kept) if kept else 0.0


def parse_claim(text: str) -> Claim:
    """Return the claim that a text states. Raises `InputError` with the forms that are understood."""
    plain = " ".join(text.lower().replace("×", "x").split())
    if change := _CHANGE.fullmatch(plain):
        return _change(text, change[1], change[2])
    if plain.startswith(("under ", "in under ", "less than ")):
        return _limit(text, plain)
    if factor := _FACTOR.fullmatch(plain):
        return Claim(text, "time", _factor(text, factor[1]))
    rate = _RATE.fullmatch(plain)
    if rate and rate[2] in _TOKENS | _POWER:
        return Claim(text, "power" if rate[2] in _POWER else "tokens", _factor(text, rate[1]))
    raise InputError(f"claim: '{text}' is not understood; it is one of {FORMS}")


def _change(text: str, before: str, after: str) -> Claim:
    above = [seconds for seconds in _UNITS_S.values() if seconds > _UNITS_S[after]]
    if _UNITS_S[before] <= _UNITS_S[after]:
        raise InputError(f"claim: '{text}': {after} are no less than {before}; it is one of {FORMS}")
    return Claim(text, "time", LEAST_SPEEDUP, _UNITS_S[before], min(above))


def _limit(text: str, plain: str) -> Claim:
    length = plain.removeprefix("in ").removeprefix("under ").removeprefix("less than ")
    try:
        return Claim(text, "time", 0.0, below_s=parse(length, "time"))
    except ValueError as problem:
        raise InputError(f"claim: {problem}") from None


def _factor(text: str, number: str) -> float:
    factor = float(number)
    if not 0 < factor < _LARGEST:
        raise InputError(f"claim: '{text}': a factor lies over 0 and under {_LARGEST:.0e}")
    return factor


HOURS_TO_MINUTES = parse_claim("hours become minutes")
"""The claim that every comparison is held against."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What runs say of a claim, the base against the fastest of the others.

    `probability` is the share of `runs` in which it holds. `speedup` is that of the medians, the other two
    are of single runs, from the workflow's own randomness alone. `ceiling_speedup` is what inference in no
    time would give, `saturation_tok_s` the decode speed beyond which the task gains less than a hundredth.
    Infinite and undefined figures are None. With `lower_bound` the fastest has unknown parts, and its
    speed-up is at most what is said.
    """

    claim: str
    holds: bool
    probability: float
    runs: int
    lower_bound: bool
    fastest: str
    speedup: float
    speedup_p5: float
    speedup_p95: float
    token_speed_ratio: float | None
    ceiling_speedup: float | None
    instant_s: float
    non_inference_share: float
    saturation_tok_s: float | None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}
