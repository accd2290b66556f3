"""The published figures of `specs/anchors.yaml` against the simulation, and the constants fitted to them.

What is simulated for a row stands in `anchor_measures.py`. The three constants of the LPX rows and the one
of the B300 rows are computed here: `calibrate_lpx` and `calibrate_b300` return what stands in the catalog.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

from agentsim.anchor_measures import AA, AA_TEN, CODING, LPX, MEASURES, MISSING, NOT_YET, NOTES, Runs
from agentsim.backends.base import expected_tokens
from agentsim.backends.gpu.cost import GpuCost
from agentsim.backends.lpx.cost import LpxCost
from agentsim.bench import P80, RUNS, alone, protocol_named, run_case, sizes_of
from agentsim.plan import Plan
from agentsim.specs import catalog
from agentsim.specs.anchor import Anchor, Protocol, Size, load_anchors
from agentsim.specs.model import Model
from agentsim.specs.sourced import Ledger, data_of
from agentsim.units import MICROSECOND_S

WITHOUT_DRAFTS = "lpx-no-speculation"


@dataclass(frozen=True, slots=True)
class Row:
    """One anchor and what was simulated for it; `simulated` is None where nothing was."""

    anchor: Anchor
    simulated: tuple[float, ...] | None
    note: str = ""

    @property
    def error(self) -> float | None:
        """The relative error; of several figures, the largest."""
        if self.simulated is None:
            return None
        published = self.anchor.figures
        if self.anchor.between:
            [found] = self.simulated
            return found / min(max(found, published[0]), published[-1]) - 1.0
        errors = [s / p - 1.0 for s, p in zip(self.simulated, published, strict=True)]
        return max(errors, key=abs)

    @property
    def ok(self) -> bool | None:
        """Tell whether the error is within the row's tolerance; None where nothing was simulated."""
        return None if self.error is None else abs(self.error) <= self.anchor.tolerance + _ROUNDING

    @property
    def why(self) -> str:
        """One line on a row that does not hold, or that has a note; empty on any other."""
        if self.simulated is None:
            return f"not simulated: {NOT_YET.get(self.anchor.id, MISSING)}"
        missed = "" if self.ok else self.anchor.fails or "no reason is known"
        return "; ".join(filter(None, (missed, self.note)))

    @property
    def independent(self) -> bool:
        """Tell whether the row is a prediction that no other row already is."""
        return self.simulated is not None and self.anchor.basis == "predicted" and not self.anchor.follows

    def to_json(self) -> dict[str, Any]:
        """Return the object that `anchors --format json` lists; a text where the figure is one."""
        found = self.simulated
        several = found is not None and len(found) > 1
        return {
            "id": self.anchor.id,
            "published": self.anchor.value,
            "simulated": self.text() if several else found and found[0],
            "unit": self.anchor.unit,
            "error": self.error,
            "basis": self.anchor.basis if found else None,
            "follows": self.anchor.follows,
            "gate": self.anchor.gate,
            "ok": self.ok,
        }

    def text(self) -> str:
        """Return what was simulated as the published figure is written."""
        return " and ".join(f"{value:.3g} {self.anchor.unit}" for value in self.simulated or ())


_ROUNDING = 1e-9


def run_anchors(runs: Runs, done: Callable[[], None] = lambda: None) -> list[Row]:
    """Simulate every row, in the order of the file."""
    rows = []
    for anchor in load_anchors().rows:
        measure = MEASURES.get(anchor.id)
        note = NOTES.get(anchor.id)
        rows.append(Row(anchor, measure(runs) if measure else None, note(runs) if note else ""))
        done()
    return rows


# how far the schedule is from what was measured


@dataclass(frozen=True, slots=True)
class Reading:
    """What a published speed implies for a step, and for a layer, if a step yields so many tokens.

    `floor_s` is the step as scheduled, without anything calibrated. `fitted`: the tokens a step were fitted
    on this very speed, so that the reading is no evidence for the step.
    """

    anchor: str
    drafts: str
    published: float
    tokens_per_step: float
    step_s: float
    floor_s: float
    layers: int
    fitted: bool

    @property
    def ratio(self) -> float:
        """How many times its schedule a step would take."""
        return self.step_s / self.floor_s

    def layer_s(self, step_s: float) -> float:
        """Return a step's share of one layer, drafting and head included."""
        return step_s / self.layers


def readings(runs: Runs) -> list[Reading]:
    """Return the coding figure, and both readings of the figure at 10K: with drafts, and without."""
    unique = runs.lpx(AA)
    return [
        _reading(runs, "speed-lpx-median", CODING, LPX, runs.lpx(CODING).tokens_per_step),
        _reading(runs, "aa-lpx-10k", AA, LPX, unique.tokens_per_step),
        _reading(runs, "aa-lpx-10k", AA, WITHOUT_DRAFTS, 1.0),
    ]


def _reading(runs: Runs, anchor: str, protocol: str, deployment: str, gain: float) -> Reading:
    size = sizes_of(protocol_named(protocol))[AA_TEN if protocol == AA else 0]
    context = size.input_tokens + size.output_tokens / 2
    published, cost = _published(anchor), runs.lpx(protocol, deployment)
    floor = cost.floor_s(alone(cost, context))
    layers = Ledger().take(catalog.load(Model, "gemma-4-31b").shape).layers
    drafts = f"{cost.verified_tokens - 1} drafts" if cost.verified_tokens > 1 else "no drafts"
    fitted = cost.verified_tokens > 1 and protocol == AA
    return Reading(anchor, drafts, published, gain, gain / published, floor, layers, fitted)


