"""From specs to a cost model: checks what cannot be, tries the mappings, compiles the fastest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from agentsim.backends.base import Drafter, EngineParts, expected_tokens
from agentsim.backends.lpx.chip import Lpu, build_lpu, check_kv_precision
from agentsim.backends.lpx.cost import LpxCost, compile_times, pair_slopes
from agentsim.backends.lpx.fabric import Fabric, Level, build_fabric, check_room
from agentsim.backends.lpx.mapping import (
    Division,
    Load,
    divisions,
    fewest_lpus,
    kv_capacity,
    kv_needed,
    kv_per_token,
    largest_context,
    place,
)
from agentsim.backends.lpx.schedule import COMPILED, Options
from agentsim.backends.lpx.step import Step, build_step
from agentsim.errors import InfeasibleError
from agentsim.specs import model as shapes
from agentsim.specs.deployment import Engine
from agentsim.specs.hardware import WEIGHT_BYTES, Chip
from agentsim.specs.model import Model, Shape
from agentsim.specs.sourced import Ledger
from agentsim.units import bytes_text, count_text

DEFAULT_CONTEXT = 131_072
"""Context (tokens) that is planned for where neither the deployment nor the model says one."""
MOST_RACKS = 64
"""How far the search goes for a number of racks that would hold a model."""


@dataclass(frozen=True)
class Site:
    """The chips of an engine, and what is to be held on them."""

    lpu: Lpu
    fabric: Fabric
    load: Load
    engine: Engine
    drafts: int
    window: int | None

    @property
    def widths(self) -> list[int]:
        """Widths to try: the one that was asked for, or all that the fabric offers."""
        asked = self.engine.tensor_parallel
        return [asked] if asked else self.fabric.widths()

    @property
    def planned_window(self) -> float:
        return float(min(self.load.context, self.window or 0))


def compile_lpx(parts: EngineParts) -> LpxCost:
    """Return the cost model of an engine of LPUs.

    Raises `InfeasibleError` with what would fit, `SpecError` for a chip that is no LPU.
    """
    site = build_site(parts)
    step = best_step(site)
    _warn_of_idle(step, site.engine, parts.ledger)
    return cost_of(step, site, parts)


def runner_up(parts: EngineParts) -> LpxCost | None:
    """Return the cost on the best mapping of another kind than the one `compile_lpx` takes; None: no other.

    Kinds differ in whether KV heads are copied and whether KV is spread over stages (`mapping.py`). Where
    both are as fast at the context planned for, their speeds at other contexts show what rests on the choice.
    """
    site = build_site(parts)
    chosen, *others = ranked_steps(site)
    other = next((step for step in others if step.mapping.kind != chosen.mapping.kind), None)
    return cost_of(other, site, parts) if other else None


def build_site(parts: EngineParts) -> Site:
    """Return chips and load of an engine, once everything about them that cannot be is refused."""
    engine, ledger = parts.engine, parts.ledger
    lpu = build_lpu(parts.chip, engine.precision.weights, ledger)
    check_kv_precision(parts.chip, engine.precision.kv, engine.precision.weights, ledger)
    fabric = build_fabric(parts.chip, engine.racks, ledger)
    check_room(engine.chips, engine.racks, parts.chip)
    shape = ledger.take(parts.model.shape)
    check_width(engine, fabric)
    drafts = parts.drafter.tokens if parts.drafter else 0
    return Site(lpu, fabric, _load(parts, shape), engine, drafts, _window_of(shape))


def best_step(site: Site, options: Options = COMPILED) -> Step:
    """Return the step of the mapping that decodes fastest for the users and the context planned for."""
    return ranked_steps(site, options)[0]


def ranked_steps(site: Site, options: Options = COMPILED) -> list[Step]:
    """Return the steps of all mappings, the fastest first; of equals the one on fewer chips."""
    load = site.load
    found = [
        build_step(load, place(division, site.fabric), site.lpu, site.fabric, site.drafts, options)
        for division in _divisions(site)
    ]
    if not found:
        raise InfeasibleError(_what_fits(site))
    return sorted(
        found,
        key=lambda step: (
            step.decode_ps(load.users, load.context, site.planned_window),
            step.mapping.division.lpus,
        ),
    )


def _warn_of_idle(step: Step, engine: Engine, ledger: Ledger) -> None:
    idle = engine.chips - step.mapping.division.lpus
    if idle:
        ledger.warn(f"{idle} of {engine.chips} LPUs are not used by the mapping that decodes fastest")


def _divisions(site: Site) -> Iterator[Division]:
    engine = site.engine
    return divisions(
        site.load, site.fabric, site.widths, site.lpu.memory_bytes, engine.chips, engine.pipeline_stages
    )


def cost_of(step: Step, site: Site, parts: EngineParts) -> LpxCost:
    """Return the cost model of a step; notes the facts that its schedules rest on."""
    chip, load, drafter = parts.chip, site.load, parts.drafter
    assert chip.lpu is not None, "checked when the site was built"
    take, facts, mapping = parts.ledger.take, chip.lpu, step.mapping
    _note(step, parts.ledger)
    batched, sequences = take(facts.batched_tokens), take(facts.sequences)
    times = compile_times(step, batched, sequences, load.context, site.window)
    pair, window_pair = pair_slopes(step)
    near = kv_capacity(load, mapping, site.lpu.memory_bytes, site.window)
    far, far_byte_s = _far_memory(chip, mapping.division.lpus, parts.ledger)
    held = [layer for stage in mapping.stages for layer in stage] + load.drafter_layers()
    per_token, per_window = kv_per_token(held, load.kv_bytes)
    return LpxCost(
        layers=times.layers,
        head=times.head,
        drafts=times.drafts,
        context=times.context,
        window=times.window,
        pair=pair,
        window_pair=window_pair,
        step_overhead_s=step_overhead_s(parts),
        verified_tokens=step.rows,
        tokens_per_step=expected_tokens(drafter.acceptance(parts.ledger)) if drafter else 1.0,
        window_tokens=site.window,
        kv_bytes_per_token=per_token,
        window_bytes_per_token=per_window,
        kv_capacity_bytes=near + far,
        kv_knee_bytes=near,
        far_byte_s=far_byte_s,
        batched_tokens=batched,
        max_sequences=sequences,
        request_s=take(facts.request_overhead),
        tensor_parallel=mapping.width,
        pipeline_stages=len(mapping.stages),
        lpus=mapping.division.lpus,
    )


def _far_memory(chip: Chip, lpus: int, ledger: Ledger) -> tuple[float, float]:
    """Return the bytes of DRAM behind all chips, and the seconds a byte takes from there; none: (0, 0)."""
    if chip.lpu is None or chip.lpu.far_memory is None or chip.lpu.far_bandwidth is None:
        return 0.0, 0.0
    size, rate = ledger.take(chip.lpu.far_memory), ledger.take(chip.lpu.far_bandwidth)
    return size * lpus, 1.0 / (rate * lpus)


def step_overhead_s(parts: EngineParts) -> float:
    """Return what a step takes beyond its schedule, as calibrated; without drafts nobody has measured it."""
    overhead = parts.chip.lpu.speculative_step_overhead if parts.chip.lpu else None
    if parts.drafter and overhead:
        return parts.ledger.take(overhead)
    parts.ledger.leave_out("what a step takes beyond its schedule")
    return 0.0


def lpus_for_weights(model: Model, chip: Chip, ledger: Ledger) -> int:
    """Return the fewest LPUs whose SRAM, all of it, is as large as the model's weights in 8 bit."""
    weights = shapes.total_parameters(ledger.take(model.shape)) * WEIGHT_BYTES["fp8"]
    return int(-(-weights // ledger.take(chip.memory)))


def _load(parts: EngineParts, shape: Shape) -> Load:
    drafter, engine = parts.drafter, parts.engine
    if drafter is not None:
        _check_vocabulary(drafter, shape, parts)
    return Load(
        shape=shape,
        drafter=parts.ledger.take(drafter.model.shape) if drafter else None,
        drafter_kv=bool(drafter and drafter.model.drafting and not drafter.model.drafting.shares_kv),
        weight_bytes=WEIGHT_BYTES[engine.precision.weights],
        kv_bytes=WEIGHT_BYTES[engine.precision.kv],
        users=max(engine.users, 1),
        context=_planned_context(parts),
    )


def _planned_context(parts: EngineParts) -> int:
    limit, asked = parts.ledger.take_or_none(parts.model.context), parts.engine.context
    if asked is not None and limit is not None and asked > limit:
        raise InfeasibleError(
            f"context is {count_text(asked)}; {parts.model.title} takes at most {count_text(limit)}"
        )
    return (limit or DEFAULT_CONTEXT) if asked is None else asked


def _check_vocabulary(drafter: Drafter, shape: Shape, parts: EngineParts) -> None:
    theirs = parts.ledger.take(drafter.model.shape).vocab
    if theirs != shape.vocab:
        raise InfeasibleError(
            f"{drafter.model.title} drafts from a vocabulary of {theirs:,} tokens, {parts.model.title} has "
            f"{shape.vocab:,}: take a drafter made for it, or leave speculation out"
        )


def check_width(engine: Engine, fabric: Fabric) -> None:
    """Refuse a width at which the chips of a stage would not see the same links."""
    widths = fabric.widths()
    if engine.tensor_parallel is not None and engine.tensor_parallel not in widths:
        raise InfeasibleError(
            f"tensor_parallel is {engine.tensor_parallel}; where all chips see the same links it is one of "
            f"{', '.join(map(str, widths))}"
        )


def _window_of(shape: Shape) -> int | None:
    widths = {g.window_tokens for g in shape.attention if g.kind == "window"}
    if len(widths) > 1:
        raise InfeasibleError(f"windows of different widths ({sorted(map(str, widths))}) are not modelled")
    return next(iter(widths)) if widths else None


def _note(step: Step, ledger: Ledger) -> None:
    levels = [span.level for span in (*step.stage.spans, step.stage.lenders) if span is not None]
    levels += [hop for hops in (*step.mapping.onward, step.mapping.back) for hop in hops]
    note_levels(levels, ledger)


def note_levels(levels: Iterable[Level], ledger: Ledger) -> None:
    """Note hops and lanes of the levels that a mapping's schedules use, and of no others."""
    for datum in (datum for level in levels for datum in level.data):
        ledger.take(datum)


def _what_fits(site: Site) -> str:
    """Return why nothing fits, and what would."""
    load, engine, memory = site.load, site.engine, site.lpu.memory_bytes
    weights = shapes.total_parameters(load.shape) * load.weight_bytes + load.drafter_bytes()
    said = (
        f"{bytes_text(weights)} of weights and {bytes_text(kv_needed(load))} of KV for {load.users} x "
        f"{count_text(load.context)} tokens do not fit {engine.chips} LPUs of {bytes_text(memory)}"
        f"{_asked(engine)}: "
    )
    answers = []
    enough = fewest_lpus(load, site.fabric, site.widths, memory, MOST_RACKS * site.fabric.chips)
    if enough is not None and engine.pipeline_stages is None:
        answers.append(_chips_text(enough, site))
    shorter = largest_context(load, site.fabric, site.widths, memory, engine.chips)
    if shorter and engine.pipeline_stages is None:
        answers.append(f"context: {shorter // 1000}k")
    if _fits_freely(site):
        answers.append("no tensor_parallel and pipeline_stages, so that they are chosen")
    return said + (f"it would with {', or '.join(answers)}" if answers else "no number of racks holds it")


def _asked(engine: Engine) -> str:
    asked = [
        f"{name} {value}"
        for name, value in (
            ("tensor_parallel", engine.tensor_parallel),
            ("pipeline_stages", engine.pipeline_stages),
        )
        if value is not None
    ]
    return f" at {' and '.join(asked)}" if asked else ""


def _chips_text(chips: int, site: Site) -> str:
    one = site.fabric.chips // site.engine.racks
    racks = -(-chips // one)
    return f"chips: {chips}" if racks <= site.engine.racks else f"chips: {chips} and racks: {racks}"


def _fits_freely(site: Site) -> bool:
    engine = site.engine
    if engine.tensor_parallel is None and engine.pipeline_stages is None:
        return False
    free = replace(site, engine=engine.model_copy(update={"tensor_parallel": None, "pipeline_stages": None}))
    return fewest_lpus(site.load, site.fabric, free.widths, site.lpu.memory_bytes, engine.chips) is not None
