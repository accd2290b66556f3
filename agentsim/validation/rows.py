"""Measured serving runs: a CSV's rows as typed runs, each with what was assumed, or with why it is refused.

A run is one engine under a closed loop. Rows that state the same run with the same times count once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agentsim.errors import suggestion
from agentsim.specs import catalog
from agentsim.specs.harness import load_harnesses
from agentsim.units import MILLISECOND_S, to_ns
from agentsim.validation.names import gpu_of, load_model, model_of, precision_in
from agentsim.validation.parallelism import Parallelism, dense_parallelism, parallelism_of
from agentsim.validation.settings import as_started
from agentsim.validation.table import Row, read_table

COLUMNS = (
    "model",
    "gpu",
    "engine",
    "isl",
    "osl",
    "batch_size",
    "tp",
    "moe_tp",
    "moe_ep",
    "attention_dp",
    "concurrency",
    "precision",
    "ttft_ms",
    "tpot_ms",
)
"""Columns of the heading; `engine_version`, `measured_on` and `pp` are read where they are there."""

MOST_USERS = 20_000
"""Users of a closed loop, each with several requests, that can be simulated in reasonable time."""
SAME = 1e-3
"""Times that are this close, relatively, are the same measurement, rounded in two ways."""
_NEEDED = ("model", "gpu", "engine", "isl", "osl", "tp", "ttft_ms", "tpot_ms")


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run of one engine. Names are the catalog's; `named` is the model as the file has it.

    `input_tokens` and `output_tokens` are the labels, times are in seconds, `separate` tells that prefill and
    decode had workers of their own, and `assumed` says what the file does not.
    """

    line: int
    model: str
    named: str
    gpu: str
    engine: str
    version: str
    precision: str
    input_tokens: int
    output_tokens: int
    concurrency: int
    chips: int
    attention_dp: int
    expert_parallel: int
    harness: str
    measured_on: str
    ttft_s: float
    tpot_s: float
    mixture: bool
    separate: bool = False
    assumed: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The architecture class: moe or dense."""
        return "moe" if self.mixture else "dense"

    @property
    def server(self) -> tuple[object, ...]:
        """What was started: runs of one server differ in their load alone."""
        setup = (self.model, self.gpu, self.engine, self.version, self.precision)
        return (*setup, self.chips, self.attention_dp, self.expert_parallel, self.harness, self.measured_on)


class Pools(NamedTuple):
    """How a run with separate workers was set up: those that prefill, and how many there are of each kind.

    `speculates` is None where nothing tells.
    """

    prefill: Run
    prefill_workers: int
    decode_workers: int
    speculates: bool | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that is not simulated, or does not count, and why; `detail` is this row's own part."""

    line: int
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """A file of runs: those to simulate, those refused, and how many only repeat another row.

    With separate workers a run is that of the decode workers; its `pools` are found by its line.
    """

    read: int
    runs: tuple[Run, ...]
    refused: tuple[Refusal, ...]
    duplicates: int
    pools: Mapping[int, Pools] = field(default_factory=dict)


def read_runs(path: str) -> Measured:
    """Return the runs of a CSV. Raises `InputError` with file and line for what is no such CSV."""
    return measured(read_table(path, COLUMNS)[1])


def measured(rows: Sequence[Row]) -> Measured:
    """Return the runs that rows hold."""
    found = [run_of(row) for row in rows]
    runs = [run for run in found if isinstance(run, Run)]
    kept = without_repeats(runs)
    return Measured(
        len(rows), tuple(kept), tuple(r for r in found if isinstance(r, Refusal)), len(runs) - len(kept)
    )


def run_of(row: Row, separate: bool = False) -> Run | Refusal:
    """Return the run of a row, or why there is none; with `separate`, of one kind of worker."""
    missing = [column for column in _NEEDED if not row.text(column)]
    if missing:
        return Refusal(row.line, f"{missing[0]} is not given")
    named = row.text("model")
    model, gpu = model_of(named), gpu_of(row.text("gpu"))
    if model is None:
        return Refusal(row.line, f"no model '{named[:60]}' in the catalog")
    if gpu is None:
        given = row.text("gpu")[:60]
        return Refusal(
            row.line, f"no GPU '{given}' in the catalog{suggestion(given, catalog.names('hardware'))}"
        )
    if (row.count("pp") or 1) > 1:
        return Refusal(row.line, "pipeline parallelism is not simulated")
    return _run(row, model, gpu, separate)


