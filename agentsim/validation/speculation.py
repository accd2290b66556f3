"""Which runs speculated, where a file does not say: inferred from how fast their steps are.

A model that comes with a drafter (an MTP head) may have been run with it. Both are simulated, and a server
(runs that differ in their load alone) is taken to have speculated where that lies nearer to all its runs
together: its steps would be faster than the GPUs' bandwidth and kernels allow. A server that shows the same
load twice was started both ways, so each of its runs is taken on its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from math import log

from agentsim.backends.base import Drafter
from agentsim.specs import catalog
from agentsim.specs.harness import load_harnesses
from agentsim.validation.names import load_model
from agentsim.validation.rows import Run

FAR = 0.6
"""Distances, as logarithms of a ratio, count up to this: one run that is far off does not decide."""


@cache
def drafter_for(model: str) -> Drafter | None:
    """Return the drafter that comes with a model, or None; its drafts a step are the harnesses'.

    One that is a model of its own, with embeddings of its own, does not come with it.
    """
    wanted = load_harnesses().draft_tokens.value or 1
    for name in catalog.names("models"):
        drafting = load_model(name).drafting
        if drafting is not None and drafting.target == model and drafting.shares_embeddings:
            text = next(iter(drafting.acceptance))
            known = len(drafting.acceptance[text].value or ())
            return Drafter(load_model(name), min(wanted, known), text)
    return None


def speculating(runs: Sequence[Run], without: Mapping[int, float], with_: Mapping[int, float]) -> set[int]:
    """Return the lines of the runs that are taken to have speculated.

    `without` and `with_` are simulated TPOTs by line, in seconds; a run that either lacks decides nothing
    and is not returned.
    """
    servers: dict[tuple[object, ...], list[Run]] = defaultdict(list)
    for run in runs:
        if run.line in without and run.line in with_:
            servers[run.server].append(run)
    found: set[int] = set()
    for server in servers.values():
        for group in [[run] for run in server] if _both_ways(server) else [server]:
            if _distance(group, with_) < _distance(group, without):
                found |= {run.line for run in group}
    return found


def _both_ways(server: Sequence[Run]) -> bool:
    counts = Counter((run.input_tokens, run.output_tokens, run.concurrency) for run in server)
    return max(counts.values()) > 1


def _distance(group: Sequence[Run], tpots: Mapping[int, float]) -> float:
    return sum(min(abs(log(run.tpot_s / tpots[run.line])), FAR) for run in group)
