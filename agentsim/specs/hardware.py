"""What a chip is: memory, bandwidth, dense compute, links, power, price.

Peak compute is *dense*; a sparse figure has no field. A precision that the chip lacks is absent.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentsim.fields import Bytes, BytesPerSecond, Count, FlopsPerSecond, Seconds, Strict, UsdPerSecond, Watts
from agentsim.specs.sourced import Datum

Precision = Literal["bf16", "fp8", "fp4"]

WEIGHT_BYTES: dict[Precision, float] = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5 + 1 / 16}
"""Bytes a value takes by definition of the format; fp4 carries one scale byte for sixteen values."""


class ScaleUp(Strict):
    """The links among the chips of one domain (NVLink, Infinity Fabric)."""

    bandwidth: Datum[BytesPerSecond]
    """One chip, one direction."""
    chips: Datum[Count]
    """How many chips one domain joins."""


class Chip(Strict):
    """One accelerator."""

    kind: Literal["gpu", "wafer", "lpu"]
    title: str
    vendor: str
    sources: dict[str, str] = Field(default_factory=dict)
    memory: Datum[Bytes]
    memory_bandwidth: Datum[BytesPerSecond]
    dense_compute: dict[Precision, Datum[FlopsPerSecond]]
    scale_up: ScaleUp | None = None
    power: Datum[Watts] | None = None
    price: Datum[UsdPerSecond] | None = None
    vector: Datum[Bytes] | None = None
    rack: Rack | None = None


class Reach(Strict):
    """Memory that is reachable within a latency."""

    memory: Bytes
    latency: Seconds


class Rack(Strict):
    """Facts of a rack that is sold as one machine."""

    chips: Datum[Count]
    trays: Datum[Count] | None = None
    power: Datum[Watts] | None = None
    price_list: Datum[str] | None = None
    scale_up_total: Datum[BytesPerSecond] | None = None
    link_bandwidth: Datum[BytesPerSecond] | None = None
    links: Datum[Count] | None = None
    lanes_in_tray: Datum[Count] | None = None
    """Links from one chip to each other chip of its tray."""
    lanes_between_trays: Datum[Count] | None = None
    """Links from one chip to its one peer in each other tray."""
    reach: Datum[tuple[Reach, ...]] | None = None
