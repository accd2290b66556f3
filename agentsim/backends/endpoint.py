"""A measured or published service: fixed time, times per token, a decode speed.

Physics: none. What is here is what a caller sees; an unknown part counts as zero, and the result that
used it is marked as a lower bound.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from agentsim.backends.base import ServiceTime
from agentsim.specs.endpoint import Endpoint
from agentsim.specs.sourced import Ledger


@dataclass(frozen=True, slots=True)
class EndpointCost:
    """Seconds per call, per uncached, per cached and per written token, the last by context length."""

    fixed_s: float
    per_uncached_token_s: float
    per_cached_token_s: float
    context_tokens: tuple[int, ...]
    tokens_per_s: tuple[float, ...]
    cache_lifetime_s: float | None

    def call(self, uncached_tokens: int, cached_tokens: int, output_tokens: int) -> ServiceTime:
        """Return the time of one call. The decode speed is that of the prompt's length."""
        prompt = uncached_tokens + cached_tokens
        return ServiceTime(
            self.fixed_s
            + uncached_tokens * self.per_uncached_token_s
            + cached_tokens * self.per_cached_token_s,
            output_tokens / self.speed(prompt),
            self.is_outside(prompt),
        )

    def is_outside(self, context: int) -> bool:
        """Tell whether `context` lies outside the measured table (a plain speed has none)."""
        table = self.context_tokens
        return table[-1] > 0 and not table[0] <= context <= table[-1]

    def speed(self, context: int) -> float:
        """Return tokens/s at a context: linear between measured points, the nearest one outside."""
        table, speeds = self.context_tokens, self.tokens_per_s
        right = bisect_right(table, context)
        if right == 0 or right == len(table):
            return speeds[0 if right == 0 else -1]
        low, high = table[right - 1], table[right]
        share = (context - low) / (high - low)
        return speeds[right - 1] + share * (speeds[right] - speeds[right - 1])


def compile_endpoint(endpoint: Endpoint, ledger: Ledger) -> EndpointCost:
    """Return the cost model of a service; unknown parts are zero and stand in the ledger as unknown."""
    points = ledger.take(endpoint.decode_speed)
    return EndpointCost(
        fixed_s=ledger.take_or_none(endpoint.fixed) or 0.0,
        per_uncached_token_s=ledger.take_or_none(endpoint.per_uncached_token) or 0.0,
        per_cached_token_s=ledger.take_or_none(endpoint.per_cached_token) or 0.0,
        context_tokens=tuple(p.context_tokens for p in points),
        tokens_per_s=tuple(p.speed for p in points),
        cache_lifetime_s=ledger.take_or_none(endpoint.cache_lifetime),
    )


PLUGIN = compile_endpoint
