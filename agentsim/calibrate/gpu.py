"""Fits engine profiles on measured serving runs, and judges the fit by runs left out.

Rounds of two steps: the real engine server gives every run's times at the constants so far, then each
profile's constants are fitted on these times carried over in closed form (`steady.py`). Profiles pull one
another weakly towards what is alike (`engine_constants.py`). Which runs of models that come with a drafter
speculated is inferred anew each round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from agentsim.backends.gpu.constants import Constants
from agentsim.backends.gpu.cost import GpuCost
from agentsim.calibrate.engine_constants import Key, Space, generation, pooled, space_of, stand_in
from agentsim.calibrate.gpu_report import Off
from agentsim.calibrate.least_squares import Array, damped, solve
from agentsim.calibrate.steady import Point, Times, point_of
from agentsim.errors import AgentsimError
from agentsim.pool import spread
from agentsim.specs import catalog
from agentsim.specs.engine import EngineProfile
from agentsim.specs.law import GpuLaw
from agentsim.specs.sourced import Ledger
from agentsim.validation.halves import profile_of
from agentsim.validation.rows import Run
from agentsim.validation.serving import cost_of, serve, times_of, weight_of
from agentsim.validation.speculation import drafter_for, drafter_of, speculating, ways_of
from agentsim.validation.suspects import wrong_runs

FIT_ROUNDS = 8
MIN_ROWS = 3
"""Runs from which on a profile is fitted on its own and told of to others."""
_SPREAD = 0.3
"""Width of the prior, in the logarithm of a constant."""
_TPOT_NOISE, _TPOT_WIDE, _TTFT_WIDE = 0.06, 0.15, 0.3
_TTFT_WEIGHT, _TTFT_MOST = 0.3, 1.5
"""TTFT counts for less: it hangs on how requests happen to arrive, and its outliers are many."""

Variant = tuple[int, bool]
"""A run by its line, without its model's drafter or with it."""


class Trial(NamedTuple):
    """A run to simulate on an engine of this cost."""

    run: Run
    cost: GpuCost


class Simulated(NamedTuple):
    """What the server took, without the request time, and how many sequences it ran at once."""

    times: Times
    admitted: int


def simulate_trial(trial: Trial) -> Simulated | None:
    """Return what the real server takes for a run, or None where a request cannot fit."""
    try:
        served, admitted = serve(trial.cost, trial.run)
    except AgentsimError:
        return None
    ttft_s, tpot_s = times_of(served, trial.run)
    return Simulated(Times(ttft_s - trial.cost.request_s, tpot_s), admitted)


def _weight(trial: Trial) -> float:
    return weight_of(trial.run)


