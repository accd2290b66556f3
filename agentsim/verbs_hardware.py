"""What the verbs about hardware do, without the command line: replay benchmarks, lay out schedules.

Returns data; prints nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

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
from agentsim.bench import Bench, run_bench
from agentsim.compile_engines import drafter_model, drafts_known
from agentsim.errors import InfeasibleError, InputError, SpecError
from agentsim.exports.base import output_folder, write_file
from agentsim.specs import catalog
from agentsim.specs.anchor import load_anchors
from agentsim.specs.deployment import Deployment, Engine, Speculation
from agentsim.specs.hardware import Chip
from agentsim.specs.model import Model
from agentsim.specs.sourced import Datum, Ledger
from agentsim.units import MICROSECOND_S, parse_tokens

if TYPE_CHECKING:
    from agentsim.calibrate.gpu_plan import Plan
    from agentsim.calibrate.gpu_report import GpuCalibration

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
    """A claim about statically scheduled hardware, and what the schedules say to it.

    `holds` is None where the answer depends on what is not known.
    """

    text: str
    holds: bool | None
    answer: str


@dataclass(frozen=True)
class Scheduled:
    """A decode step as scheduled; `table` and `claims` are what determinism buys, where it was asked for."""

    deployment: str
    name: str
    model: str
    report: ScheduleReport
    asked_drafts: int | None
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


DEFAULT_CONTEXT = 10_000
"""Context (tokens) of a schedule where none is asked for and the model takes as many."""


def lay_out(
    model: str, deployment: str, context: str | None, drafted: int | None, trace: str | None, table: bool
) -> Scheduled:
    """Compile a decode step of a model on a deployment of LPUs; write its trace where `trace` says so."""
    parts = _parts(model, deployment, drafted)
    tokens = _context(context, parts)
    report = schedule_report(parts, tokens, drafted)
    if trace is not None:
        write_file(trace, "".join(schedule_trace(parts, tokens, drafted)))
    rows = []
    if table:
        rows = determinism.deployment_table(parts.model, parts.chip, parts.engine, _limit(parts))
    return Scheduled(
        deployment,
        model,
        parts.model.title,
        report,
        drafted,
        rows,
        [_first_bit(parts, tokens), _ahead_of_time(rows, parts.chip)] if rows else [],
        trace,
    )


# the first claim

STARTS = ("matrix_fill", "vector_start", "softmax_start")
"""Data of a chip that are times to start, which are assumed; none of it is arithmetic."""
FIRST, BANDWIDTH = "first bit", "bandwidth"
Shares = dict[str, float]


def _first_bit(parts: EngineParts, context: int) -> Claim:
    """Answer at both ends of the assumed start-up data, too: what is first depends on them.

    Bandwidth is what reading SRAM and putting vectors on links takes.
    """
    steps = {"One token": parts._replace(drafter=None)} | ({"With drafts": parts} if parts.drafter else {})
    shares = {
        label: {end: _shares(_at_end(step, end), context) for end in ("low", "assumed", "high")}
        for label, step in steps.items()
    }
    every = [at for ends in shares.values() for at in ends.values()]
    first, second = ([_ranked(at)[place] == name for at in every] for place, name in enumerate(_CLAIMED))
    both = [a and b for a, b in zip(first, second, strict=True)]
    holds = True if all(both) else None if any(first) else False
    answer = {True: "Yes", None: "In part", False: "No"}[holds]
    text = (
        f"{answer}: first bits take most in {_of(first)}, bandwidth is second in {_of(second)} (at the low "
        "end of the assumed start-up data, as assumed, at the high end). "
    )
    text += " ".join(f"{label}: {_ends_text(ends)}." for label, ends in shares.items())
    assumed = shares["One token"]["assumed"]
    text += (
        f" Of compute, as assumed, arithmetic is {assumed['arithmetic']:.1%} of the step of one token and "
        f"start-up {assumed['start-up']:.1%}: almost all of it is assumed."
    )
    return Claim("First-bit latency dominates, bandwidth is second", holds, text)


_CLAIMED = (FIRST, BANDWIDTH)


def _at_end(parts: EngineParts, end: str) -> EngineParts:
    """The engine with its assumed start-up data at an end of their ranges: "low" is the shorter time."""
    facts = parts.chip.lpu
    if end == "assumed" or facts is None:
        return parts
    pick = min if end == "low" else max
    data = {name: getattr(facts, name) for name in STARTS}
    values = {name: pick(datum.range or (datum.value,)) for name, datum in data.items()}
    rate: Any = facts.vector_compute
    values["vector_compute"] = (max if end == "low" else min)(rate.range or (rate.value,))
    return _with_facts(parts, values)


def _with_facts(parts: EngineParts, values: dict[str, Any]) -> EngineParts:
    facts = parts.chip.lpu
    assert facts is not None, "checked when the step was scheduled"
    changed, before = {getattr(facts, name).name: value for name, value in values.items()}, parts.ledger

    def value(datum: Datum[Any]) -> Any:
        return changed[datum.name] if datum.name in changed else before.value(datum)

    return parts._replace(ledger=Ledger(value))


def _shares(parts: EngineParts, context: int) -> Shares:
    """What a scheduled step spends its time on; compute also as arithmetic and start-up."""
    report = schedule_report(parts, context)
    step = report.breakdown_s
    same = {"tensor_parallel": report.tensor_parallel, "pipeline_stages": report.pipeline_stages}
    fixed = parts._replace(engine=parts.engine.model_copy(update=same))
    at_once = schedule_report(_with_facts(fixed, dict.fromkeys(STARTS, 0.0)), context).breakdown_s
    arithmetic = min(at_once["compute"], step["compute"])
    times = {
        FIRST: step["first_bit"],
        "compute": step["compute"],
        BANDWIDTH: step["serialisation"] + step["sram"],
        "idle": step["idle"],
        "arithmetic": arithmetic,
        "start-up": step["compute"] - arithmetic,
    }
    return {name: time / report.floor_s for name, time in times.items()}


_RANKED = (FIRST, "compute", BANDWIDTH, "idle")


def _ranked(shares: Shares) -> list[str]:
    return sorted(_RANKED, key=lambda name: -shares[name])


def _of(held: Sequence[bool]) -> str:
    return f"{sum(held)} of {len(held)} steps"


def _ends_text(ends: dict[str, Shares]) -> str:
    names = [name for name in _ranked(ends["assumed"]) if any(at[name] for at in ends.values())]
    return ", ".join(f"{name} " + " / ".join(f"{at[name]:.0%}" for at in ends.values()) for name in names)


# the second claim

SEVERAL = 2.0
"""From where on a ratio is "a factor of several"."""
READ_OFF = ("aa-lpx-10k", "no drafts")
"""The reading of a published speed that has a step without drafts."""


def _ahead_of_time(rows: Sequence[determinism.Row], chip: Chip) -> Claim:
    """Against the same chips that pay a measured start-up a transfer and wait for whole tensors.

    What the schedule leaves unexplained would be paid by both; it is known of chips with a published speed.
    """
    claim = "Ahead-of-time scheduling beats arbitration by a factor of several at small batch"
    fitting = [row for row in rows if row.gain()]
    if not fitting:
        return Claim(claim, False, "No answer: the model fits none of these numbers of chips.")
    added = _unexplained_s(chip)
    gains = [[row.gain(beyond) or 0.0 for row in fitting] for beyond in (0.0, *added.values())]
    least, most = min(map(min, gains)), max(map(max, gains))
    alone = min(gains[0]) >= SEVERAL
    holds = None if alone and (not added or least < SEVERAL) else alone
    text = f"{'Yes' if alone else 'No'} on the schedule alone; "
    text += (
        f"between {least:.1f}x and {most:.1f}x with what the schedule leaves unexplained. "
        if added
        else "what the schedule leaves unexplained is not known of this chip. "
    )
    told = [f"{_range_text(gains[0])} on the schedule"]
    told += [
        f"{_range_text(found)} with {beyond / MICROSECOND_S:.0f} us a step on both sides ({how})"
        for (how, beyond), found in zip(added.items(), gains[1:], strict=True)
    ]
    overlaps = [row.tokens_per_s / row.no_overlap for row in fitting if row.tokens_per_s and row.no_overlap]
    text += (
        f"At batch 1: {'; '.join(told)}. Arbitration is taken to cost a transfer what it costs on GPUs; "
        f"overlap alone is worth {max(overlaps) - 1:.0%} at most. What switches cost without a GPU's "
        "software is not published."
    )
    return Claim(claim, holds, text)


def _range_text(found: Sequence[float]) -> str:
    low, high = f"{min(found):.1f}", f"{max(found):.1f}"
    return f"{low}x" if low == high else f"{low} to {high}x"


def _unexplained_s(chip: Chip) -> dict[str, float]:
    """What a measured step takes beyond its schedule, as read without drafts and as calibrated with them."""
    overhead = chip.lpu.speculative_step_overhead if chip.lpu else None
    if overhead is None:
        return {}
    [read] = [r for r in readings(Runs()) if (r.anchor, r.drafts) == READ_OFF]
    return {
        f"a published speed read as without drafts: {read.step_s / MICROSECOND_S:.1f} less "
        f"{read.floor_s / MICROSECOND_S:.1f}": read.step_s - read.floor_s,
        "as calibrated with drafts": Ledger().take(overhead),
    }


def _parts(model: str, name: str, drafted: int | None) -> EngineParts:
    """The LPUs of a deployment with a model of one's choice; its drafter where it drafts for that model."""
    short, document = catalog.deployment_document(name)
    if catalog.kind_of_document(document) != "deployments":
        raise SpecError(f"{short}: no deployment of engines; a schedule needs LPUs, such as --on lpx")
    near = os.path.dirname(document.name)
    deployment = catalog.from_document(Deployment, document, short)
    engine = _lpus(deployment, short)
    if model != deployment.model:  # the context was planned for the deployment's own
        engine = engine.model_copy(update={"context": None})
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
    try:
        drafter = drafter_model(choice, model, near)
    except InfeasibleError as bad:
        if drafted == 0:
            return None
        raise InfeasibleError(f"{bad}; --drafted 0 leaves it out") from None
    depth = drafts_known(choice, drafter, Ledger())
    tokens = depth if choice.draft_tokens is None else choice.draft_tokens
    if not 0 <= (tokens if drafted is None else drafted) <= depth:
        raise InputError(f"--drafted is {drafted}; acceptance of {choice.drafter} is known for 0 to {depth}")
    return Drafter(drafter, tokens, choice.text)


