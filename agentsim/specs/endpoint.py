"""A model service seen from outside: a fixed time, times per token, a decode speed.

Nothing is said of what runs behind it, and its speed is that of one caller.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from agentsim.fields import Line, Seconds, SecondsPerToken, Strict, Tokens, TokensPerSecond, UsdPerToken
from agentsim.specs.sourced import Datum


class SpeedPoint(Strict):
    """A decode speed that was measured at one context length."""

    context_tokens: Tokens
    speed: TokensPerSecond


def _one_speed(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else ({"context_tokens": 0, "speed": value},)


def _rising(points: tuple[SpeedPoint, ...]) -> tuple[SpeedPoint, ...]:
    contexts = [point.context_tokens for point in points]
    if not points or contexts != sorted(set(contexts)):
        raise ValueError("a table of speeds has at least one point, by rising context_tokens")
    return points


SpeedTable = Annotated[tuple[SpeedPoint, ...], BeforeValidator(_one_speed), AfterValidator(_rising)]
"""Points by rising context; a single speed is written alone and holds at every context."""


class TokenPrices(Strict):
    """What the service charges a token."""

    uncached: Datum[UsdPerToken]
    cached: Datum[UsdPerToken]
    output: Datum[UsdPerToken]


class Endpoint(Strict):
    """One service."""

    title: Line
    model: str | None = None
    sources: dict[str, str] = Field(default_factory=dict)
    fixed: Datum[Seconds]
    per_uncached_token: Datum[SecondsPerToken]
    per_cached_token: Datum[SecondsPerToken]
    decode_speed: Datum[SpeedTable]
    cache_lifetime: Annotated[
        Datum[Seconds] | None, Field(description="how long an unused prefix stays cached")
    ] = None
    context: Datum[Tokens] | None = None
    prices: TokenPrices | None = None
