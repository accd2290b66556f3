"""A file of serving runs to engine profiles: fit on a half, judge on the other; if asked, fit on all."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from agentsim.calibrate.engine_constants import Key
from agentsim.calibrate.gpu import MIN_ROWS, Fit, space
from agentsim.calibrate.gpu_report import GpuCalibration, Off, ProfileFit, errors_of
from agentsim.calibrate.least_squares import Array
from agentsim.errors import InputError
from agentsim.validation.halves import HALF, fitted_lines
from agentsim.validation.report import Errors
from agentsim.validation.rows import read_runs

ROUNDS = 4
"""Rounds of simulating and fitting; the last ones move TPOT by well under a percent."""
ROUNDS_ON_ALL = 2
"""Rounds on all runs, from where the fit of the half ended."""


@dataclass(frozen=True, slots=True)
class Choices:
    """How a file is fitted: the seed of the halves, the share to fit on, and whether all runs follow."""

    seed: int = 0
    share: float = HALF
    on_all: bool = False
    processes: int | None = None


class Plan:
    """What a fit asks to be simulated. `steps` simulations, about, make the calibration."""

    def __init__(self, path: str, choices: Choices = Choices()) -> None:
        """Read a file. Raises `InputError` where it holds no runs that can be fitted."""
        if not 0 < choices.share <= 1:
            raise InputError(f"--share is {choices.share:g}: a share of the runs over 0, at most 1")
        self.path, self.choices = path, choices
        found = read_runs(path)
        train = fitted_lines(found.runs, choices.seed, choices.share)
        self._fit = Fit(found.runs, train, choices.processes)
        self._refused = {row.line: row.reason for row in found.refused}
        if not self._fit.runs:
            why = next(iter({**self._fit.refused, **self._refused}.values()), "it has no rows")
            raise InputError(f"{path}: no run to fit on: {why}")
        self._lines = {run.line for run in self._fit.runs}

    @property
    def steps(self) -> int:
        """Simulations that are foreseen."""
        fit, train = self._fit, self._fit.train & self._lines
        half = len(fit.variants(train)) + ROUNDS * len(train) + len(fit.variants(self._lines - train))
        return half + (ROUNDS_ON_ALL * len(self._lines) if self.choices.on_all else 0)

    def calibration(self, done: Callable[[], None] = lambda: None) -> GpuCalibration:
        """Fit, `done` being called once a simulation, and return what came of it."""
        fit, train = self._fit, self._fit.train & self._lines
        for _ in range(ROUNDS):
            fit.simulate(train, done)
            fit.fit()
        if not any(len(fit.of_profile(key)) >= MIN_ROWS for key in fit.keys):
            raise InputError(self._too_few())
        fit.simulate(train, done)
        fit.simulate(self._lines - train, done)
        left_out = fit.offs(self._lines - train)
        if self.choices.on_all:
            fit.train = set(self._lines)
            for _ in range(ROUNDS_ON_ALL):
                fit.fit()
                fit.simulate(self._lines, done)
        return self._report(fit.offs(fit.train & self._lines), left_out)

    def _too_few(self) -> str:
        fit = self._fit
        wrong = Counter(fit.wrong.values()).most_common(1)
        why = f"; {wrong[0][1]:,} look wrong: {wrong[0][0]}" if wrong else ""
        return f"{self.path}: no profile has {MIN_ROWS} runs to be fitted on, of {len(self._lines):,}{why}"

    def _report(self, in_fit: list[Off], left_out: list[Off]) -> GpuCalibration:
        fit = self._fit
        points = dict(sorted((fit.points | fit.stand_ins()).items()))
        return GpuCalibration(
            file=os.path.basename(self.path),
            seed=self.choices.seed,
            share=self.choices.share,
            profiles=tuple(self._profile(key, point, in_fit, left_out) for key, point in points.items()),
            in_fit=tuple(in_fit),
            left_out=tuple(left_out),
            wrong=dict(fit.wrong),
            refused=self._refused | fit.refused,
        )

    def _profile(self, key: Key, point: Array, in_fit: list[Off], left_out: list[Off]) -> ProfileFit:
        mine, others = ([o for o in offs if o.key == key] for offs in (in_fit, left_out))
        errors, judged = errors_of(mine), errors_of(others) if others else None
        models = tuple(sorted({o.model for o in mine}))
        return ProfileFit(
            key=key,
            models=models,
            constants=space(key).values(point),
            held=space(key).held,
            fitted=len(mine) >= MIN_ROWS,
            errors=errors,
            left_out=judged,
            fitted_on=self._fitted_on(models, errors, judged),
        )

    def _fitted_on(self, models: tuple[str, ...], errors: Errors, judged: Errors | None) -> str:
        file = os.path.basename(self.path)
        said = f"{file} (agentsim calibrate gpu): {errors.rows} runs of {', '.join(models)}"
        said += f"; median error in the fit: {_errors_text(errors)}"
        if judged is None:
            return f"{said}; no run was left out"
        half = f"of a fit on a {self.choices.share:.0%} share of the configurations, seed {self.choices.seed}"
        return f"{said}; on {judged.rows} left out {half}: {_errors_text(judged)}"


def _errors_text(errors: Errors) -> str:
    if errors.tpot is None or errors.ttft is None:
        return "unknown"
    return f"TPOT {errors.tpot.median:.1%}, TTFT {errors.ttft.median:.1%}"