class Fit:
    """Constants by profile as they are fitted, and what is known of every run.

    `speculates` are lines that are taken to have speculated, `wrong` those that look wrong, with the
    reason; `refused` those that no engine of the catalog runs.
    """

    def __init__(self, runs: Iterable[Run], train: set[int], processes: int | None = None) -> None:
        """Compile every run's engine; `train` are the lines of the runs to fit on."""
        self.train, self.processes = train, processes
        self.points: dict[Key, Array] = {}
        self.speculates: set[int] = set()
        self.wrong: dict[int, str] = {}
        self.refused: dict[int, str] = {}
        self._costs: dict[Variant, GpuCost] = {}
        self._known: dict[Variant, Point] = {}
        self._admitted: dict[Variant, int] = {}
        for run in runs:
            self._compile(run)
        self._all = {run.line: run for run in runs if run.line not in self.refused}

    def _compile(self, run: Run) -> None:
        try:
            for fast in ways_of(run):
                drafter = drafter_of(run) if fast else None
                self._costs[run.line, fast] = cost_of(run, drafter, None, Ledger())
        except AgentsimError as bad:
            self.refused[run.line] = str(bad)

    @property
    def runs(self) -> list[Run]:
        """The runs that engines of the catalog can run."""
        return [run for line, run in self._all.items() if line not in self.refused]

    @property
    def keys(self) -> list[Key]:
        """All profiles that runs were taken on."""
        return sorted({key_of(run) for run in self.runs})

    def of_profile(self, key: Key) -> list[Run]:
        """Return the runs that a profile is fitted on."""
        used = (r for r in self.runs if r.line in self.train and r.line not in self.wrong)
        return [run for run in used if key_of(run) == key]

    def variants(self, lines: set[int]) -> list[Variant]:
        """Return what is to be simulated of these lines: both ways of a run until one of them is chosen."""
        return [
            (line, fast)
            for line, fast in self._costs
            if line in lines
            and line not in self.refused
            and ((line, fast) not in self._known or fast is (line in self.speculates))
        ]

    def constants(self, run: Run) -> Constants:
        """Return the constants that a run has so far."""
        key, base = key_of(run), self._base(run)
        return space(key).constants(self.points.get(key, space(key).start), base)

    def _base(self, run: Run) -> Constants:
        """Return what the law alone gives a run's engine; a drafter does not change it."""
        return base_of(self._costs[run.line, ways_of(run)[0]].constants)

    def simulate(self, lines: set[int], done: Callable[[], None] = lambda: None) -> None:
        """Run the real server over these lines at the constants so far, and infer anew what they are."""
        variants = self.variants(lines)
        trials = [
            Trial(self._all[line], self._costs[line, fast].at(self.constants(self._all[line])))
            for line, fast in variants
        ]
        results = spread(simulate_trial, trials, done, _weight, self.processes)
        for variant, trial, result in zip(variants, trials, results, strict=True):
            if result is None:
                self.refused[variant[0]] = "the engine could not run it"
            else:
                self._known[variant] = point_of(trial.run, trial.cost, result.times)
                self._admitted[variant] = result.admitted
        self._infer(lines)

    def _infer(self, lines: set[int]) -> None:
        """Say which of these runs speculated and which look wrong, by what the server took.

        What is left out of the fit tells nothing of the runs that it is made on.
        """
        runs = [run for run in self.runs if run.line in lines]
        tpots = {
            fast: {r.line: self.seen(r, fast).tpot_s for r in runs if (r.line, fast) in self._known}
            for fast in (False, True)
        }
        self.speculates = (self.speculates - lines) | speculating(runs, tpots[False], tpots[True])
        beside = runs if lines <= self.train else self.runs
        admitted = {run.line: self._admitted.get(self._variant(run), 0) for run in beside}
        found = wrong_runs(beside, self.speculates, admitted)
        kept = {line: why for line, why in self.wrong.items() if line not in lines}
        self.wrong = kept | {line: why for line, why in found.items() if line in lines}

    def _variant(self, run: Run) -> Variant:
        return run.line, run.line in self.speculates

    def seen(self, run: Run, fast: bool) -> Times:
        """Return what a client sees of a run at the constants so far; exact where it was just simulated."""
        return self._known[run.line, fast].at(self.constants(run))

    def offs(self, lines: set[int]) -> list[Off]:
        """Return the errors of these runs that do not look wrong."""
        return [self._off(run) for run in self.runs if run.line in lines and run.line not in self.wrong]

    def _off(self, run: Run) -> Off:
        line, fast = self._variant(run)
        times, able = self.seen(run, fast), drafter_for(run.model) is not None
        said = ("on" if fast else "off") if able else "none"
        tpot, ttft = times.tpot_s / run.tpot_s - 1, times.ttft_s / run.ttft_s - 1
        return Off(line, key_of(run), run.model, tpot, ttft, said)

    def fit(self) -> None:
        """Fit every profile on its runs; one with too few takes what the others lead to expect."""
        fitted: dict[Key, Array] = {}
        for key, expected in self.expected(self.keys).items():
            enough = len(self.of_profile(key)) >= MIN_ROWS
            start = self.points.get(key, expected)
            fitted[key] = self._fit_one(key, start, expected) if enough else expected
        self.points = fitted

    def expected(self, keys: Iterable[Key]) -> dict[Key, Array]:
        """Return what the law's priors and the profiles fitted so far lead to expect of others."""
        told, rows = self._told()
        return {key: pooled(key, told, rows, space(key).names) for key in keys}

    def _told(self) -> tuple[dict[Key, Array], dict[Key, int]]:
        """Return the points of profiles with enough runs to be told of, and the runs of all."""
        rows = {key: len(self.of_profile(key)) for key in self.points}
        return {key: point for key, point in self.points.items() if rows[key] >= MIN_ROWS}, rows

    def stand_ins(self) -> dict[Key, Array]:
        """Return for profiles with too few runs what their engine reached in the format on like GPUs."""
        told, rows = self._told()
        wanted = (*self.unmeasured(), *(key for key in self.points if key not in told))
        found = {key: stand_in(key, told, rows) for key in wanted}
        return {key: point for key, point in found.items() if point is not None}

    def unmeasured(self) -> list[Key]:
        """Return the profiles of mixtures of experts that no run is of, on GPUs of a generation measured.

        Kernels alone do not say what these take; of dense models they do, and were measured on each GPU.
        """
        profiles = [catalog.load(EngineProfile, name) for name in catalog.names("engines")]
        told, _ = self._told()
        known = {(k.engine, generation(k.gpu), k.precision) for k in told if k.kind == "moe"}
        formats = sorted({precision for _, _, precision in known})
        keys = (
            Key(profile.software, profile.hardware, precision, "moe")
            for profile in profiles
            for precision in formats
            if (profile.software, generation(profile.hardware), precision) in known
        )
        return [key for key in keys if key not in self.keys]

    def _fit_one(self, key: Key, start: Array, expected: Array) -> Array:
        bounds, runs = space(key), self.of_profile(key)
        points = [self._known[self._variant(run)] for run in runs]
        bases = [self._base(run) for run in runs]
        measured = np.log([[run.ttft_s, run.tpot_s] for run in runs])

        def residuals(at: Array) -> Array:
            times = [p.at(bounds.constants(at, base)) for p, base in zip(points, bases, strict=True)]
            off = np.log(np.array(times)) - measured
            late = _TTFT_WEIGHT * np.clip(off[:, 0], -_TTFT_MOST, _TTFT_MOST)
            far = (damped(off[:, 1], _TPOT_WIDE), damped(late, _TTFT_WIDE))
            return np.concatenate([*(part / _TPOT_NOISE for part in far), (at - expected) / _SPREAD])

        return solve(residuals, start, bounds.low, bounds.high, FIT_ROUNDS).point


def key_of(run: Run) -> Key:
    """Return the profile that a run's constants stand in."""
    engine, gpu, precision, kind = profile_of(run)
    return Key(engine, gpu, precision, "moe" if kind == "moe" else "dense")


@cache
def space(key: Key) -> Space:
    """Return what is fitted of a profile; see `space_of`."""
    return space_of(key)


@cache
def _attention_share() -> float:
    share = catalog.load(GpuLaw, "gpu-law").attention_share.value
    assert share is not None
    return share


def base_of(constants: Constants) -> Constants:
    """Return constants with those that serving takes from the law: the attention's share of the peak."""
    return replace(constants, attention_share=_attention_share())
