"""What determinism buys: the same rack scheduled with and without what only a static schedule allows.

Three variants beside the rack as it is: transfers and consumers wait for whole tensors; every transfer
pays a start-up; both. The start-up is the small all-reduce as measured on GPUs, half of it for each of the
two exchanges that make up an all-reduce. Each variant takes the mapping that is best for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agentsim.backends.base import Batch, EngineParts
from agentsim.backends.gpu.cost import compile_gpu
from agentsim.backends.lpx.chip import PS_PER_S, to_ps
from agentsim.backends.lpx.compiler import best_step, build_site
from agentsim.backends.lpx.schedule import COMPILED, Options
from agentsim.errors import InfeasibleError, MeasurementMissing
from agentsim.specs import catalog
from agentsim.specs.deployment import Engine
from agentsim.specs.engine import EngineProfile
from agentsim.specs.hardware import Chip
from agentsim.specs.model import Model
from agentsim.specs.sourced import Ledger

EXCHANGES_PER_ALL_REDUCE = 2
"""An all-reduce is a reduce-scatter and an all-gather."""
CHIP_COUNTS = (8, 16, 32, 64, 128, 256)
CONTEXTS = (1_000, 10_000, 100_000)
GPU_COUNTS = (1, 2, 4, 8, 72)
"""Tensor-parallel sizes that are asked for; those that were not measured have no figure."""
BASELINE = ("trtllm", "b200")
"""Engine and GPU whose start-up is charged, and that is compared with."""


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens/s of one user at one context; None where the model does not fit or nothing was measured."""

    kind: str
    chips: int
    context: int
    tokens_per_s: float | None
    no_overlap: float | None = None
    start_up: float | None = None
    both: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return asdict(self)


def determinism_table(
    model: Model,
    chip: Chip,
    contexts: Sequence[int] = CONTEXTS,
    chip_counts: Sequence[int] = CHIP_COUNTS,
    gpu_counts: Sequence[int] = GPU_COUNTS,
) -> list[Row]:
    """Return tokens/s against the number of chips: LPUs in four variants, then GPUs; batch 1, no drafts."""
    rows = [_lpx_row(model, chip, count, context) for context in contexts for count in chip_counts]
    return rows + list(_gpu_rows(model, contexts, gpu_counts))


def gpu_start_ps() -> int:
    """Return the start-up of one exchange on GPUs (ps): half the floor of the widest measured all-reduce."""
    software, hardware = BASELINE
    table = catalog.load(EngineProfile, f"{software}-{hardware}").all_reduce
    widest = table[max(table, key=int)]
    return to_ps(Ledger().take(widest.latency)) // EXCHANGES_PER_ALL_REDUCE


def _lpx_row(model: Model, chip: Chip, count: int, context: int) -> Row:
    start = gpu_start_ps()
    variants = (COMPILED, Options(overlap=False), Options(True, start), Options(False, start))
    return Row("LPU", count, context, *(_lpx_speed(model, chip, count, context, v) for v in variants))


def _lpx_speed(model: Model, chip: Chip, count: int, context: int, options: Options) -> float | None:
    engine = _engine("lpx", "", count).model_copy(update={"context": context})
    try:
        site = build_site(EngineParts(model, chip, engine, None, Ledger(), ""))
        step = best_step(site, options)
    except InfeasibleError:
        return None
    return PS_PER_S / step.decode_ps(1, context, site.planned_window)


def _gpu_rows(model: Model, contexts: Sequence[int], counts: Sequence[int]) -> Iterator[Row]:
    software, hardware = BASELINE
    chip = catalog.load(Chip, hardware)
    for context in contexts:
        for count in counts:
            engine = _engine("gpu", hardware, count).model_copy(update={"software": software})
            yield Row("GPU", count, context, _gpu_speed(model, chip, engine, context))


def _gpu_speed(model: Model, chip: Chip, engine: Engine, context: int) -> float | None:
    try:
        cost = compile_gpu(EngineParts(model, chip, engine, None, Ledger(), ""))
    except (InfeasibleError, MeasurementMissing):
        return None
    return 1.0 / cost.iteration_s(Batch(1, context, min(context, cost.window_tokens or 0)))


def _engine(backend: str, hardware: str, chips: int) -> Engine:
    choice = {"weights": "fp8", "kv": "fp8"}
    return Engine.model_validate(
        {"backend": backend, "hardware": hardware, "chips": chips, "precision": choice}
    )
