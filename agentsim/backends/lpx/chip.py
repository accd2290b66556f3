"""One LPU as functional units, each with its own timing: matrix, vector, SRAM, links.

Physics: bytes over SRAM bandwidth, operations over peak. Published: SRAM, its bandwidth, the 8-bit peak,
320-byte vectors. Assumed: the vector unit's rate and the start-up of each kind of operation, because
the LP30's clock is undisclosed; their ranges are bracketed with generation 1.

A product reads its weights while it multiplies, so that it takes the longer of the two times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from agentsim.errors import InfeasibleError, SpecError
from agentsim.specs.hardware import WEIGHT_BYTES, Chip, Precision
from agentsim.specs.sourced import Datum, Ledger

PS_PER_S = 1e12
"""Schedules count integer picoseconds: a vector on a link takes a few thousand of them."""
FLOPS_PER_WEIGHT = 2.0
"""A multiplication and an addition."""
NORM_OPERATIONS = 4.0
"""Elementwise: square, sum, scale, residual addition."""
SOFTMAX_OPERATIONS = 5.0
"""Elementwise: maximum, difference, exponential, sum, scale."""
GATE_OPERATIONS = 4.0
"""Elementwise: activation as a table look-up with interpolation, times the other half, conversion."""
ROTATE_OPERATIONS = 3.0
"""Elementwise: two products and a sum of a rotary embedding."""
SAMPLE_OPERATIONS = 3.0
"""Elementwise: scale, noise, maximum; a sample is the maximum of perturbed logits (Gumbel)."""


def to_ps(seconds: float) -> int:
    """Round seconds to the schedule's picoseconds."""
    return round(seconds * PS_PER_S)


def to_s(picoseconds: float) -> float:
    """Return picoseconds as seconds."""
    return picoseconds / PS_PER_S


@dataclass(frozen=True, slots=True)
class Lpu:
    """What schedules are laid out on; `vector_bytes` is the unit of all data."""

    title: str
    memory_bytes: float
    sram_bytes_per_s: float
    flops_per_s: float
    vector_ops_per_s: float
    vector_bytes: float
    matrix_fill_ps: int
    vector_start_ps: int
    softmax_start_ps: int

    def vectors(self, size_bytes: float) -> int:
        """Return the vectors that hold `size_bytes`: at least one, the last one padded."""
        return max(1, math.ceil(size_bytes / self.vector_bytes - 1e-9))

    def read_ps(self, size_bytes: float) -> int:
        """Return the time to read `size_bytes` from SRAM."""
        return to_ps(size_bytes / self.sram_bytes_per_s)

    def multiply_ps(self, flops: float) -> int:
        """Return the time of a product at the matrix unit's peak."""
        return to_ps(flops / self.flops_per_s)

    def elementwise_ps(self, operations: float) -> int:
        """Return the time of elementwise operations at the vector unit's rate."""
        return to_ps(operations / self.vector_ops_per_s)


def build_lpu(chip: Chip, precision: Precision, ledger: Ledger) -> Lpu:
    """Return the units of a chip; `InfeasibleError` names the precisions that it has."""
    if chip.lpu is None or chip.vector is None:
        raise SpecError(f"{chip.title} is no LPU: the lpx backend needs its sections 'lpu' and 'vector'")
    take, facts = ledger.take, chip.lpu
    return Lpu(
        title=chip.title,
        memory_bytes=take(chip.memory),
        sram_bytes_per_s=take(chip.memory_bandwidth),
        flops_per_s=take(_peak(chip, precision, "weights")),
        vector_ops_per_s=take(facts.vector_compute),
        vector_bytes=take(chip.vector),
        matrix_fill_ps=to_ps(take(facts.matrix_fill)),
        vector_start_ps=to_ps(take(facts.vector_start)),
        softmax_start_ps=to_ps(take(facts.softmax_start)),
    )


def check_kv_precision(chip: Chip, kv: Precision, weights: Precision, ledger: Ledger) -> None:
    """Refuse a KV format that the chip cannot multiply; warn of one whose peak is not published."""
    if WEIGHT_BYTES[kv] < min(WEIGHT_BYTES[p] for p in chip.dense_compute):
        _peak(chip, kv, "kv")
    if kv not in chip.dense_compute:
        ledger.warn(
            f"{chip.title} has no published {kv} peak: attention to {kv} KV is timed at the {weights} peak, "
            "which may be too fast"
        )


def _peak(chip: Chip, precision: Precision, field: str) -> Datum[float]:
    if precision not in chip.dense_compute:
        has = ", ".join(chip.dense_compute)
        raise InfeasibleError(
            f"{chip.title} has no {precision}; it has {has}: set precision.{field} to {has}"
        )
    return chip.dense_compute[precision]
