"""Distributions of times, sizes and token counts: how they are written and how they are drawn.

A drawn value is the inverse CDF at one uniform number, so that a value depends on its own stream
alone and a stratified sampler may supply the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Any, Generic, TypeVar

from pydantic import GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from agentsim.fields import STRICT, Bytes, Count, Scalar, Seconds, Tokens, known_keys
from agentsim.seeds import Uniform

Q = TypeVar("Q", bound=float)

Draw = Callable[[Uniform], float]
"""Turns numbers of a stream into one value; SI units of the quantity."""

_NORMAL = NormalDist()
_Z90 = _NORMAL.inv_cdf(0.9)


@dataclass(frozen=True)
class Lognormal(Generic[Q]):
    """A skewed quantity given by the values that half and nine tenths of the draws stay under."""

    __pydantic_config__ = STRICT

    median: Q
    p90: Q

    @model_validator(mode="before")
    @classmethod
    def _keys(cls, data: Any) -> Any:
        return known_keys(cls, data)

    def __post_init__(self) -> None:
        if not 0 < self.median <= self.p90:
            raise ValueError("a lognormal needs 0 < median <= p90")


@dataclass(frozen=True)
class Exponential(Generic[Q]):
    """A quantity with a mean and no memory."""

    __pydantic_config__ = STRICT

    mean: Q

    @model_validator(mode="before")
    @classmethod
    def _keys(cls, data: Any) -> Any:
        return known_keys(cls, data)


@dataclass(frozen=True)
class Distribution(Generic[Q]):
    """One value, or exactly one distribution to draw it from."""

    __pydantic_config__ = STRICT

    constant: Q | None = None
    uniform: tuple[Q, Q] | None = None
    lognormal: Lognormal[Q] | None = None
    exponential: Exponential[Q] | None = None
    empirical: tuple[Q, ...] | None = None

    @model_validator(mode="before")
    @classmethod
    def _keys(cls, data: Any) -> Any:
        return known_keys(cls, data)

    def __post_init__(self) -> None:
        given = [v for v in vars(self).values() if v is not None]
        if len(given) != 1:
            raise ValueError(f"one value or one distribution is needed, {len(given)} are given")
        if self.uniform is not None and self.uniform[0] > self.uniform[1]:
            raise ValueError("a uniform distribution is written [low, high]")
        if self.empirical is not None and not self.empirical:
            raise ValueError("an empirical distribution needs at least one value")


class _OrPlain:
    """Lets a distribution be written as a plain value, and says so in the JSON schema."""

    def __init__(self, plain: Any) -> None:
        self.plain = next(m.json_schema for m in plain.__metadata__ if isinstance(m, Scalar))

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_as_distribution, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        return {
            "anyOf": [self.plain, handler(schema)],
            "description": "a value, or a distribution to draw it from",
        }


def _as_distribution(data: Any) -> Any:
    return data if isinstance(data, dict | Distribution) else {"constant": data}


DrawnSeconds = Annotated[Distribution[Seconds], _OrPlain(Seconds)]
DrawnTokens = Annotated[Distribution[Tokens], _OrPlain(Tokens)]
DrawnBytes = Annotated[Distribution[Bytes], _OrPlain(Bytes)]
DrawnCount = Annotated[Distribution[Count], _OrPlain(Count)]


def largest(distribution: Distribution[Any]) -> float:
    """Return a value that draws do not exceed, or hardly ever (four sigma) where there is no bound."""
    draw, rare = sampler(distribution), _NORMAL.cdf(-4.0)
    return max(draw(lambda: rare), draw(lambda: 1.0 - rare))


def sampler(distribution: Distribution[Any]) -> Draw:
    """Return the function that draws one value; whole numbers where the distribution is of those."""
    values = _values(distribution)
    whole = all(isinstance(value, int) for value in values)
    if distribution.constant is not None:
        return constant(float(distribution.constant))
    if distribution.uniform is not None:
        return _whole_uniform(*distribution.uniform) if whole else _uniform(*distribution.uniform)
    if distribution.empirical is not None:
        return _empirical(distribution.empirical)
    draw = _exponential(*values) if distribution.exponential is not None else _lognormal(*values)
    return (lambda uniform: float(round(draw(uniform)))) if whole else draw


def _values(distribution: Distribution[Any]) -> tuple[Any, ...]:
    if distribution.lognormal is not None:
        return distribution.lognormal.median, distribution.lognormal.p90
    if distribution.exponential is not None:
        return (distribution.exponential.mean,)
    return distribution.uniform or distribution.empirical or (distribution.constant,)


def constant(value: float) -> Draw:
    """Return the draw that is always this value."""
    return lambda _uniform: value


def _uniform(low: float, high: float) -> Draw:
    return lambda uniform: low + (high - low) * uniform()


def _whole_uniform(low: int, high: int) -> Draw:
    """Every whole number from `low` to `high`, both included, is as likely as the others."""
    return lambda uniform: float(low + int((high - low + 1) * uniform()))


def _lognormal(median: float, p90: float) -> Draw:
    sigma = math.log(p90 / median) / _Z90
    inverse, exp = _NORMAL.inv_cdf, math.exp
    return lambda uniform: median * exp(sigma * inverse(uniform()))


def _exponential(mean: float) -> Draw:
    log = math.log
    return lambda uniform: -mean * log(uniform())


def _empirical(values: tuple[float, ...]) -> Draw:
    count = len(values)
    return lambda uniform: values[int(uniform() * count)]
