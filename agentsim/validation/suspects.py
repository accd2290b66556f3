"""Measured runs that look wrong, each with a reason that would hold of any run. None is dropped in silence.

The rules are of physics and of the file's consistency with itself; the simulator's error is none of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from agentsim.specs.harness import load_harnesses
from agentsim.validation.names import load_chip, load_model
from agentsim.validation.rows import Run

OVER_PEAK = "faster than the GPUs' peak allows: prompts were cached, or times are not in ms"
SLOWER_THAN_MORE = "slower than the same server at a higher concurrency"
FIRST_TOKEN_ELSEWHERE = (
    "first tokens of another order than the same load on other servers of the engine, on no more bandwidth"
)
WAITED = "users waited longer than they were served, though memory holds them all: fewer were admitted"
ELSEWHERE = "a step of another order than the same load elsewhere, on no more bandwidth"
AS_A_WHOLE = "most runs of its server look wrong"


def wrong_runs(runs: Sequence[Run], speculates: set[int], admitted: Mapping[int, int]) -> dict[int, str]:
    """Return the reason by line of the runs that look wrong.

    `admitted` is how many sequences the simulated engine ran at once: all users, where memory holds them.
    Runs that speculated are compared with such runs alone.
    """
    found: dict[int, str] = {}
    for line in (r.line for r in runs if _peak_share(r) > _fastest(r)):
        found[line] = OVER_PEAK
    for run in runs:
        if admitted.get(run.line, 0) >= run.concurrency and run.ttft_s > _decode_s(run):
            found.setdefault(run.line, WAITED)
    for line in _slower_than_more(runs, speculates):
        found.setdefault(line, SLOWER_THAN_MORE)
    doubts = load_harnesses().doubts
    for line in _other_order(runs, speculates, lambda run: run.tpot_s, _known(doubts.step), least=1):
        found.setdefault(line, ELSEWHERE)
    for same in _grouped(runs, lambda run: run.engine):
        for line in _other_order(
            same, speculates, lambda run: run.ttft_s, _known(doubts.first_token), least=2
        ):
            found.setdefault(line, FIRST_TOKEN_ELSEWHERE)
    for line in _as_a_whole(runs, speculates, found):
        found.setdefault(line, AS_A_WHOLE)
    return found


def _decode_s(run: Run) -> float:
    return run.tpot_s * (run.output_tokens - 1)


def _peak_share(run: Run) -> float:
    """Return the share of the GPUs' dense peak that the prompts of a run need, by Little's law."""
    shortest = _known(load_harnesses().harnesses[run.harness].shortest)
    requests_per_s = run.concurrency / (run.ttft_s + _decode_s(run))
    flops = 2.0 * _known(load_model(run.model).parameters).active * run.input_tokens * (1 + shortest) / 2
    return float(requests_per_s * flops / (_peak(run) * run.chips))


def _peak(run: Run) -> float:
    peaks: Any = load_chip(run.gpu).dense_compute
    return float(_known(peaks.get(run.precision, peaks["bf16"])))


def _fastest(run: Run) -> float:
    shares: Any = load_harnesses().fastest_gemm
    return float(_known(shares.get(run.precision, shares["bf16"])))


def _known(datum: Any) -> Any:
    """Return the value of a datum that is never unknown."""
    return datum.value


def _slower_than_more(runs: Iterable[Run], speculates: set[int]) -> list[int]:
    slower = _known(load_harnesses().doubts.slower)
    series = _grouped(runs, lambda r: (*r.server, r.input_tokens, r.output_tokens, r.line in speculates))
    return [
        run.line
        for same in series
        for run in same
        if any(run.tpot_s > slower * o.tpot_s for o in same if o.concurrency > run.concurrency)
    ]


def _other_order(
    runs: Iterable[Run], speculates: set[int], time_of: Callable[[Run], float], most: float, least: int
) -> list[int]:
    """Return the runs that take `most` times as long as `least` runs of other servers or more."""

    def load(r: Run) -> tuple[object, ...]:
        setup = (r.model, r.precision, r.chips, r.line in speculates)
        return (*setup, r.input_tokens, r.output_tokens, r.concurrency)

    found = []
    for same in _grouped(runs, load):
        for run in same:
            others = [time_of(o) for o in same if o.server != run.server and _bandwidth(o) <= _bandwidth(run)]
            if len(others) >= least and time_of(run) > most * median(others):
                found.append(run.line)
    return found


def _bandwidth(run: Run) -> float:
    return float(_known(load_chip(run.gpu).memory_bandwidth))


def _as_a_whole(runs: Iterable[Run], speculates: set[int], found: Mapping[int, str]) -> list[int]:
    """Return the other runs of servers of three and more, half of which or more look wrong."""
    servers = _grouped(runs, lambda r: (*r.server, r.line in speculates))
    bad = [s for s in servers if len(s) >= 3 and 2 * sum(r.line in found for r in s) >= len(s)]
    return [run.line for server in bad for run in server]


def _grouped(runs: Iterable[Run], key: Any) -> list[list[Run]]:
    groups: dict[object, list[Run]] = defaultdict(list)
    for run in runs:
        groups[key(run)].append(run)
    return list(groups.values())
