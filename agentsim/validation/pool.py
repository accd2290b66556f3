"""Many runs replayed at once, one process a core; the results do not depend on how many there are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

CHUNK = 8
"""Jobs a process takes at a time: enough that handing over costs nothing, few enough to end together."""


def in_parallel(
    work: Callable[[T], R],
    jobs: Sequence[T],
    weight: Callable[[T], float],
    done: Callable[[], None] = lambda: None,
    processes: int | None = None,
) -> list[R]:
    """Return what `work` makes of every job, in the order of the jobs. `done` is called once a job.

    `work` is a function at the top of a module, pure, and jobs and results can be pickled. The heaviest
    jobs go first. Default: as many processes as there are cores; 1 works here.
    """
    count = min(processes or os.cpu_count() or 1, -(-len(jobs) // CHUNK))
    if count <= 1:
        return [_counted(work, job, done) for job in jobs]
    order = sorted(range(len(jobs)), key=lambda i: -weight(jobs[i]))
    chunks = [order[i : i + CHUNK] for i in range(0, len(order), CHUNK)]
    results: dict[int, R] = {}
    with ProcessPoolExecutor(count, get_context("spawn")) as pool:
        try:
            under_way = {pool.submit(_chunk, work, [jobs[i] for i in c]): c for c in chunks}
            _collect(under_way, results, done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [results[i] for i in range(len(jobs))]


def _counted(work: Callable[[T], R], job: T, done: Callable[[], None]) -> R:
    result = work(job)
    done()
    return result


def _chunk(work: Callable[[T], R], jobs: list[T]) -> list[R]:
    return [work(job) for job in jobs]


def _collect(
    under_way: dict[Future[list[R]], list[int]], results: dict[int, R], done: Callable[[], None]
) -> None:
    left = set(under_way)
    while left:
        ready, left = wait(left, return_when=FIRST_COMPLETED)
        for future in ready:
            for index, result in zip(under_way[future], future.result(), strict=True):
                results[index] = result
                done()
