"""A file of measured runs held against the simulator: read, replayed on all cores, judged."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentsim import seeds
from agentsim.validation.pool import in_parallel
from agentsim.validation.report import Judged, Refused, Report
from agentsim.validation.rows import Measured, Refusal, Run
from agentsim.validation.serving import Job, Replayed, replay
from agentsim.validation.speculation import drafter_for, speculating
from agentsim.validation.suspects import wrong_runs

HEADINGS = ("gpu", "engine", "model", "precision", "concurrency")
GROUP_BY = ("engine", "gpu", "precision", "class")
TOKEN_WEIGHT = 1 / 50
"""Cost of a simulated output token, in requests: longer outputs meet more changes of the batch."""


@dataclass(frozen=True, slots=True)
class Choices:
    """How a file is judged: profiles from a folder, one half of a holdout, how many processes."""

    profiles: str | None = None
    holdout: int | None = None
    processes: int | None = None


def in_fit(run: Run, seed: int) -> bool:
    """Tell whether a run lies in the half that is fitted on; the other half is left out.

    Runs of one configuration (model, GPU, engine, format, parallelism) lie in the same half.
    """
    setup = (run.model, run.gpu, run.engine, run.precision)
    return seeds.stream(seed, *setup, run.chips, run.attention_dp, run.expert_parallel)() < 0.5


def jobs_of(runs: Sequence[Run], profiles: str | None = None) -> list[Job]:
    """Return what must be simulated: every run, and those whose model has a drafter also with it."""
    able = [run for run in runs if drafter_for(run.model) is not None]
    return [Job(r, False, profiles) for r in runs] + [Job(r, True, profiles) for r in able]


def judge(
    file: str, found: Measured, choices: Choices, started: Callable[[int], Callable[[], None]]
) -> Report:
    """Return the report on the runs of a file. `started` is told how many jobs there are; its answer is
    called once a job.
    """
    seed = choices.holdout
    runs = [run for run in found.runs if seed is None or not in_fit(run, seed)]
    jobs = jobs_of(runs, choices.profiles)
    results = in_parallel(replay, jobs, _weight, started(len(jobs)), choices.processes)
    judged, refused = _judged(runs, jobs, results)
    return Report(
        file=os.path.basename(file),
        what="serving",
        read=found.read,
        duplicates=found.duplicates,
        judged=tuple(judged),
        refused=tuple(Refused(r.line, r.reason, r.detail) for r in (*found.refused, *refused)),
        headings=HEADINGS,
        group_by=GROUP_BY,
        holdout=seed,
        left_out=len(found.runs) - len(runs),
    )


def _weight(job: Job) -> float:
    run = job.run
    return run.concurrency * (1 + TOKEN_WEIGHT * run.output_tokens)


def _judged(
    runs: Sequence[Run], jobs: Sequence[Job], results: Sequence[Replayed | Refusal]
) -> tuple[list[Judged], list[Refusal]]:
    """Choose for every run which of its simulations counts, and say which runs look wrong."""
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
    wrong = wrong_runs([run for run, _ in chosen], fast, {run.line: r.admitted for run, r in chosen})
    missed = [refused[run.line] for run in runs if taken[run.line] is None]
    return [_one(run, result, run.line in fast, wrong.get(run.line)) for run, result in chosen], missed


def _one(run: Run, result: Replayed, fast: bool, wrong: str | None) -> Judged:
    able = drafter_for(run.model) is not None
    return Judged(
        line=run.line,
        labels={
            "model": run.model,
            "gpu": run.gpu,
            "engine": run.engine,
            "precision": run.precision,
            "class": run.kind,
            "concurrency": str(run.concurrency),
        },
        setup=setup_text(run),
        load=f"{run.input_tokens}/{run.output_tokens}",
        measured_ttft_s=run.ttft_s,
        measured_tpot_s=run.tpot_s,
        ttft_s=result.ttft_s,
        tpot_s=result.tpot_s,
        speculation=("on" if fast else "off") if able else "none",
        wrong=wrong,
        fitted_on=result.fitted_on,
        assumed=run.assumed,
    )


def setup_text(run: Run) -> str:
    """Return the parallelism of a run in the field's short words, such as `tp8 ep8`."""
    tensor = run.chips // run.attention_dp
    parts = [f"dp{run.attention_dp}" if run.attention_dp > 1 else "", f"tp{tensor}" if tensor > 1 else ""]
    parts.append(f"ep{run.expert_parallel}" if run.expert_parallel > 1 else "")
    return " ".join(part for part in parts if part) or "1 GPU"
