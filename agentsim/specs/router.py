"""When a prefix-aware router follows the prefix, and when the load."""

from __future__ import annotations

import os
from functools import cache

from pydantic import Field

from agentsim.fields import Count, Line, Positive, Probability, Strict
from agentsim.specs import catalog
from agentsim.specs.sourced import Datum


class RouterRule(Strict):
    """The thresholds of prefix-aware routing."""

    title: Line
    sources: dict[str, str] = Field(default_factory=dict)
    least_match: Datum[Probability]
    """The share of a prompt that a replica must hold, at the least, to be worth going to."""
    calls_ahead: Datum[Count]
    """Loads are out of balance where the fullest replica has more than these calls over the emptiest ..."""
    times_ahead: Datum[Positive]
    """... and more than this many times its calls."""


@cache
def load_router_rule() -> RouterRule:
    """Return the rule that comes with agentsim."""
    here = os.path.dirname(catalog.folder("models"))
    return catalog.load_file(RouterRule, os.path.join(here, "router.yaml"), "router")
