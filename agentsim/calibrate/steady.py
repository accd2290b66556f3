"""A measured run in closed form: what its TTFT and TPOT become when constants change a little.

The engine server gives the times at some constants. Those at others are the server's times the ratio of
two formulas of the steady state: `concurrency` users, each waiting for its first token or decoding, at the
batch that the server had. Every cost is the backend's own.

Why so: a fit asks for the times of every run thousands of times; the server takes a second for some.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from agentsim.backends.base import Batch
from agentsim.backends.gpu.constants import Constants
from agentsim.backends.gpu.cost import GpuCost
from agentsim.validation.rows import Run
from agentsim.validation.serving import requests_of

_LEAST_CHUNK = 64.0
"""Prompt tokens that an iteration takes at the least, however many sequences decode."""


class Times(NamedTuple):
    """TTFT without the time that the engine takes for a request, and TPOT; in seconds."""

    ttft_s: float
    tpot_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """What a run asks of an engine: users, mean prompt and output, sequences that decode at once."""

    users: int
    prompt: float
    output: float
    batch: float

    @staticmethod
    def of(run: Run, simulated: Times, request_s: float) -> Load:
        """Return the load of a run; the batch is as large as the server's, by Little's law."""
        requests = requests_of(run)
        prompt, output = fmean(p for p, _ in requests), fmean(o for _, o in requests)
        decoding = simulated.tpot_s * (output - 1)
        share = decoding / (decoding + simulated.ttft_s + request_s)
        return Load(run.concurrency, prompt, output, max(run.concurrency * share, 1.0))


def steady(cost: GpuCost, load: Load) -> Times:
    """Return the times of the steady state, in which every user prefills once while each other decodes.

    A prompt waits for half an iteration, or for half of what the engine holds calls.
    """
    sequences: Any = load.batch  # a mean: between two whole numbers
    length = load.prompt + load.output / 2
    window = min(length, cost.window_tokens or 0)
    decoding = Batch(sequences, sequences * length, sequences * window)
    room = max(cost.batched_tokens - sequences * cost.verified_tokens, _LEAST_CHUNK)
    chunks = max(load.prompt / room, 1.0)
    tokens: Any = load.prompt / chunks
    pairs = tokens * load.prompt / 2
    seen = min(pairs, tokens * (cost.window_tokens or 0))
    alone = Batch(0, 0.0, 0.0, tokens, pairs, seen, 1)
    plain_s, alone_s = cost.iteration_s(decoding), cost.iteration_s(alone)
    mixed_s = cost.iteration_s(Batch(sequences, decoding.context, decoding.window, *alone[3:]))
    first = cost.rules.prefill_first
    stalled_s = chunks * (alone_s if first else mixed_s - plain_s)
    steps = (load.output - 1) / cost.tokens_per_step
    tpot_s = (steps * plain_s + sequences * stalled_s) / (load.output - 1)
    waits = cost.rules.hold.iterations / 2 if cost.rules.hold is not None else 0.5
    return Times(waits * plain_s + chunks * (alone_s if first else mixed_s), tpot_s)


class Point(NamedTuple):
    """A run at the constants it was last simulated with: what the server and the formula gave."""

    cost: GpuCost
    load: Load
    simulated: Times
    formula: Times

    def at(self, constants: Constants) -> Times:
        """Return the times that a client sees with other constants."""
        cost = self.cost.at(constants)
        now = steady(cost, self.load)
        ttft_s = self.simulated.ttft_s * now.ttft_s / self.formula.ttft_s
        tpot_s = self.simulated.tpot_s * now.tpot_s / self.formula.tpot_s
        return Times(ttft_s + cost.request_s, tpot_s)


def point_of(run: Run, cost: GpuCost, simulated: Times) -> Point:
    """Return the point of a run that the server took `simulated` for, its request time not counted."""
    load = Load.of(run, simulated, cost.request_s)
    return Point(cost, load, simulated, steady(cost, load))
