"""What the verbs about hardware do, without the command line: replay benchmarks, lay out schedules.

Returns data; prints nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agentsim.anchor_measures import Runs
from agentsim.anchors import (
    Constant,
    Reading,
    Row,
    calibrate_b300,
    calibrate_lpx,
    in_catalog,
    readings,
    run_anchors,
)
from agentsim.backends.base import Drafter, EngineParts
from agentsim.backends.lpx import determinism
from agentsim.backends.lpx.report import ScheduleReport, schedule_report, schedule_trace
from agentsim.backends.lpx.step import Parts
from agentsim.bench import Bench, run_bench
from agentsim.errors import InfeasibleError, InputError, SpecError, unknown_name
from agentsim.exports.base import write_file
from agentsim.specs import catalog
from agentsim.specs.anchor import load_anchors
from agentsim.specs.deployment import Deployment, Engine, Speculation
from agentsim.specs.hardware import Chip
from agentsim.specs.model import Model
from agentsim.specs.sourced import Ledger
from agentsim.units import parse_tokens

BACKEND = "lpx"
Step = Callable[[], None]


@dataclass(frozen=True)
class Held:
    """All anchors as simulated, and how far schedules are from measured steps."""

    rows: list[Row]
    readings: list[Reading]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the list that `anchors --format json` prints."""
        return [row.to_json() for row in self.rows]


def count_anchors() -> int:
    """Return the number of rows."""
    return len(load_anchors().rows)


def hold_anchors(seeds: Sequence[int], done: Step = lambda: None) -> Held:
    """Simulate every published figure of the catalog."""
    runs = Runs(seeds)
    return Held(run_anchors(runs, done), readings(runs))


def replay(protocol: str, deployment: str, seeds: Sequence[int], done: Step = lambda: None) -> Bench:
    """Replay a public benchmark on what `--on` names."""
    return run_bench(protocol, deployment, seeds, done)


Fit = Callable[[], list[Constant]]
FITS: dict[str, Fit] = {"lpx": calibrate_lpx, "b300": calibrate_b300}


def fit(rows: str) -> list[tuple[Constant, float]]:
    """Fit the constants of the rows of `FITS`; return each with the value that stands in the catalog."""
    return [(constant, in_catalog(constant.datum)) for constant in FITS[rows]()]


def fitted_json(fitted: Sequence[tuple[Constant, float]]) -> list[dict[str, Any]]:
    """Return the list that `calibrate lpx --format json` prints."""
    return [{**constant.to_json(), "in_catalog": current} for constant, current in fitted]


@dataclass(frozen=True)
class Claim:
    """A claim about statically scheduled hardware, and what the schedules say to it."""

    text: str
    holds: bool
    answer: str


