"""Many runs replayed at once, one process a core; the results do not depend on how many there are."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

WORTH_IT = 8
"""Jobs a process: with fewer, starting another one takes longer than it saves."""


def in_parallel(
    work: Callable[[T], R],
    jobs: Sequence[T],
    weight: Callable[[T], float],
    done: Callable[[], None] = lambda: None,
    processes: int | None = None,
) -> list[R]:
    """Return what `work` makes of every job, in the order of the jobs. `done` is called once a job.

    `work` is a function at the top of a module, pure, and jobs and results can be pickled. The heaviest
    jobs go first. Default: as many processes as there are cores; 1 works here. What ends the caller, an
    interrupt too, ends the rest once the jobs under way are done.
    """
    count = min(processes or os.cpu_count() or 1, -(-len(jobs) // WORTH_IT))
    if count <= 1:
        return [_counted(work, job, done) for job in jobs]
    order = sorted(range(len(jobs)), key=lambda i: -weight(jobs[i]))
    results: dict[int, R] = {}
    pool = ProcessPoolExecutor(count, get_context("spawn"), _leave_interrupts)
    try:
        under_way = {pool.submit(work, jobs[i]): i for i in order}
        for future in as_completed(under_way):
            results[under_way[future]] = future.result()
            done()
    finally:
        pool.shutdown(cancel_futures=True)
    return [results[i] for i in range(len(jobs))]


def _leave_interrupts() -> None:
    """Let the process that asked be the one that is interrupted; it ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _counted(work: Callable[[T], R], job: T, done: Callable[[], None]) -> R:
    result = work(job)
    done()
    return result
