"""What is simulated for each published figure: one function a row, in `MEASURES`, by the row's id.

A row without one is reported as not simulated, for the reason in `NOT_YET`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from agentsim.backends.base import Drafter, EngineParts
from agentsim.backends.endpoint import EndpointCost
from agentsim.backends.lpx.chip import to_s as ps_to_s
from agentsim.backends.lpx.compiler import build_site, lpus_for_weights, runner_up
from agentsim.backends.lpx.cost import LpxCost
from agentsim.backends.lpx.fabric import build_fabric
from agentsim.backends.lpx.mapping import fewest_lpus
from agentsim.bench import P80, RUNS, Case, alone, bench_plan, protocol_named, run_case, sizes_of, step_s
from agentsim.compile import compile_plan
from agentsim.plan import Plan
from agentsim.sim.interactivity import interactivity
from agentsim.specs import catalog
from agentsim.specs.anchor import Size, load_anchors
from agentsim.specs.deployment import Deployment, Engine, PrecisionChoice
from agentsim.specs.hardware import Chip
from agentsim.specs.model import Model
from agentsim.specs.sourced import Ledger
from agentsim.units import MICROSECOND_S, parse
from agentsim.workflow.schema import Workflow

LPX, AA, CODING = "lpx", "aa", "speed-coding"
"""A deployment and two protocols."""
AA_TEN, AA_HUNDRED = 1, 2
"""Places of the 10K and the 100K size in the protocol `aa`."""
HUNDRED_K = 100_000
MILLISECOND_S = parse("1 ms", "time")
PEAK_CONTEXT = 16_000
FIVE_THOUSAND = 5_000
ONE_K, TWO_K = 1_024, 2_048
"""Tokens in and out of the GPU rows, where their sources say so or name no size."""


class Runs:
    """Simulated runs behind the rows, each made once."""

    def __init__(self, seeds: Sequence[int] = range(RUNS)) -> None:
        self.seeds = seeds
        self._plans: dict[tuple[str, str], Plan] = {}
        self._cases: dict[tuple[str, str, Size], Case] = {}

    def plan(self, protocol: str, deployment: str) -> Plan:
        """Return the plan of a protocol on a deployment."""
        key = protocol, deployment
        if key not in self._plans:
            self._plans[key] = bench_plan(protocol_named(protocol), deployment)[0]
        return self._plans[key]

    def case(self, protocol: str, deployment: str, size: Size | int = 0) -> Case:
        """Return the requests of one size (or of the protocol's n-th)."""
        described = protocol_named(protocol)
        wanted = sizes_of(described)[size] if isinstance(size, int) else size
        key = protocol, deployment, wanted
        if key not in self._cases:
            plan = self.plan(protocol, deployment)
            self._cases[key] = run_case(plan, described, wanted, self.seeds)
        return self._cases[key]

    def turn(self, deployment: str) -> Plan:
        """Return the plan of a deployment for `interactivity`, which brings a task of its own."""
        return compile_plan(_ANY_TASK, deployment)

    def lpx(self, protocol: str, deployment: str = LPX) -> LpxCost:
        """Return the cost model of the LPUs of a deployment."""
        cost = self.plan(protocol, deployment).engines["main"]
        assert isinstance(cost, LpxCost), "the catalog's own"
        return cost


NVL72 = "oss2t-nvl72"
_ANY_TASK = Workflow.model_validate({"name": "any", "steps": [{"user": {"tokens": 1}}]})
Measure = Callable[[Runs], tuple[float, ...]]


def _weights_fit(_runs: Runs) -> tuple[float, ...]:
    chip, model = catalog.load(Chip, "lp30"), catalog.load(Model, "gemma-4-31b")
    return (float(lpus_for_weights(model, chip, Ledger())),)


def _reach(size: str) -> Measure:
    """Measure how far memory of this size lies from the first chip, over the shortest routes."""

    def measure(_runs: Runs) -> tuple[float, ...]:
        chip, ledger = catalog.load(Chip, "lp30"), Ledger()
        chips = round(parse(size, "size") / ledger.take(chip.memory))
        return (ps_to_s(build_fabric(chip, 1, ledger).reach_ps([0], chips)) / MICROSECOND_S,)

    return measure


def _speed(protocol: str, deployment: str, size: Size | int = 0, share: float = 0.5) -> Measure:
    """Measure the speed that a share of a protocol's requests stay under."""
    return lambda runs: (runs.case(protocol, deployment, size).speed(share),)


def _flatness(runs: Runs) -> tuple[float, ...]:
    near, far = (runs.case(AA, LPX, place).speed() for place in (AA_TEN, AA_HUNDRED))
    return (far / near,)


def _peak(runs: Runs) -> tuple[float, ...]:
    """The most that a step can give: every draft accepted."""
    cost = runs.lpx(CODING)
    return (cost.verified_tokens / step_s(cost, PEAK_CONTEXT),)


def _service_speed(deployment: str, context: int) -> Measure:
    """Measure the decode speed that a service has at a context."""

    def measure(runs: Runs) -> tuple[float, ...]:
        cost = runs.plan(AA, deployment).engines["main"]
        assert isinstance(cost, EndpointCost), "the catalog's own"
        return (cost.speed(context),)

    return measure


def _over_endpoint(runs: Runs) -> tuple[float, ...]:
    [theirs] = _service_speed("fastest-public", HUNDRED_K)(runs)
    return (runs.case(AA, LPX, AA_HUNDRED).speed() / theirs,)


def _five_thousand(runs: Runs) -> tuple[float, ...]:
    [slow] = _service_speed("endpoint-100", HUNDRED_K)(runs)
    return FIVE_THOUSAND / slow, FIVE_THOUSAND / runs.case(AA, LPX, AA_HUNDRED).speed()


def _time_per_token(deployment: str, size: Size) -> Measure:
    """Measure the milliseconds between tokens."""
    return lambda runs: (1.0 / runs.case(CODING, deployment, size).speed() / MILLISECOND_S,)


_CHAT = Size(input_tokens=ONE_K, output_tokens=ONE_K)
_MIN_LATENCY = Size(input_tokens=ONE_K, output_tokens=TWO_K)


def _gain(deployment: str) -> Measure:
    """Return how much faster one turn is written than on the NVL72 alone, tokens after the first."""

    def measure(runs: Runs) -> tuple[float, ...]:
        alone, other = (interactivity(runs.turn(name)) for name in (NVL72, deployment))
        return (other / alone,)

    return measure


MEASURES: dict[str, Measure] = {
    "lpx-weights-fit": _weights_fit,
    "lpx-sram-reach-8GB": _reach("8 GB"),
    "lpx-sram-reach-64GB": _reach("64 GB"),
    "lpx-sram-reach-128GB": _reach("128 GB"),
    "aa-lpx-10k": _speed(AA, LPX, AA_TEN),
    "aa-lpx-100k": _speed(AA, LPX, AA_HUNDRED),
    "aa-lpx-flat": _flatness,
    "speed-lpx-median": _speed(CODING, LPX),
    "speed-lpx-p80": _speed(CODING, LPX, share=P80),
    "hotchips-peak": _peak,
    "endpoint-870": _service_speed("fastest-public", HUNDRED_K),
    "lpx-vs-endpoint": _over_endpoint,
    "five-thousand-tokens": _five_thousand,
    "b300-gemma-mtp": _speed(CODING, "gemma-b300-mtp-fp4"),
    "b300-gemma-mtp-bf16": _speed(CODING, "gemma-b300-mtp"),
    "deepseek-b200-nospec": _speed(CODING, "deepseek-8xb200", _MIN_LATENCY),
    "deepseek-b200-mtp3": _speed(CODING, "deepseek-8xb200-mtp3", _MIN_LATENCY),
    "mi300x-gemma": _time_per_token("gemma-mi300x", _CHAT),
    "groq1-llama70b": _speed(CODING, "groqchip1-llama70b", _CHAT),
    "oss2t-drafter": _gain("oss2t-drafter"),
    "oss2t-afd": _gain("oss2t-afd"),
    "oss2t-pd": _gain("oss2t-prefill-decode"),
    "coding-tool-60": _speed(AA, "coding-tool", AA_TEN),
}
"""What is simulated for each row, in the row's unit. Adding a row's measure is adding one entry."""


# what a row's text says beside its figure


def _mapped(_runs: Runs) -> str:
    """The SRAM of so many LPUs is as large as the weights; a mapping divides layers among whole stages."""
    [capacity] = _weights_fit(_runs)
    chip, ledger = catalog.load(Chip, "lp30"), Ledger()
    engine = Engine(backend=LPX, hardware="lp30", chips=1, precision=_FP8, context=1)
    site = build_site(EngineParts(catalog.load(Model, "gemma-4-31b"), chip, engine, None, ledger, ""))
    most = site.fabric.chips
    needed = fewest_lpus(site.load, site.fabric, site.widths, site.lpu.memory_bytes, most)
    return f"{capacity:.0f} is capacity by arithmetic; the mapping needs {needed} LPUs"


def _bound(runs: Runs) -> str:
    """What a step may take beyond its schedule if every draft is accepted: less if any is not."""
    cost = runs.lpx(CODING)
    [peak] = [row.figures[0] for row in load_anchors().rows if row.id == "hotchips-peak"]
    step, floor = cost.verified_tokens / peak, cost.floor_s(alone(cost, PEAK_CONTEXT))
    times = [time / MICROSECOND_S for time in (step, floor, step - floor, cost.step_overhead_s)]
    return (
        "with all of {} drafts accepted its step is {:.0f} us, {:.0f} of them scheduled: overhead is at "
        "most {:.0f} us there, and {:.0f} us as calibrated on speed-lpx-median"
    ).format(cost.verified_tokens - 1, *times)


_FP8 = PrecisionChoice(weights="fp8", kv="fp8")


def _other_mapping(runs: Runs) -> str:
    """What the prediction would be on a mapping that is all but as fast where the compiler compares them.

    Its overhead is the one that makes its step on the coding protocol as long as that of the chosen one.
    """
    chosen, other = runs.lpx(AA), runner_up(_lpx_parts())
    if other is None:
        return ""
    coding = alone(chosen, _halfway(sizes_of(protocol_named(CODING))[0]))
    refitted = chosen.iteration_s(coding) - other.floor_s(coding)
    other = replace(other, step_overhead_s=refitted)
    described, plan = protocol_named(AA), replace(runs.plan(AA, LPX), engines={"main": other})
    near, far = (
        run_case(plan, described, sizes_of(described)[place], runs.seeds).speed()
        for place in (AA_TEN, AA_HUNDRED)
    )
    planned = Ledger().take_or_none(catalog.load(Model, "gemma-4-31b").context) or 0
    slower = other.floor_s(alone(other, planned)) / chosen.floor_s(alone(chosen, planned)) - 1.0
    [row] = [row for row in load_anchors().rows if row.id == "aa-lpx-flat"]
    error = far / near / row.figures[0] - 1.0
    return (
        f"this is the mapping chosen; on the one that is {slower:.1%} slower at the planned context it would "
        f"be {far / near:.3f} ({error:+.1%}) and {'hold, too' if abs(error) <= row.tolerance else 'fail'}"
    )


def _halfway(size: Size) -> float:
    return size.input_tokens + size.output_tokens / 2


def _lpx_parts() -> EngineParts:
    """The engine of the rows, with as many drafts as the deployment has, on unique prompts."""
    _, document = catalog.deployment_document(LPX)
    deployment = catalog.from_document(Deployment, document, LPX)
    choice, engine = deployment.speculation, deployment.engines["main"]
    assert choice is not None, "the catalog's own"
    assert choice.draft_tokens is not None, "the catalog's own"
    drafter = Drafter(catalog.load(Model, choice.drafter), choice.draft_tokens, protocol_named(AA).text)
    target, chip = catalog.load(Model, deployment.model), catalog.load(Chip, engine.hardware)
    return EngineParts(target, chip, engine, drafter, Ledger(), "")


NOTES: dict[str, Callable[[Runs], str]] = {
    "lpx-weights-fit": _mapped,
    "aa-lpx-flat": _other_mapping,
    "hotchips-peak": _bound,
}
"""One line on a row, whether it holds or not; figures in it are computed."""
NOT_YET = {
    "groq1-llama70b-spec": (
        "the drafter has not been named; Llama 3.1 8B does not fit the one stage of GroqChip1s that drafts"
    ),
}
"""Why a row has no measure; `MISSING` where nothing is said here."""
MISSING = "the simulation of this row is not built yet"