@dataclass(frozen=True)
class Scheduled:
    """A decode step as scheduled; `table` and `claims` are what determinism buys, where it was asked for."""

    deployment: str
    name: str
    model: str
    report: ScheduleReport
    table: list[determinism.Row]
    claims: list[Claim]
    written: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the object that `schedule --format json` prints."""
        found = {"deployment": self.deployment, "model": self.name, **self.report.to_json()}
        if self.table:
            found["table"] = [row.to_json() for row in self.table]
            found["claims"] = [asdict(claim) for claim in self.claims]
        return found | ({"written": self.written} if self.written else {})


def lay_out(
    model: str, deployment: str, context: str, drafted: int | None, trace: str | None, table: bool
) -> Scheduled:
    """Compile a decode step of a model on a deployment of LPUs; write its trace where `trace` says so."""
    parts = _parts(model, deployment, drafted)
    tokens = _context(context, parts)
    report = schedule_report(parts, tokens, drafted)
    if trace is not None:
        write_file(trace, "".join(schedule_trace(parts, tokens, drafted)))
    rows = determinism.determinism_table(parts.model, parts.chip) if table else []
    return Scheduled(
        deployment,
        model,
        parts.model.title,
        report,
        rows,
        _claims(parts, tokens, rows) if rows else [],
        trace,
    )


def _claims(parts: EngineParts, context: int, rows: Sequence[determinism.Row]) -> list[Claim]:
    plain = schedule_report(parts._replace(drafter=None), context).breakdown_s
    drafting = schedule_report(parts, context).breakdown_s if parts.drafter else None
    return [_first_bit(plain, drafting), _ahead_of_time(rows)]


def _first_bit(plain: Parts, drafting: Parts | None) -> Claim:
    """Bandwidth is what reading SRAM and putting vectors on links takes; compute has its start-up."""
    told = [("One token", plain)] + ([("With drafts", drafting)] if drafting else [])
    first, second = (
        [_ranked(step)[place][0] == name for _, step in told]
        for place, name in enumerate(("first bit", "bandwidth"))
    )
    answer = "Yes" if all(first + second) else "In part" if any(first) else "No"
    text = f"{answer}: first bits take most {_how_often(first)}; bandwidth is second {_how_often(second)}. "
    text += " ".join(f"{label}: {_shares(step)}." for label, step in told)
    return Claim("First-bit latency dominates, bandwidth is second", all(first + second), text)


def _how_often(held: list[bool]) -> str:
    if all(held):
        return "in every step"
    return "in none" if not any(held) else "without drafts only" if held[0] else "with drafts only"


def _ranked(step: Parts) -> list[tuple[str, float]]:
    """What a scheduled step spends its time on, largest first, as shares."""
    times = {
        "first bit": step["first_bit"],
        "compute": step["compute"],
        "bandwidth": step["serialisation"] + step["sram"],
        "idle": step["idle"],
    }
    total = sum(times.values())
    return sorted(((name, time / total) for name, time in times.items()), key=lambda item: -item[1])


def _shares(step: Parts) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in _ranked(step) if share)


SEVERAL = 2.0
"""From where on a ratio is "a factor of several"."""


def _ahead_of_time(rows: Sequence[determinism.Row]) -> Claim:
    """Against the same chips that pay a measured start-up a transfer and wait for whole tensors."""
    claim = "Ahead-of-time scheduling beats arbitration by a factor of several at small batch"
    gains = [row.tokens_per_s / row.both for row in rows if row.tokens_per_s and row.both]
    overlaps = [row.tokens_per_s / row.no_overlap for row in rows if row.tokens_per_s and row.no_overlap]
    if not gains:
        return Claim(claim, False, "No answer: the model fits none of these numbers of chips.")
    holds = min(gains) >= SEVERAL
    text = (
        f"{'Yes' if holds else 'No'}: {min(gains):.1f} to {max(gains):.1f} times at batch 1, if arbitration "
        "costs a transfer what it costs on GPUs (half of a measured small all-reduce). Nearly all of that is "
        f"the start-up; overlap alone is worth {max(overlaps) - 1:.0%} at most. What switches alone would "
        "cost, without a GPU's software, is not published."
    )
    return Claim(claim, holds, text)


def _parts(model: str, name: str, drafted: int | None) -> EngineParts:
    """The LPUs of a deployment with a model of one's choice; its drafter where it drafts for that model."""
    short, document = catalog.deployment_document(name)
    if catalog.kind_of_document(document) != "deployments":
        raise SpecError(f"{short}: no deployment of engines; a schedule needs LPUs, such as --on lpx")
    near = os.path.dirname(document.name)
    deployment = catalog.from_document(Deployment, document, short)
    engine = _lpus(deployment, short)
    target = catalog.load(Model, model)
    drafter = _drafter(deployment.speculation, model, near, drafted)
    if drafter is None and drafted:
        raise InfeasibleError(f"--drafted {drafted}: {short} has no drafter for {model}")
    return EngineParts(target, catalog.load(Chip, engine.hardware, near), engine, drafter, Ledger(), near)


def _lpus(deployment: Deployment, name: str) -> Engine:
    for engine in deployment.engines.values():
        if engine.backend == BACKEND:
            return engine
    raise SpecError(f"{name}: none of its engines is of LPUs; a schedule needs them, such as --on lpx")


def _drafter(choice: Speculation | None, model: str, near: str, drafted: int | None) -> Drafter | None:
    """The deployment's drafter with its number of drafts, or as many as acceptance is known for."""
    if choice is None:
        return None
    drafter = catalog.load(Model, choice.drafter, near)
    if drafter.drafting is None or drafter.drafting.target != model:
        return None
    rates = drafter.drafting.acceptance
    if choice.text not in rates:
        raise unknown_name(f"kind of text for {choice.drafter}", choice.text, rates)
    depth = len(Ledger().take(rates[choice.text]))
    tokens = depth if choice.draft_tokens is None else choice.draft_tokens
    if not 0 <= (tokens if drafted is None else drafted) <= depth:
        raise InputError(f"--drafted is {drafted}; acceptance of {choice.drafter} is known for 0 to {depth}")
    return Drafter(drafter, tokens, choice.text)


def _context(text: str, parts: EngineParts) -> int:
    try:
        tokens = parse_tokens(int(text) if text.isdecimal() else text)
    except ValueError as problem:
        raise InputError(f"--context: {problem}") from None
    limit = parts.engine.context or (parts.model.context.value if parts.model.context else None)
    if tokens < 1 or (limit is not None and tokens > limit):
        raise InfeasibleError(f"--context is {tokens:,}; {parts.model.title} takes 1 to {limit or 1:,} here")
    return tokens
