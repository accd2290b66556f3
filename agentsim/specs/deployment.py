"""What a task runs on: engines, the pattern that joins them, the model, speculation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agentsim.fields import (
    BytesPerSecond,
    Capacity,
    Count,
    Line,
    PositiveCount,
    Probability,
    Seconds,
    Strict,
    Tokens,
)
from agentsim.specs.hardware import Precision
from agentsim.specs.sourced import Datum


class PrecisionChoice(Strict):
    """The number formats of one engine."""

    weights: Precision
    kv: Annotated[Precision, Field(description="of the KV cache")]


class OffloadTier(Strict):
    """Memory that KV is offloaded to: its size, and its rate back, all chips together."""

    capacity: Datum[Capacity]
    bandwidth: Datum[BytesPerSecond]


class KvOffload(Strict):
    """Where KV goes that an engine evicts: host memory, then SSDs."""

    host: OffloadTier | None = None
    ssd: OffloadTier | None = None


OF_GPUS = (
    *("software", "kv_offload", "attention_dp", "expert_parallel"),
    *("receive_interval", "balance_wait", "batch_wait", "batch_wait_share"),
)
"""Fields of an engine that mean nothing on LPUs."""
OF_LPUS = ("racks", "users", "context")
"""Those that mean nothing on GPUs."""


class Engine(Strict):
    """A group of chips that holds one copy of the model."""

    backend: str = "gpu"
    model: Annotated[
        str | None, Field(description="a drafter that runs here alone; default: the deployment's model")
    ] = None
    hardware: str
    chips: Count = 1
    workers: Annotated[
        PositiveCount, Field(description="pattern prefill-decode: so many of it, each of `chips`")
    ] = 1
    chips_estimate: Annotated[
        Datum[PositiveCount] | None,
        Field(description="where nobody has said how many chips; it holds as long as `chips` is its value"),
    ] = None
    precision: PrecisionChoice
    software: Annotated[
        str | None, Field(description="the engine that runs on it, as in an engine profile")
    ] = None
    kv_offload: Annotated[
        KvOffload | None, Field(description="GPUs: where KV goes that the engine evicts; default: nowhere")
    ] = None
    racks: Annotated[Count, Field(description="LPUs: racks that the chips may lie in")] = 1
    tensor_parallel: Annotated[
        Count | None,
        Field(
            description="LPUs: chips that share a layer; default: what decodes fastest. "
            "GPUs: those that share an attention: chips / (pipeline_stages x attention_dp)"
        ),
    ] = None
    pipeline_stages: Annotated[
        PositiveCount | None,
        Field(description="groups of layers; default: 1 on GPUs, on LPUs as few as hold the model"),
    ] = None
    attention_dp: Annotated[
        PositiveCount, Field(description="GPUs: copies of the attention, each with its own sequences")
    ] = 1
    expert_parallel: Annotated[
        PositiveCount, Field(description="GPUs: groups that the routed experts are divided among")
    ] = 1
    receive_interval: Annotated[
        PositiveCount,
        Field(description="GPUs: decode iterations from look to look at new calls (scheduler-recv-interval)"),
    ] = 1
    balance_wait: Annotated[
        PositiveCount | None,
        Field(
            description="GPUs with attention_dp: iterations that prompts wait, while all copies decode, "
            "until each has one (TensorRT-LLM attention_dp_config); default: none"
        ),
    ] = None
    batch_wait: Annotated[
        PositiveCount | None,
        Field(
            description="GPUs: iterations that prompts wait, from the first on, for others to prefill with "
            "(TensorRT-LLM batch_wait_timeout_iters); default: none"
        ),
    ] = None
    batch_wait_share: Annotated[
        Probability, Field(description="share of the token budget that ends this wait")
    ] = 1.0
    users: Annotated[Count, Field(description="LPUs: sequences whose KV is planned for")] = 1
    context: Annotated[
        Tokens | None, Field(description="LPUs: context planned for; default: the model's")
    ] = None


class Speculation(Strict):
    """A drafter, how many tokens it drafts a step, and the kind of text its acceptance is for."""

    drafter: str
    draft_tokens: Annotated[Count | None, Field(description="default: what decodes fastest alone")] = None
    text: str = "code"


class Link(Strict):
    """A link between the engines of a deployment; of several workers each pair has one."""

    latency: Datum[Seconds]
    bandwidth: Datum[BytesPerSecond]


class When(Strict):
    """What a call must be for a rule to hold; all that is given must hold."""

    context_over: Annotated[Tokens | None, Field(description="its prompt is longer")] = None
    new_tokens_over: Annotated[Tokens | None, Field(description="more of its prompt is not cached")] = None
    role: Annotated[str | None, Field(description="the sub-agent that calls; 'main' is the first agent")] = (
        None
    )


class Rule(Strict):
    """Where calls go, and what becomes of the KV that they left on another engine.

    `kv`: it moves over the link, is prefilled again, or whichever is estimated to be cheaper.
    """

    when: When
    to: str
    kv: Literal["cheaper", "move", "prefill"] = "cheaper"


class Deployment(Strict):
    """Engines by name, and the co-execution pattern that says which does what.

    `kv` says what crosses to an engine that decodes for another: the whole cache, or the `new` part where
    it keeps the rest between the turns of a session.
    """

    title: Line
    model: str
    sources: dict[str, str] = Field(default_factory=dict)
    pattern: str = "single"
    engines: dict[str, Engine]
    links: dict[str, Link] = Field(default_factory=dict)
    kv: Literal["new", "whole"] = "new"
    attention_overhead_share: Annotated[
        Datum[Probability] | None,
        Field(description="pattern attention-ffn: the attention's share of a GPU layer's fixed time"),
    ] = None
    speculation: Speculation | None = None
    rules: Annotated[
        tuple[Rule, ...], Field(description="pattern routed: the first that holds is followed")
    ] = ()
    replicas: Annotated[
        PositiveCount, Field(description="copies of all the engines, each with links of its own")
    ] = 1
    router: Annotated[
        Literal["round_robin", "least_loaded", "prefix_aware"],
        Field(description="which replica a call goes to"),
    ] = "prefix_aware"
    default: Annotated[str | None, Field(description="pattern routed: the engine of all other calls")] = None
