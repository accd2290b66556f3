"""What a task runs on: engines, the pattern that joins them, the model, speculation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agentsim.fields import Count, Strict
from agentsim.specs.hardware import Precision


class PrecisionChoice(Strict):
    """The number formats of one engine."""

    weights: Precision
    kv: Precision | None = None


class Engine(Strict):
    """A group of chips that holds one copy of the model."""

    backend: str = "gpu"
    hardware: str
    chips: Count = 1
    precision: PrecisionChoice
    software: Annotated[str | None, Field(description="the engine profile; default: the best measured")] = (
        None
    )


class Speculation(Strict):
    """A drafter, how many tokens it drafts a step, and the kind of text its acceptance is for."""

    drafter: str
    draft_tokens: Count
    text: str = "code"


class Deployment(Strict):
    """Engines by name, and the co-execution pattern that says which does what."""

    title: str
    model: str
    pattern: str = "single"
    engines: dict[str, Engine]
    speculation: Speculation | None = None


EndpointName = Annotated[str, Field(description="the name of an endpoint")]
Kind = Literal["hardware", "models", "engines", "endpoints", "deployments"]
