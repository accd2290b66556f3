"""One engine does everything."""

from __future__ import annotations

from agentsim.coexec.base import Pattern, PatternParts, Serve
from agentsim.errors import SpecError


def join(parts: PatternParts) -> Pattern:
    """Return the one stage of a call."""
    if len(parts.costs) != 1:
        raise SpecError(
            f"{parts.deployment.title}: pattern 'single' takes one engine; found: {', '.join(parts.costs)}"
        )
    return Pattern(parts.costs, {}, tuple(Serve(name) for name in parts.costs))


PLUGIN = join
