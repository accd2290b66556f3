"""What an inference engine reaches on a GPU: efficiencies, fixed costs, scheduling defaults.

One file per engine and GPU, named `<software>-<hardware>`. Efficiencies are shares of the chip's
published peak; a mode that the engine was not measured in is absent.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentsim.fields import BytesPerSecond, Efficiency, Line, PositiveCount, PositiveTokens, Seconds, Strict
from agentsim.specs.hardware import Precision
from agentsim.specs.sourced import Datum


class AllReduce(Strict):
    """An all-reduce over some number of GPUs: a start-up time, then message bytes over a bandwidth.

    Engines switch protocols with the size, so there are two regimes; the faster one is taken.
    """

    latency: Datum[Seconds]
    bandwidth: Datum[BytesPerSecond]
    large_latency: Datum[Seconds]
    large_bandwidth: Datum[BytesPerSecond]


class EngineProfile(Strict):
    """The constants of one engine on one GPU."""

    title: Line
    software: str
    hardware: str
    sources: dict[str, str] = Field(default_factory=dict)
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
    admission: Datum[Literal["reserve", "grow"]] | None = None
    """Whether a call starts when its output fits too (the default), or its prompt, and may be put back."""
