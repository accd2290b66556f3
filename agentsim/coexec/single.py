"""One engine does everything."""

from __future__ import annotations

from collections.abc import Sequence

from agentsim.coexec.base import Serve, Stage
from agentsim.errors import SpecError


def route(engines: Sequence[str]) -> tuple[Stage, ...]:
    """Return the one stage of a call."""
    if len(engines) != 1:
        raise SpecError(
            f"pattern 'single' takes one engine; the deployment has {len(engines)}: {', '.join(engines)}"
        )
    return (Serve(engines[0]),)


PLUGIN = route
