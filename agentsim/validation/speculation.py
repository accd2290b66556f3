"""Which runs speculated, where a file does not say: inferred from how fast their steps are.

A model that comes with a drafter (an MTP head) may have been run with it. Where the harness's scripts tell
(`settings.py`), that is taken. Else both are simulated, and a server (runs that differ in their load alone)
is taken to have speculated where that lies nearer to all its runs together. So few runs that each could be
right either way do not decide it by being near: they are taken to have speculated only where their steps
are faster than the engine is known to take without. A server that shows the same load twice was started
both ways, so each of its runs is taken on its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from math import inf, log

from agentsim.backends.base import Drafter
from agentsim.specs import catalog
from agentsim.specs.harness import load_harnesses
from agentsim.validation.names import load_model
from agentsim.validation.rows import Pools, Run
from agentsim.validation.settings import settings_of

FAR = 0.6
"""Distances, as logarithms of a ratio, count up to this: one run that is far off does not decide."""
TOGETHER = 3
"""So many runs of one server and more tell by which way lies nearer to them."""


def drafter_of(run: Run) -> Drafter | None:
    """Return the drafter that a run may have speculated with, or None."""
    return drafter_for(run.model, settings_of(run).draft_tokens or None)


def ways_of(run: Run, pools: Pools | None = None) -> tuple[bool, ...]:
    """Return how a run is simulated: without its drafter, with it, or both where nothing tells."""
    if drafter_for(run.model) is None:
        return (False,)
    if pools is not None and pools.speculates is not None:
        return (pools.speculates,)
    known = settings_of(run).draft_tokens
    return (False, True) if known is None else (known > 0,)


@cache
def drafter_for(model: str, drafts: int | None = None) -> Drafter | None:
    """Return the drafter that comes with a model, or None; its drafts a step are by default the harnesses'.

    One that is a model of its own, with embeddings of its own, does not come with it.
    """
    wanted = drafts or load_harnesses().draft_tokens.value or 1
    for name in catalog.names("models"):
        drafting = load_model(name).drafting
        if drafting is not None and drafting.target == model and drafting.shares_embeddings:
            text = next(iter(drafting.acceptance))
            known = len(drafting.acceptance[text].value or ())
            return Drafter(load_model(name), min(wanted, known), text)
    return None


def speculating(runs: Sequence[Run], without: Mapping[int, float], with_: Mapping[int, float]) -> set[int]:
    """Return the lines of the runs that are taken to have speculated.

    `without` and `with_` are simulated TPOTs by line, in seconds; a run in one of them alone decides nothing
    for others.
    """
    servers: dict[tuple[object, ...], list[Run]] = defaultdict(list)
    for run in runs:
        if run.line in without and run.line in with_:
            servers[run.server].append(run)
    found = {run.line for run in runs if run.line in with_ and run.line not in without}
    for server in servers.values():
        for group in [[run] for run in server] if _both_ways(server) else [server]:
            nearer = _distance(group, with_) < _distance(group, without)
            if nearer and (len(group) >= TOGETHER or all(_is_faster(run, without) for run in group)):
                found |= {run.line for run in group}
    return found


def _both_ways(server: Sequence[Run]) -> bool:
    counts = Counter((run.input_tokens, run.output_tokens, run.concurrency) for run in server)
    return max(counts.values()) > 1


def _is_faster(run: Run, without: Mapping[int, float]) -> bool:
    return run.tpot_s * (load_harnesses().doubts.faster.value or inf) < without[run.line]


def _distance(group: Sequence[Run], tpots: Mapping[int, float]) -> float:
    return sum(min(abs(log(run.tpot_s / tpots[run.line])), FAR) for run in group)
