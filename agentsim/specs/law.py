"""Constants of the GPU cost law that hold for every engine; see `backends/gpu/forward.py` for the law."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentsim.fields import Efficiency, Line, Number, Positive, Strict
from agentsim.specs.engine import ModelClass, ServingConstants
from agentsim.specs.hardware import Precision
from agentsim.specs.sourced import Datum

Architecture = Literal["mla", "sparse_mla"]


class Kernels(Strict):
    """The format that a chip multiplies weights of another format in."""

    with_fp4_units: Precision
    without: Precision


class GpuLaw(Strict):
    """What the law takes for every engine: shapes of curves, classes of architecture, kernels."""

    title: Line
    sources: dict[str, str] = Field(default_factory=dict)
    roof_exponent: Datum[Positive]
    """How reading and multiplying overlap: (a^n + b^n)^(1/n); the maximum for large n."""
    attention_share: Datum[Efficiency]
    """Share of the bf16 peak that attention reaches in serving, in prefill and in decode."""
    layer_overhead_factors: dict[Architecture, Datum[Positive]]
    """By how much a layer's fixed time is longer than one of plain attention."""
    expert_imbalance: dict[str, Datum[Number]]
    """By groups of experts: how many standard deviations the fullest group lies over the mean."""
    draft_overhead: Datum[Number]
    """Share by which a step takes longer for each draft, beside what its passes take."""
    dispatch_bytes: Datum[Positive]
    """Bytes of one value of a token on its way to an expert or back, the mean of both ways."""
    all_to_all_share: Datum[Positive]
    """Time of an all-to-all over that of an all-reduce of as many bytes."""
    priors: dict[ModelClass, ServingConstants]
    """Where a fit of serving runs starts from, and in which range it stays."""
    multiplied_in: dict[Literal["nvfp4", "mxfp4", "int4"], Datum[Kernels]]
