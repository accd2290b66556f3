"""The screen of `run` with many agents: what they get done, how long each takes, what it costs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.fleet.outcome import Fleet
from agentsim.result import EngineLoad
from agentsim.terminal.layout import grid, indented, joined, labelled, screen, sparkline
from agentsim.terminal.run import asked_for, breakdown, overrides_line, per_turn, sources_line, spread
from agentsim.units import (
    MINUTE_S,
    bytes_text,
    count_text,
    duration_text,
    energy_text,
    rounded_text,
    share_text,
)

UNKNOWN = "unknown"
_SPARK = 24


def fleet_screen(fleet: Fleet, width: int, workflow: str, written: Sequence[str] = ()) -> RenderableType:
    """Return the whole screen of many agents of a workflow file."""
    mark = "growing" if fleet.grows else "a burst" if fleet.overload else ""
    parts: list[RenderableType] = [_heading(fleet), indented(_answer(fleet))]
    if fleet.overload:
        parts.append(indented(Text(f"{fleet.overload[0].upper()}{fleet.overload[1:]}.", style="yellow")))
    parts += [
        indented(spread(fleet.summary, mark)),
        indented(breakdown(fleet.summary, width)),
        indented(labelled(_facts(fleet, width, workflow, written))),
    ]
    return screen(*parts)


def _heading(fleet: Fleet) -> RenderableType:
    summary = fleet.summary
    first, runs = summary.first, summary.runs
    seeds = f"seeds {first.seed}-{first.seed + runs - 1}" if runs > 1 else f"seed {first.seed}"
    each = f"each {summary.model_calls:.0f} model calls, {count_text(summary.tokens.output)} tokens written"
    facts = joined([fleet.traffic.text, replicas_text(fleet), each, seeds])
    return Text.assemble((first.workflow, "bold"), *overrides_line(first), "\n", (facts, "dim"))


def replicas_text(fleet: Fleet) -> str:
    """Return how many copies share the calls, and how; nothing where there is one."""
    routing = fleet.routing
    if routing.replicas == 1:
        return ""
    return f"{routing.replicas:,} replicas, {routing.policy.replace('_', ' ')}"


def _answer(fleet: Fleet) -> Table:
    summary, times = fleet.summary, fleet.summary.completion_s
    low = "≥ " if summary.is_lower_bound else ""
    table = grid("left", "left", padding=3)
    table.columns[1].no_wrap = False
    shown = f"{low}{duration_text(times.p50)}"
    rest = f", p95 {low}{duration_text(times.p95)}   on {summary.first.deployment}"
    table.add_row(Text("Task completion time p50", style="bold"), Text.assemble((shown, "bold green"), rest))
    table.add_row(
        Text("Tasks an hour", style="bold"),
        Text.assemble((rounded_text(fleet.tasks_per_h), "bold green"), _good(fleet)),
    )
    return table


def _good(fleet: Fleet) -> str:
    if fleet.quality is None or fleet.goodput_per_h is None:
        return ""
    met = share_text(fleet.quality.share)
    return f", {rounded_text(fleet.goodput_per_h)} of them good: {met} meet the objective"


def _facts(fleet: Fleet, width: int, workflow: str, written: Sequence[str]) -> list[tuple[str, str]]:
    summary = fleet.summary
    first = summary.first
    rows = [
        ("Objective", _objective(fleet)),
        ("Tasks/h", _rates(fleet)),
        ("Agents", _agents(fleet)),
        ("Per turn", per_turn(summary)),
        ("Waiting", _waiting(fleet)),
        *_kv_rows(fleet.loads, width),
        ("Preemptions", "" if fleet.preemptions is None else f"{fleet.preemptions:,}"),
        ("Waiting for you", f"{duration_text(summary.human_s)}, not counted" if summary.human_s else ""),
        ("Cost", cost_text(fleet)),
        ("Energy", energy_line(fleet)),
        *(("Note", warning) for warning in summary.warnings),
        ("Sources", sources_line(first)),
        ("Written", ", ".join(written)),
        ("Next", _next(fleet, workflow)),
    ]
    return [row for row in rows if row[1]]


_ENGINES_SHOWN = 4
"""Of more engines the fullest of each kind is shown; all are in the JSON."""


def _objective(fleet: Fleet) -> str:
    quality = fleet.quality
    if quality is None:
        return ""
    missed = [f"{part} missed by {share_text(share)}" for part, share in quality.missed.items() if share]
    return f"{quality.objective.text}: met by {share_text(quality.share)}" + (
        f" ({', '.join(missed)})" if missed else ""
    )


def _rates(fleet: Fleet) -> str:
    each, chips = fleet.tasks_per_h_per_chip, fleet.chips
    a_chip = f"{rounded_text(each)} a chip ({chips:,} chips)" if each is not None else "chips unknown"
    return joined(
        [
            f"{rounded_text(fleet.tasks_per_h)} in all",
            a_chip,
            f"{rounded_text(fleet.tasks_per_h_per_user)} a user",
        ]
    )


def _agents(fleet: Fleet) -> str:
    slower = fleet.summary.completion_s.p50 / fleet.alone.completion_s if fleet.alone.completion_s else 1.0
    alone = f"one alone takes {duration_text(fleet.alone.completion_s)} (p50): {slower:.2g}x that here"
    return joined([f"{rounded_text(fleet.mean_alive)} alive on average, {fleet.peak_alive:,} at most", alone])


def _waiting(fleet: Fleet) -> str:
    """All agents share the slots of a tool as they share the engines: either may be short."""
    total, slots_s = fleet.summary.completion_s.avg, fleet.summary.slot_wait_s
    slots = f", {slots_s / total:.0%} for a slot of a tool" if slots_s and total else ""
    return f"{fleet.queue_share:.0%} of the task time is spent waiting for an engine{slots}"


def _kv_rows(loads: Sequence[EngineLoad], width: int) -> list[tuple[str, str]]:
    if len(loads) <= _ENGINES_SHOWN:
        return [(f"KV {load.engine}", _kv(load, width)) for load in loads]
    kinds: dict[str, list[EngineLoad]] = {}
    for load in loads:
        kinds.setdefault(load.engine.partition("#")[0], []).append(load)
    return [(f"KV {kind}", _fullest(same, width)) for kind, same in kinds.items()]


def _fullest(loads: Sequence[EngineLoad], width: int) -> str:
    fullest = max(loads, key=lambda load: load.kv_live_bytes.mean / load.kv_capacity_bytes)
    return joined([_kv(fullest, width), f"the fullest of {len(loads):,}" if len(loads) > 1 else ""])


def _kv(load: EngineLoad, width: int) -> str:
    """KV of calls that run, over time; what lies idle for a next call is told beside it."""
    room, live, cached = load.kv_capacity_bytes, load.kv_live_bytes, load.kv_cached_bytes
    spark = sparkline(load.live_series, _SPARK if width < 120 else 2 * _SPARK)
    levels = f"live {live.mean / room:.0%} of {bytes_text(room)} on average, {live.max / room:.0%} at most"
    idle = f"{cached.mean / room:.0%} idle for a next call"
    busy = f"{rounded_text(load.running.mean)} calls running, {rounded_text(load.waiting.mean)} waiting"
    return joined([spark, levels, idle, busy])


def cost_text(fleet: Fleet) -> str:
    """Return what a task costs, or that nobody knows."""
    if fleet.cost_usd is None:
        return f"{UNKNOWN}: no price is known"
    shared = ", the chips' whole time shared by the tasks" if fleet.summary.first.by_the_hour else ""
    return f"{rounded_text(fleet.cost_usd)} USD a task{shared}"


def energy_line(fleet: Fleet) -> str:
    """Return what a task takes of energy, or that nobody knows."""
    if fleet.energy_j is None:
        return f"{UNKNOWN}: no power is known"
    return f"at most {energy_text(fleet.energy_j)} a task, the chips alone at their rated power"


def _next(fleet: Fleet, workflow: str) -> str:
    bounds = fleet.quality.objective if fleet.quality else None
    if fleet.chips is None:
        return ""
    given = bounds.option if bounds else f"task={_twice(fleet.alone.completion_s)}"
    return f"agentsim capacity {workflow} --on {asked_for(fleet.summary.first)} --slo {given}"


def _twice(seconds: float) -> str:
    """Return twice a time as an objective is written, in whole minutes where it is long."""
    return f"{2 * seconds:.0f}s" if seconds < 5 * MINUTE_S else f"{2 * seconds / MINUTE_S:.0f}min"