def _published(anchor: str) -> float:
    [row] = [row for row in load_anchors().rows if row.id == anchor]
    return row.figures[0]


# the three constants of the LPX rows


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant as fitted: where it stands, its value (SI), how it is written there, what it fits."""

    datum: str
    value: float
    text: str
    anchor: str

    def to_json(self) -> dict[str, Any]:
        """Return the constant as plain data."""
        return {"datum": self.datum, "value": self.value, "text": self.text, "fitted_on": self.anchor}


def calibrate_lpx(seeds: Sequence[int] = range(RUNS)) -> list[Constant]:
    """Fit the constants of the LPX rows; none of them depends on what the catalog says of them now.

    The spread between requests is that of a lognormal with the published median and P80. The overhead of
    a step then makes the median of the coding protocol, with the measured tokens per step, the published
    one. With both, the rate of acceptance on unique prompts makes the median at 10K the published one.
    """
    plan = Runs(seeds).plan(CODING, LPX)
    median, p80 = (_published(f"speed-lpx-{which}") for which in ("median", "p80"))
    spread = math.log(p80 / median) / NormalDist().inv_cdf(P80)
    overhead = _fit_overhead(replace(plan, pace_sigma=spread), median, seeds)
    plan = _changed(replace(plan, pace_sigma=spread), step_overhead_s=overhead)
    rate = _rate_for(_fit_gain(plan, _published("aa-lpx-10k"), seeds), _cost(plan).verified_tokens - 1)
    names = {row.id: row.fits or "" for row in load_anchors().rows}
    found = {
        "speed-lpx-median": (overhead, f"{overhead / MICROSECOND_S:.0f} us"),
        "aa-lpx-10k": (rate, f"{rate:.4f}"),
        "speed-lpx-p80": (spread, f"{spread:.4f}"),
    }
    return [Constant(names[row], value, text, row) for row, (value, text) in found.items()]


def _changed(plan: Plan, **changes: float) -> Plan:
    """The same plan on a cost model of which something is changed."""
    return replace(plan, engines={"main": replace(_cost(plan), **changes)})  # type: ignore[arg-type]


def _cost(plan: Plan) -> LpxCost:
    cost = plan.engines["main"]
    assert isinstance(cost, LpxCost), "the catalog's own"
    return cost


def _fit_overhead(plan: Plan, median: float, seeds: Sequence[int]) -> float:
    """Seconds a step: the time per token is a straight line over them."""
    protocol, size, trial = *_size(CODING, 0), MICROSECOND_S
    none, some = (
        1.0 / run_case(_changed(plan, step_overhead_s=s), protocol, size, seeds).speed() for s in (0.0, trial)
    )
    return (1.0 / median - none) / (some - none) * trial


def _fit_gain(plan: Plan, median: float, seeds: Sequence[int]) -> float:
    """Tokens a step: speed is proportional to them but for the last step, which is not filled."""
    protocol, size = _size(AA, AA_TEN)
    gain = expected_tokens((0.8,) * (_cost(plan).verified_tokens - 1))
    for _ in range(4):
        speed = run_case(_changed(plan, tokens_per_step=gain), protocol, size, seeds).speed()
        gain *= median / speed
    return gain


def _size(protocol: str, place: int) -> tuple[Protocol, Size]:
    described = protocol_named(protocol)
    return described, sizes_of(described)[place]


def _rate_for(tokens: float, drafts: int) -> float:
    """The one rate of acceptance whose expected yield is this many tokens a step (bisection)."""
    low, high = 0.0, 1.0
    while high - low > _ROUNDING:
        middle = (low + high) / 2
        low, high = (middle, high) if expected_tokens((middle,) * drafts) < tokens else (low, middle)
    return low


def in_catalog(name: str) -> float:
    """Return the value that stands in the catalog for a datum that is fitted here; of a list, the first."""
    spec, _, path = name.partition(".")
    kind, document = catalog.find(spec)
    found = catalog.from_document(catalog.schema_of(kind), document, spec)
    [datum] = [datum for place, datum in data_of(found) if ".".join(place) == path]
    value: Any = Ledger().take(datum)
    return float(value[0] if isinstance(value, tuple) else value)


# the constant of the B300 rows


def calibrate_b300(seeds: Sequence[int] = range(RUNS)) -> list[Constant]:
    """Fit the time per layer of vLLM on B300, drafter's layers included, on the row in bf16."""
    row = "b300-gemma-mtp-bf16"
    plan = Runs(seeds).plan(CODING, "gemma-b300-mtp")
    protocol, size = _size(CODING, 0)
    none, some = (
        1.0 / run_case(_with_layer_time(plan, layer_s), protocol, size, seeds).speed()
        for layer_s in (0.0, MICROSECOND_S)
    )
    found = (1.0 / _published(row) - none) / (some - none) * MICROSECOND_S
    return [Constant("vllm-b300.layer_overhead", found, f"{found / MICROSECOND_S:.0f} us", row)]


def _with_layer_time(plan: Plan, layer_s: float) -> Plan:
    """The same plan with another time per layer, in the target and in its drafter."""
    cost = plan.engines["main"]
    assert isinstance(cost, GpuCost), "the catalog's own"
    assert cost.draft is not None, "the catalog's own"
    layers, drafter_layers = (
        Ledger().take(catalog.load(Model, name).shape).layers for name in ("gemma-4-31b", "gemma-4-31b-mtp")
    )
    target = replace(cost.target, overhead_s=layers * layer_s)
    drafter = replace(cost.draft.forward, overhead_s=drafter_layers * layer_s)
    changed = replace(cost, target=target, draft=replace(cost.draft, forward=drafter))
    return replace(plan, engines={"main": changed})
