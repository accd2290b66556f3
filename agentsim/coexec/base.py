"""How the engines of a deployment share a model call.

A pattern module exposes `PLUGIN`, a function from `PatternParts` to a `Pattern`: the engines that the
simulation runs, the links between them, and the stages that every call goes through, in order. It raises
`SpecError` where the deployment's engines or links do not suit it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from agentsim.backends.base import CostModel
from agentsim.errors import SpecError

if TYPE_CHECKING:  # an endpoint needs none of these schemas
    from agentsim.specs.deployment import Deployment
    from agentsim.specs.sourced import Ledger


@dataclass(frozen=True, slots=True)
class Serve:
    """One engine works on the call: on all of it, on the prompt and first token, or on the rest."""

    engine: str
    does: Literal["all", "prefill", "decode"] = "all"


@dataclass(frozen=True, slots=True)
class Move:
    """KV cache crosses a link, in the size that `engine` keeps it: all of it, or only the new part."""

    link: str
    engine: str
    whole: bool


Stage = Serve | Move


class LinkCost(NamedTuple):
    """A link between engines: seconds until the first byte is there, bytes per second."""

    latency_s: float
    bytes_per_s: float


class PatternParts(NamedTuple):
    """What a pattern joins. `costs` are the deployment's engines as their backends compiled them."""

    deployment: Deployment
    costs: Mapping[str, CostModel]
    ledger: Ledger


class Pattern(NamedTuple):
    """Engines and links by name, and the stages of a call."""

    engines: Mapping[str, CostModel]
    links: Mapping[str, LinkCost]
    stages: tuple[Stage, ...]


Join = Callable[[PatternParts], Pattern]


def need_engines(parts: PatternParts, *names: str) -> None:
    """Check that the deployment has exactly the engines of these names."""
    found = sorted(parts.costs)
    if found != sorted(names):
        raise SpecError(
            f"{parts.deployment.title}: pattern '{parts.deployment.pattern}' takes engines named "
            f"{', '.join(names)}; found: {', '.join(found)}"
        )


def take_link(parts: PatternParts, name: str) -> LinkCost:
    """Return a link of the deployment."""
    link = parts.deployment.links.get(name)
    if link is None:
        raise SpecError(
            f"{parts.deployment.title}: pattern '{parts.deployment.pattern}' needs a link named '{name}' "
            "with latency and bandwidth, under links"
        )
    return LinkCost(parts.ledger.take(link.latency), parts.ledger.take(link.bandwidth))
