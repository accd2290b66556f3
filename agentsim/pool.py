"""The same work on many things, spread over the cores of this machine; the results come back in order.

Work, jobs and results travel between processes, so they must be plain data (picklable).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from agentsim import plugins
from agentsim.errors import InfeasibleError
from agentsim.executors.base import Lost, Run

J = TypeVar("J")
R = TypeVar("R")

Step = Callable[[], None]
EXECUTOR = "local"


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(
    work: Callable[[J], R],
    jobs: Sequence[J],
    step: Step,
    weight: Callable[[J], float] | None = None,
    processes: int | None = None,
) -> list[R]:
    """Return the result of every job, in order; `step` is called once for each.

    The heaviest jobs by `weight` go first. Default: as many processes as there are cores. An error of a
    job is raised here; `InfeasibleError` where a process ended under its job.
    """
    run: Run = plugins.load("executors", EXECUTOR)
    found: list[Any] = [None] * len(jobs)
    order: Sequence[int] = range(len(jobs))
    if weight is not None:
        order = sorted(order, key=lambda number: -weight(jobs[number]))
    for number, result in run(_Numbered(work, tuple(jobs)), order, str(processes or cores())):
        if isinstance(result, Lost):
            raise InfeasibleError(f"job {number + 1} of {len(jobs)}: {result.reason}; is memory short?")
        found[number] = result
        step()
    return found


@dataclass(frozen=True)
class _Numbered(Generic[J, R]):
    """Work on the job of a number, as executors call it."""

    work: Callable[[J], R]
    jobs: tuple[J, ...]

    def __call__(self, number: int) -> R:
        return self.work(self.jobs[number])
