"""A file of measured runs held against the simulator: read, replayed on all cores, judged."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentsim.errors import InputError
from agentsim.pool import spread
from agentsim.specs import catalog
from agentsim.specs.engine import EngineProfile
from agentsim.validation import disaggregated
from agentsim.validation import rows as rows_of
from agentsim.validation.halves import HALF, fitted_lines
from agentsim.validation.names import software_of
from agentsim.validation.replay import Job, Replayed, replay
from agentsim.validation.report import Judged, Refused, Report
from agentsim.validation.rows import Pools, Refusal, Run
from agentsim.validation.serving import own_profile, weight_of
from agentsim.validation.speculation import drafter_for, speculating, ways_of
from agentsim.validation.suspects import wrong_runs
from agentsim.validation.table import read_table

HEADINGS = ("gpu", "engine", "model", "precision", "concurrency")
GROUP_BY = ("engine", "gpu", "precision", "class")


@dataclass(frozen=True, slots=True)
class Choices:
    """How a file is judged: profiles from a folder, one half of a holdout, how many processes."""

    profiles: str | None = None
    holdout: int | None = None
    processes: int | None = None
    share: float = HALF


class Plan:
    """What a file asks to be simulated. `steps` simulations make the report."""

    def __init__(self, path: str, choices: Choices = Choices()) -> None:
        """Read a file. Raises `InputError` for what is no CSV of runs, or no folder."""
        self.path, self.choices = path, choices
        if choices.profiles is not None and not os.path.isdir(choices.profiles):
            raise InputError(f"{choices.profiles}: no such folder; it takes one of engine profiles (YAML)")
        kind, rows = read_table(path, rows_of.COLUMNS, disaggregated.COLUMNS)
        self.separate = kind == 1
        self._found = disaggregated.measured(rows) if self.separate else rows_of.measured(rows)
        seed = choices.holdout
        fitted = set() if seed is None else fitted_lines(self._found.runs, seed, choices.share)
        self._runs = [run for run in self._found.runs if run.line not in fitted]
        if choices.profiles is not None:
            _check_profiles(choices.profiles, self._found.runs)
        self._jobs = self._to_simulate()

    @property
    def steps(self) -> int:
        return len(self._jobs)

    def _to_simulate(self) -> list[Job]:
        """Every run, without its model's drafter, with it, or both."""
        pools, profiles = self._found.pools, self.choices.profiles
        return [
            Job(run, way, profiles, pools.get(run.line))
            for way in (False, True)
            for run in self._runs
            if way in ways_of(run, pools.get(run.line))
        ]

    def report(self, done: Callable[[], None] = lambda: None) -> Report:
        """Simulate everything, `done` being called once a step, and return the report."""
        results = spread(replay, self._jobs, done, _weight, self.choices.processes)
        judged, refused = _judged(self._runs, self._jobs, results)
        found = self._found
        return Report(
            file=os.path.basename(self.path),
            separate=self.separate,
            read=found.read,
            duplicates=found.duplicates,
            judged=tuple(judged),
            refused=tuple(Refused(r.line, r.reason, r.detail) for r in (*found.refused, *refused)),
            headings=HEADINGS,
            group_by=GROUP_BY,
            holdout=self.choices.holdout,
            in_fit=len(found.runs) - len(self._runs),
            own_profiles=self.choices.profiles is not None,
        )


def _check_profiles(folder: str, runs: Sequence[Run]) -> None:
    """Refuse a folder without a profile of these runs, and profiles that are not what their names say."""
    wanted = {(software_of(run.engine, run.version, run.gpu, run.kind), run.gpu) for run in runs}
    there = [(name, key) for key in sorted(wanted) if os.path.isfile(name := own_profile(folder, *key))]
    if wanted and not there:
        names = ", ".join(os.path.basename(own_profile(folder, *key)) for key in sorted(wanted)[:3])
        raise InputError(f"{folder}: no profile of these runs in it; looked for {names}")
    for path, (software, gpu) in there:
        profile = catalog.load_file(EngineProfile, path, os.path.basename(path))
        if (profile.software, profile.hardware) != (software, gpu):
            raise InputError(f"{path}: is a profile of {profile.software} on {profile.hardware}")


def _weight(job: Job) -> float:
    return weight_of(job.run)


def _judged(
    runs: Sequence[Run], jobs: Sequence[Job], results: Sequence[Replayed | Refusal]
) -> tuple[list[Judged], list[Refusal]]:
    """Choose for every run which of its simulations counts, and say which runs look wrong."""
    pools = {job.run.line: job.pools for job in jobs}
    both: dict[bool, dict[int, Replayed]] = {False: {}, True: {}}
    refused: dict[int, Refusal] = {}
    for job, result in zip(jobs, results, strict=True):
        if isinstance(result, Refusal):
            refused.setdefault(job.run.line, result)
        else:
            both[job.speculates][job.run.line] = result
    tpots = {on: {line: r.tpot_s for line, r in done.items()} for on, done in both.items()}
    fast = speculating(runs, tpots[False], tpots[True])
    taken = {run.line: both[run.line in fast].get(run.line) for run in runs}
    chosen = [(run, r) for run in runs if (r := taken[run.line]) is not None]
    whole = [run for run, _ in chosen if pools.get(run.line) is None]
    wrong = wrong_runs(whole, fast, {run.line: r.admitted for run, r in chosen})
    missed = [refused[run.line] for run in runs if taken[run.line] is None]
    fast_or_not = [(run, result, run.line in fast) for run, result in chosen]
    return [_one(*one, wrong.get(one[0].line), pools[one[0].line]) for one in fast_or_not], missed


def _one(run: Run, result: Replayed, fast: bool, wrong: str | None, pools: Pools | None) -> Judged:
    able = drafter_for(run.model) is not None
    return Judged(
        line=run.line,
        labels={
            "model": run.model,
            "gpu": run.gpu,
            "engine": run.engine,
            "precision": run.precision,
            "class": run.kind,
            "concurrency": octave(run.concurrency),
        },
        setup=setup_text(run) if pools is None else pools_text(run, pools),
        load=f"{run.input_tokens}/{run.output_tokens}",
        users=run.concurrency,
        measured_ttft_s=run.ttft_s,
        measured_tpot_s=run.tpot_s,
        ttft_s=result.ttft_s,
        tpot_s=result.tpot_s,
        speculation=("on" if fast else "off") if able else "none",
        inferred=len(ways_of(run, pools)) > 1,
        wrong=wrong,
        fitted_on=result.fitted_on,
        assumed=run.assumed,
    )


def octave(users: int) -> str:
    """Return the range between two powers of two that a concurrency lies in, such as `9-16`."""
    high = 1 << (users - 1).bit_length()
    return f"{high // 2 + 1}-{high}" if high > 2 else str(high)


def setup_text(run: Run) -> str:
    """Return the parallelism of a run in the field's short words, such as `tp8 ep8`."""
    tensor = run.chips // run.attention_dp
    parts = [f"dp{run.attention_dp}" if run.attention_dp > 1 else "", f"tp{tensor}" if tensor > 1 else ""]
    parts.append(f"ep{run.expert_parallel}" if run.expert_parallel > 1 else "")
    return " ".join(part for part in parts if part) or "1 GPU"


def pools_text(run: Run, pools: Pools) -> str:
    """Return the workers of a run, those that prefill first, such as `1 x tp4 > 5 x dp8 ep8`."""
    prefill = f"{pools.prefill_workers} x {setup_text(pools.prefill)}"
    return f"{prefill} > {pools.decode_workers} x {setup_text(run)}"
