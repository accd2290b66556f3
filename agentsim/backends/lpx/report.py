"""A compiled step as people and Perfetto see it: where its time goes, and every event of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from agentsim.backends.base import EngineParts, expected_tokens
from agentsim.backends.lpx.chip import to_s
from agentsim.backends.lpx.compiler import best_step, build_site, step_overhead_s
from agentsim.backends.lpx.laws import check_schedule
from agentsim.backends.lpx.schedule import Event, Schedule
from agentsim.backends.lpx.step import Parts, Step, add
from agentsim.units import MICROSECOND_S


@dataclass(frozen=True, slots=True)
class ScheduleReport:
    """One decode step of one sequence (seconds). `breakdown_s` sums to `step_s`.

    `floor_s` is the schedule alone; `step_s` has the calibrated overhead of a step with drafts as well.
    Of the deployment's chips `lpus` are used: `computing_lpus` hold layers, `lending_lpus` KV alone;
    `unused_lpus` are the rest.
    """

    tensor_parallel: int
    pipeline_stages: int
    lpus: int
    computing_lpus: int
    lending_lpus: int
    unused_lpus: int
    context: int
    drafted: int
    step_s: float
    floor_s: float
    tokens_per_step: float
    breakdown_s: Parts

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return asdict(self)


class Piece(NamedTuple):
    """A schedule in its place in a step: on which stage, and from when (ps)."""

    name: str
    stage: int
    start_ps: int
    schedule: Schedule


def schedule_report(parts: EngineParts, context: int, drafted: int | None = None) -> ScheduleReport:
    """Return where the time of a step at `context` tokens goes, exactly as scheduled.

    `drafted` replaces the deployment's number of drafts. Every schedule is held against the laws.
    """
    parts = _with_drafts(parts, drafted)
    site = build_site(parts)
    step = best_step(site)
    pieces = list(sequence(step, context, min(context, site.window or 0)))
    for schedule in {id(piece.schedule): piece.schedule for piece in pieces}.values():
        check_schedule(schedule)
    times = {part: to_s(time) for part, time in add((piece.schedule, 1) for piece in pieces).items()}
    floor_s = sum(times.values())
    overhead_s, division = step_overhead_s(parts), step.mapping.division
    return ScheduleReport(
        tensor_parallel=step.mapping.width,
        pipeline_stages=len(step.mapping.stages),
        lpus=division.lpus,
        computing_lpus=division.computing,
        lending_lpus=division.lpus - division.computing,
        unused_lpus=parts.engine.chips - division.lpus,
        context=context,
        drafted=step.drafts,
        step_s=floor_s + overhead_s,
        floor_s=floor_s,
        tokens_per_step=expected_tokens(parts.drafter.acceptance(parts.ledger)) if parts.drafter else 1.0,
        breakdown_s={**times, "overhead": times["overhead"] + overhead_s},
    )


def schedule_trace(parts: EngineParts, context: int, drafted: int | None = None) -> Iterator[str]:
    """Yield the pieces of a trace-event file: a process per stage, a track per unit, every event.

    One chip stands for all of its stage. Times are in microseconds, as the format wants.
    """
    site = build_site(_with_drafts(parts, drafted))
    step = best_step(site)
    pieces = list(sequence(step, context, min(context, site.window or 0)))
    units = list(dict.fromkeys(event.unit for piece in pieces for event in piece.schedule.events))
    yield '{"displayTimeUnit":"ns","traceEvents":[\n'
    width = step.mapping.width
    yield json.dumps({"ph": "M", "pid": 0, "name": "process_name", "args": {"name": "schedule"}})
    for stage in range(len(step.mapping.stages)):
        name = f"stage {stage + 1}: one of {width} LPUs"
        yield ",\n" + json.dumps(
            {"ph": "M", "pid": stage + 1, "name": "process_name", "args": {"name": name}}
        )
        for track, unit in enumerate(units):
            args = {"name": unit}
            head = {"ph": "M", "pid": stage + 1, "tid": track + 1, "name": "thread_name", "args": args}
            yield ",\n" + json.dumps(head)
    for piece in pieces:
        for event in piece.schedule.events:
            yield ",\n" + json.dumps(_slice(piece, event, units.index(event.unit)))
    yield "\n]}\n"


def sequence(step: Step, context: float, window: float) -> Iterator[Piece]:
    """Yield all schedules of a step of one sequence in order, each starting where the one before ends."""
    start = 0
    for name, stage, schedule in _programs(step, context, window):
        yield Piece(name, stage, start, schedule)
        start += schedule.makespan_ps


def _programs(step: Step, context: float, window: float) -> Iterator[tuple[str, int, Schedule]]:
    last = len(step.mapping.stages) - 1
    for draft in range(step.drafts):
        for schedule, count in step.draft_schedules(1, context, window):
            yield from ((f"draft {draft + 1}", last, schedule) for _ in range(count))
    yield "look-up", 0, step.entry(step.rows)
    number = 0
    for index, layers in enumerate(step.mapping.stages):
        for place, layer in enumerate(layers):
            number += 1
            onward = step.onward(index) if place == len(layers) - 1 else ()
            yield f"layer {number}", index, step.layer(layer, step.rows, context, window, onward)
    yield "head", last, step.exit(step.rows)


def _slice(piece: Piece, event: Event, track: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": piece.stage + 1,
        "tid": track + 1,
        "name": event.label,
        "cat": event.part,
        "ts": to_s(piece.start_ps + event.start) / MICROSECOND_S,
        "dur": to_s(event.end - event.start) / MICROSECOND_S,
        "args": {"program": piece.name, "vectors": event.vectors, "ports": event.ports},
    }


def _with_drafts(parts: EngineParts, drafted: int | None) -> EngineParts:
    if drafted is None or parts.drafter is None:
        return parts
    return parts._replace(drafter=parts.drafter._replace(tokens=drafted) if drafted else None)
