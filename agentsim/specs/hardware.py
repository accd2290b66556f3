"""What a chip is: memory, bandwidth, dense compute, links, power, price.

Peak compute is *dense*; a sparse figure has no field. A precision that the chip lacks is absent.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentsim.fields import (
    Bytes,
    BytesPerSecond,
    Capacity,
    FlopsPerSecond,
    Line,
    PositiveCount,
    PositiveTokens,
    Seconds,
    Strict,
    UsdPerSecond,
    Watts,
)
from agentsim.specs.sourced import Datum

Precision = Literal["bf16", "fp8", "fp4", "nvfp4", "mxfp4", "int4"]
"""A chip multiplies in the first three; `fp4` weights are the model's own FP4 checkpoint, of either kind."""

WEIGHT_BYTES: dict[Precision, float] = {
    "bf16": 2.0,
    "fp8": 1.0,
    "fp4": 0.5,
    "nvfp4": 0.5,
    "mxfp4": 0.5,
    "int4": 0.5,
}
"""Bytes a value takes by definition of the format, without the scales of block formats."""
SCALE_BYTES: dict[Precision, float] = {"nvfp4": 1.0, "mxfp4": 1.0, "int4": 2.0}
"""Bytes of the scale that a group of values shares."""
KV_BYTES = WEIGHT_BYTES


class ScaleUp(Strict):
    """The links among the chips of one domain (NVLink, Infinity Fabric)."""

    bandwidth: Datum[BytesPerSecond]
    """One chip, one direction."""
    chips: Datum[PositiveCount]
    """How many chips one domain joins."""


class Chip(Strict):
    """One accelerator."""

    kind: Literal["gpu", "wafer", "lpu"]
    title: Line
    vendor: str
    sources: dict[str, str] = Field(default_factory=dict)
    memory: Datum[Capacity]
    memory_bandwidth: Datum[BytesPerSecond]
    dense_compute: dict[Precision, Datum[FlopsPerSecond]]
    scale_up: ScaleUp | None = None
    power: Datum[Watts] | None = None
    price: Datum[UsdPerSecond] | None = None
    vector: Datum[Capacity] | None = None
    lpu: Lpu | None = None
    rack: Rack | None = None


class Lpu(Strict):
    """What a statically scheduled chip needs beside its bandwidth and peak, and how it is served."""

    vector_compute: Datum[FlopsPerSecond]
    """Elementwise operations of the vector unit."""
    matrix_fill: Datum[Seconds]
    """From the last weight of a product to its first result in SRAM."""
    vector_start: Datum[Seconds]
    """From the last operand of an elementwise operation to its result."""
    softmax_start: Datum[Seconds]
    """As `vector_start`, for the passes of a softmax."""
    batched_tokens: Datum[PositiveTokens]
    """Token budget of one iteration."""
    sequences: Datum[PositiveCount]
    """Sequences that run at once."""
    request_overhead: Datum[Seconds]
    speculative_step_overhead: Datum[Seconds] | None = None
    """What a step with drafts takes beyond the schedule, as calibrated."""
    far_memory: Datum[Bytes] | None = None
    """DRAM behind the chip's link to its expansion logic, where KV may lie that the SRAM does not hold."""
    far_bandwidth: Datum[BytesPerSecond] | None = None
    """That link, one direction."""


class Reach(Strict):
    """Memory that is reachable within a latency."""

    memory: Bytes
    latency: Seconds


class Rack(Strict):
    """Facts of a rack that is sold as one machine."""

    chips: Datum[PositiveCount]
    trays: Datum[PositiveCount] | None = None
    power: Datum[Watts] | None = None
    price_list: Datum[str] | None = None
    scale_up_total: Datum[BytesPerSecond] | None = None
    link_bandwidth: Datum[BytesPerSecond] | None = None
    links: Datum[PositiveCount] | None = None
    lanes_in_tray: Datum[PositiveCount] | None = None
    """Links from one chip to each other chip of its tray."""
    lanes_between_trays: Datum[PositiveCount] | None = None
    """Links from one chip to its one peer in each other tray."""
    lanes_between_groups: Datum[PositiveCount] | None = None
    """Links from one chip to its twin in the other group of the rack."""
    lanes_between_racks: Datum[PositiveCount] | None = None
    """Links from one chip to its twin in a neighbouring rack."""
    lane_bandwidth: Datum[BytesPerSecond] | None = None
    """What one link carries of data, one direction."""
    chips_in_group: Datum[PositiveCount] | None = None
    """Chips of the trays that are linked all to all."""
    peers_between_trays: Datum[PositiveCount] | None = None
    """How many trays one chip has links to; absent: each of its group."""
    hop_in_tray: Datum[Seconds] | None = None
    """SRAM to SRAM over one link, end points included; so are the three below."""
    hop_between_trays: Datum[Seconds] | None = None
    hop_between_groups: Datum[Seconds] | None = None
    hop_between_racks: Datum[Seconds] | None = None
    reach: Datum[tuple[Reach, ...]] | None = None
