"""What an inference engine reaches on a GPU: efficiencies, fixed costs, scheduling defaults.

One file per engine and GPU, named `<software>-<hardware>`. Efficiencies are shares of the chip's
published peak; a mode that the engine was not measured in is absent. What stands at the top is of single
kernels; `serving` holds what whole serving runs gave, by kind of model and format of its weights, and
comes first where it is known.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentsim.fields import (
    BytesPerSecond,
    Efficiency,
    Line,
    Positive,
    PositiveCount,
    PositiveTokens,
    Seconds,
    Strict,
)
from agentsim.specs.hardware import Precision
from agentsim.specs.sourced import Datum

ModelClass = Literal["dense", "moe"]


class AllReduce(Strict):
    """An all-reduce over some number of GPUs: a start-up time, then message bytes over a bandwidth.

    Engines switch protocols with the size, so there are two regimes; the faster one is taken.
    """

    latency: Datum[Seconds]
    bandwidth: Datum[BytesPerSecond]
    large_latency: Datum[Seconds]
    large_bandwidth: Datum[BytesPerSecond]


class ServingConstants(Strict):
    """The constants of serving models of one class in one format, fitted on whole runs.

    Weights that the fit does not tell apart (those of mixtures of experts that are no experts') are read and
    multiplied as the kernels at the top of the profile do it.
    """

    layer_overhead: Datum[Seconds]
    """A layer, whatever it works on: launches and the floor of small kernels."""
    iteration_overhead: Datum[Seconds]
    """An iteration: the host's scheduling and sampling."""
    sequence_overhead: Datum[Seconds]
    """A decoding sequence of an iteration: its share of sampling, attention start-up, host work."""
    prefill_overhead: Datum[Seconds]
    """An iteration that prefills: no CUDA graph, new metadata."""
    request_overhead: Datum[Seconds]
    """A request before its prefill and after its first token: tokenization, HTTP, streaming."""
    gemm_efficiency: Datum[Efficiency] | None = None
    expert_gemm_efficiency: Datum[Efficiency] | None = None
    """Grouped products of few rows an expert, on experts that get uneven shares."""
    kv_read_efficiency: Datum[Efficiency]
    weight_read_efficiency: Datum[Efficiency] | None = None
    expert_read_efficiency: Datum[Efficiency] | None = None
    expert_skew: Datum[Positive] | None = None
    """How even routing is: T tokens read a share 1 - (1 + kT/(Eb))^-b of the experts; even for large b."""


class EngineProfile(Strict):
    """The constants of one engine on one GPU."""

    title: Line
    software: str
    hardware: str
    sources: dict[str, str] = Field(default_factory=dict)
    model_classes: tuple[ModelClass, ...] = ("dense", "moe")
    """For a profile of one version of the software: what differs in it."""
    serving: dict[ModelClass, dict[Precision, ServingConstants]] = Field(default_factory=dict)
    weight_read_efficiency: dict[Precision, Datum[Efficiency]]
    kv_read_efficiency: Datum[Efficiency]
    gemm_efficiency: dict[Precision, Datum[Efficiency]]
    attention_efficiency: Datum[Efficiency]
    layer_overhead: Datum[Seconds]
    request_overhead: Datum[Seconds]
    all_reduce: dict[str, AllReduce]
    memory_share: Datum[Efficiency]
    """Share of the memory that weights and KV may fill; or, of `free` memory, that KV may fill."""
    memory_share_of: Literal["all", "free"] = "all"
    batched_tokens: Datum[PositiveTokens]
    """Token budget of one iteration."""
    sequences: Datum[PositiveCount]
    """Sequences that run at once."""
    block_tokens: Datum[PositiveTokens] | None = None
    """Tokens of a KV block; only whole blocks are reused. Default: KV by the token."""
    scheduling: Datum[Literal["mixed", "prefill_first"]] | None = None
    """Whether an iteration decodes and prefills (the default), or prefills alone while prompts wait."""
    prompts: Datum[Literal["split", "whole"]] | None = None
    """Whether a prompt longer than what is left of the budget is split (the default) or waits."""
    admission: Datum[Literal["reserve", "grow"]] | None = None
    """Whether a call starts when its output fits too (the default), or its prompt, and may be put back."""
