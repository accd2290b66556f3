"""What determinism buys: the same rack scheduled with and without what only a static schedule allows.

Three variants beside the rack as it is: transfers and consumers wait for whole tensors; every transfer
pays a start-up; both. The start-up is the small all-reduce as measured on GPUs, half of it for each of the
two exchanges that make up an all-reduce. Each variant takes the mapping that is best for it.

The variants differ in the schedule alone. What a step takes beyond its schedule would be paid by all of
them, so that `gain` asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agentsim.backends.base import Batch, EngineParts
from agentsim.backends.gpu.cost import compile_gpu
from agentsim.backends.lpx.chip import PS_PER_S, to_ps
from agentsim.backends.lpx.compiler import Site, best_step, build_site
from agentsim.backends.lpx.schedule import COMPILED, Options
from agentsim.backends.lpx.step import Step
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
"""Numbers of LPUs of one rack that are asked for; of more racks, doublings up to all of them."""
CONTEXTS = (1_000, 10_000, 100_000)
GPU_COUNTS = (1, 2, 4, 8, 72)
"""Tensor-parallel sizes that are asked for; those that were not measured have no figure."""
BASELINE = ("trtllm", "b200")
"""Engine and GPU whose start-up is charged, and that is compared with."""


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens/s of one user at one context; None where the model does not fit or nothing was measured.

    `used` is how many of the chips the mapping of the schedule takes.
    """

    kind: str
    chips: int
    context: int
    tokens_per_s: float | None
    no_overlap: float | None = None
    start_up: float | None = None
    both: float | None = None
    used: int | None = None

    def gain(self, beyond_s: float = 0.0) -> float | None:
        """Return how many times faster the schedule is than `both`, if each step also takes `beyond_s`."""
        if not self.tokens_per_s or not self.both:
            return None
        return (1.0 / self.both + beyond_s) / (1.0 / self.tokens_per_s + beyond_s)

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return asdict(self)


def determinism_table(
    model: Model,
    chip: Chip,
    contexts: Sequence[int] = CONTEXTS,
    chip_counts: Sequence[int] = CHIP_COUNTS,
    gpu_counts: Sequence[int] = GPU_COUNTS,
    engine: Engine | None = None,
) -> list[Row]:
    """Return tokens/s against the number of chips: LPUs in four variants, then GPUs; batch 1, no drafts.

    Racks, precision and the planned context are those of `engine`. Without one: as few racks as a chip
    needs, FP8, and the context of the row.
    """
    rows = [row for count in chip_counts for row in _lpx_rows(model, chip, contexts, count, engine)]
    rows.sort(key=lambda row: (row.context, row.chips))
    return rows + list(_gpu_rows(model, contexts, gpu_counts, engine))


def deployment_table(model: Model, chip: Chip, engine: Engine, limit: int | None) -> list[Row]:
    """Return the table of a deployment: up to its chips, at contexts up to `limit`."""
    counts, doubled = [], CHIP_COUNTS[0]
    while doubled < engine.chips:
        counts.append(doubled)
        doubled *= 2
    contexts = [context for context in CONTEXTS if limit is None or context <= limit]
    return determinism_table(
        model, chip, contexts or [limit or CONTEXTS[0]], [*counts, engine.chips], GPU_COUNTS, engine
    )


def measured_start() -> tuple[int, float]:
    """Return the number of GPUs of the widest measured all-reduce, and what a small one takes (s)."""
    software, hardware = BASELINE
    table = catalog.load(EngineProfile, f"{software}-{hardware}").all_reduce
    widest = max(table, key=int)
    return int(widest), Ledger().take(table[widest].latency)


def gpu_start_ps() -> int:
    """Return the start-up of one exchange on GPUs (ps): half the floor of the widest measured all-reduce."""
    return to_ps(measured_start()[1]) // EXCHANGES_PER_ALL_REDUCE


def _lpx_rows(
    model: Model, chip: Chip, contexts: Sequence[int], count: int, engine: Engine | None
) -> Iterator[Row]:
    """One number of chips at all contexts; each mapping is searched for once per planned context."""
    start = gpu_start_ps()
    variants = (COMPILED, Options(overlap=False), Options(True, start), Options(False, start))
    laid_out: dict[int | None, list[tuple[Site, Step] | None]] = {}
    for context in contexts:
        wanted = _wanted(engine, count, context)
        if wanted.context not in laid_out:
            laid_out[wanted.context] = [_laid_out(model, chip, wanted, variant) for variant in variants]
        found = laid_out[wanted.context]
        speed, no_overlap, start_up, both = (at and _speed(*at, context) for at in found)
        used = found[0] and found[0][1].mapping.division.lpus
        yield Row("LPU", count, context, speed, no_overlap, start_up, both, used)


def _wanted(engine: Engine | None, count: int, context: int) -> Engine:
    if engine is None:
        return _engine("lpx", "", count).model_copy(update={"context": context})
    return engine.model_copy(update={"chips": count})


def _laid_out(model: Model, chip: Chip, engine: Engine, options: Options) -> tuple[Site, Step] | None:
    """The fastest mapping under these options; None where the model does not fit."""
    try:
        site = build_site(EngineParts(model, chip, engine, None, Ledger(), ""))
        return site, best_step(site, options)
    except InfeasibleError:
        return None


def _speed(site: Site, step: Step, context: int) -> float:
    return PS_PER_S / step.decode_ps(1, context, float(min(context, site.window or 0)))


def _gpu_rows(
    model: Model, contexts: Sequence[int], counts: Sequence[int], like: Engine | None
) -> Iterator[Row]:
    software, hardware = BASELINE
    chip = catalog.load(Chip, hardware)
    for context in contexts:
        for count in counts:
            update = {"software": software} | ({"precision": like.precision} if like else {})
            engine = _engine("gpu", hardware, count).model_copy(update=update)
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
