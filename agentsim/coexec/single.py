"""One engine does everything; a drafter runs beside its target."""

from __future__ import annotations

from agentsim.coexec.base import Pattern, PatternParts, Serve, check_fields, with_drafter
from agentsim.errors import SpecError


def join(parts: PatternParts) -> Pattern:
    """Return the one stage of a call."""
    check_fields(parts)
    if len(parts.engines) != 1:
        raise SpecError(
            f"{parts.deployment.title}: pattern 'single' takes one engine; found: {', '.join(parts.engines)}"
        )
    costs = {name: with_drafter(engine, parts.drafters) for name, engine in parts.engines.items()}
    return Pattern(costs, {}, tuple(Serve(name) for name in costs))


PLUGIN = join
