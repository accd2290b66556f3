"""How the engines of a deployment share a model call.

A pattern module exposes `PLUGIN`, a function from `PatternParts` to a `Pattern`: the engines that the
simulation runs, the links between them, and the stages that every call goes through, in order. A pattern
that works within one iteration joins several engines into one cost model; a pattern that works on a call
stage by stage keeps them apart. It raises `SpecError` where the deployment's engines or links do not suit it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from agentsim import plugins
from agentsim.backends.base import Batch, CostModel, Drafter, EngineParts, IterationCost
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
    """KV cache crosses a link: all of it, or only the new part. Bytes of one token, and of one in a window.

    They count each element once: engines that keep copies make them at home.
    """

    link: str
    token_bytes: float
    window_bytes: float
    window_tokens: int | None
    whole: bool

    def bytes(self, prompt: int, cached: int) -> float:
        """Return what crosses for a prompt of which `cached` tokens are there already."""
        return self._held(prompt) - (0.0 if self.whole else self._held(cached))

    def _held(self, context: int) -> float:
        return context * self.token_bytes + min(context, self.window_tokens or 0) * self.window_bytes


@dataclass(frozen=True, slots=True)
class Way:
    """One way that a call can go: its conditions, the engine; whether KV moves there (None: if cheaper)."""

    engine: str
    context_over: int | None = None
    new_tokens_over: int | None = None
    role: str | None = None
    moves: bool | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """The first way whose conditions hold is taken. `moves` says what crosses to each engine by the link."""

    ways: tuple[Way, ...]
    moves: Mapping[str, Move]


Step = Serve | Move
Stage = Step | Route


class LinkCost(NamedTuple):
    """A link between engines: seconds until the first byte is there, bytes per second.

    Each of its `lanes` carries so many bytes per second, one transfer at a time.
    """

    latency_s: float
    bytes_per_s: float
    lanes: int = 1

    def time_s(self, size_bytes: float) -> float:
        """Return the seconds until all of `size_bytes` have arrived."""
        return self.latency_s + size_bytes / self.bytes_per_s


class PatternParts(NamedTuple):
    """What a pattern joins: its engines without a drafter, and the draft lengths that it may choose from.

    `drafters` is empty without speculation. Which engine drafts is the pattern's to say.
    """

    deployment: Deployment
    engines: Mapping[str, EngineParts]
    drafters: tuple[Drafter, ...]
    ledger: Ledger


class Pattern(NamedTuple):
    """Engines and links by name, and the stages of a call."""

    engines: Mapping[str, CostModel]
    links: Mapping[str, LinkCost]
    stages: tuple[Stage, ...]


Join = Callable[[PatternParts], Pattern]


def need_engines(parts: PatternParts, *names: str, own_model: Collection[str] = ()) -> None:
    """Check that the deployment has exactly the engines of these names; who runs a model of its own."""
    deployment, found = parts.deployment, sorted(parts.engines)
    if found != sorted(names):
        raise SpecError(
            f"{deployment.title}: pattern '{deployment.pattern}' takes engines named "
            f"{', '.join(names)}; found: {', '.join(found)}"
        )
    check_fields(parts, own_model)


def check_fields(parts: PatternParts, own_model: Collection[str] = ()) -> None:
    """Refuse a model on an engine that runs the deployment's, and rules that nobody follows."""
    deployment = parts.deployment
    if deployment.pattern != "routed" and (deployment.rules or deployment.default):
        raise SpecError(f"{deployment.title}: only pattern 'routed' follows rules and has a default")
    for name, engine in parts.deployment.engines.items():
        if engine.workers > 1 and deployment.pattern != "prefill-decode":
            raise SpecError(
                f"{deployment.title}: engine '{name}' has {engine.workers} workers; only pattern "
                "'prefill-decode' has any number, others have replicas"
            )
        if engine.model not in (None, parts.deployment.model) and name not in own_model:
            raise SpecError(
                f"{parts.deployment.title}: engine '{name}' names a model of its own ({engine.model}); only "
                "the engine 'draft' of pattern 'external-drafter' does"
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


def compiled(parts: EngineParts) -> IterationCost:
    """Return an engine as its backend compiles it."""
    backend: Callable[[EngineParts], IterationCost] = plugins.load("backends", parts.engine.backend)
    return backend(parts)


def with_drafter(parts: EngineParts, drafters: Iterable[Drafter]) -> IterationCost:
    """Return an engine with the drafter beside its target, at the length that decodes fastest alone."""
    choices = [compiled(parts._replace(drafter=drafter)) for drafter in drafters]
    return min(choices, key=token_s) if choices else compiled(parts)


TYPICAL_CONTEXT = 10_000
"""Where draft lengths are compared; the best one hardly depends on it."""


def token_s(cost: IterationCost, context: int = TYPICAL_CONTEXT) -> float:
    """Seconds per token of one sequence that decodes alone."""
    window = min(context, cost.window_tokens) if cost.window_tokens else 0
    return cost.iteration_s(Batch(1, context, window)) / cost.tokens_per_step