def _context(text: str | None, parts: EngineParts) -> int:
    limit = _limit(parts)
    if text is None:
        return min(DEFAULT_CONTEXT, limit or DEFAULT_CONTEXT)
    try:
        tokens = parse_tokens(int(text) if text.isdecimal() else text)
    except ValueError as problem:
        raise InputError(f"--context: {problem}") from None
    if tokens < 1 or (limit is not None and tokens > limit):
        raise InfeasibleError(f"--context is {tokens:,}; {parts.model.title} takes 1 to {limit or 1:,} here")
    return tokens


def _limit(parts: EngineParts) -> int | None:
    """The longest context: what the deployment plans for, else the model's."""
    return parts.engine.context or (parts.model.context.value if parts.model.context else None)


def fit_engines(plan: Plan, folder: str | None, source: str, done: Step = lambda: None) -> GpuCalibration:
    """Fit engine profiles on the runs of a plan; write them into a folder, where one is given.

    `source` says where the runs are from. Raises `OutputError` before the work where it cannot be written.
    """
    from agentsim.calibrate.gpu_profiles import profile_documents

    with nullcontext() if folder is None else output_folder(folder) as write:
        found = plan.calibration(done)
        if write is not None:
            documents = profile_documents(found.profiles, source)
            write({f"{name}.yaml": [text] for name, text in documents.items()})
    return found