def _run(row: Row, model: str, gpu: str, separate: bool) -> Run | Refusal:
    ttft_ms, tpot_ms = row.number("ttft_ms") or 0.0, row.number("tpot_ms") or 0.0
    isl, osl = row.count("isl") or 0, row.count("osl") or 0
    if min(to_ns(ttft_ms * MILLISECOND_S), to_ns(tpot_ms * MILLISECOND_S)) < 1:
        return Refusal(row.line, "a measured time is 0")
    if isl < 1 or osl < 2:
        return Refusal(row.line, "isl must be at least 1 and osl at least 2")
    longest = load_model(model).context
    if longest is not None and longest.value is not None and isl + osl > longest.value:
        return Refusal(row.line, f"longer than the {longest.value:,} tokens that {model} takes")
    mixture = load_model(model).shape.value.experts is not None  # type: ignore[union-attr]
    users = _users(row, mixture)
    if users is None:
        return Refusal(row.line, "neither concurrency nor batch_size is given")
    concurrency, ranks, said = users
    if concurrency > MOST_USERS:
        return Refusal(row.line, f"more than {MOST_USERS:,} users are not simulated")
    shape = _parallelism(row, mixture, ranks)
    precision, format_said = _precision(row)
    harness = _harness(row)
    if harness not in load_harnesses().harnesses:
        known = load_harnesses().harnesses
        nearest = suggestion(harness[:60], known)
        return Refusal(row.line, f"no harness '{harness[:60]}'{nearest}; known: {', '.join(known)}")
    run = Run(
        line=row.line,
        model=model,
        named=row.text("model"),
        gpu=gpu,
        engine=row.text("engine").lower(),
        version=row.text("engine_version"),
        precision=precision,
        input_tokens=isl,
        output_tokens=osl,
        concurrency=concurrency,
        chips=shape.chips,
        attention_dp=shape.attention_dp,
        expert_parallel=shape.expert_parallel,
        harness=harness,
        measured_on=row.text("measured_on"),
        ttft_s=ttft_ms * MILLISECOND_S,
        tpot_s=tpot_ms * MILLISECOND_S,
        mixture=mixture,
        separate=separate,
        assumed=(*said, *format_said, *shape.assumed, *_load_said(harness)),
    )
    return as_started(run)


def _users(row: Row, mixture: bool) -> tuple[int, int, tuple[str, ...]] | None:
    """Return the users of one engine, among how many ranks they are split, and what was assumed.

    `batch_size` is the share of one rank: of attention data parallelism, or, with a dense model, of one of
    several engines behind one address.
    """
    concurrency, batch = row.count("concurrency") or 0, row.count("batch_size") or 0
    if not concurrency:
        return (batch, 1, ("concurrency is not given: batch_size",)) if batch else None
    share = concurrency // batch if batch else 1
    if share > 1 and not mixture:
        return batch, 1, (f"{share} engines share {concurrency} users: one engine's batch_size",)
    return concurrency, max(share, 1), ()


def _parallelism(row: Row, mixture: bool, ranks: int) -> Parallelism:
    tp = row.count("tp") or 1
    if not mixture:
        return dense_parallelism(tp)
    given = row.count("attention_dp")
    shape = parallelism_of(tp, given, row.count("moe_tp") or 0, row.count("moe_ep") or 0)
    if given is None and ranks > 1:
        why = (f"attention_dp is not given: {shape.chips}, since batch_size is a share of concurrency",)
        return shape._replace(attention_dp=shape.chips, assumed=why)
    return shape


def _precision(row: Row) -> tuple[str, tuple[str, ...]]:
    given = row.text("precision").lower()
    if given:
        return given, ()
    said = precision_in(row.text("model"))
    if said is not None:
        return said, (f"precision is not given: {said}, as in the model's name",)
    return "bf16", ("precision is not given: bf16, in which models are published",)


def _harness(row: Row) -> str:
    """Return how a run was taken: as named; else rows of InferenceX give attention_dp, and others count in
    1,000 or in 1,024."""
    if row.text("harness"):
        return row.text("harness").lower()
    if row.text("attention_dp"):
        return "inferencex"
    return "thousands" if counts_in_thousands(row) else "engine-defaults"


def counts_in_thousands(row: Row) -> bool:
    """Tell whether a row's prompts are of a round number of tokens, as InferenceX's never are."""
    return (row.count("isl") or 0) % 1000 == 0


def _load_said(harness: str) -> tuple[str, ...]:
    return (f"lengths and KV format of the harness '{load_harnesses().harnesses[harness].title}'",)


def without_repeats(runs: Iterable[Run], more: Callable[[Run], object] = lambda _: None) -> list[Run]:
    """Return runs without those that repeat another one's times; the one that says most is kept.

    The order is that of the lines. `more` is what else two runs must share to be the same.
    """
    kept: dict[tuple[object, ...], list[Run]] = {}
    for run in sorted(runs, key=lambda r: (not r.measured_on, not r.version, r.line)):
        same = kept.setdefault((*_load_of(run), more(run)), [])
        if not any(_same(run, other) for other in same):
            same.append(run)
    return sorted((run for group in kept.values() for run in group), key=lambda run: run.line)


def _load_of(run: Run) -> tuple[object, ...]:
    """Return what two rows of one measurement share; labels of parallelism may differ, and one is wrong."""
    served = (run.model, run.gpu, run.engine, run.precision, run.chips)
    return (*served, run.input_tokens, run.output_tokens, run.concurrency)


def _same(a: Run, b: Run) -> bool:
    return abs(a.tpot_s / b.tpot_s - 1) < SAME and abs(a.ttft_s / b.ttft_s - 1) < SAME
