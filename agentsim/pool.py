"""The same work on many things, spread over the machine's cores; the results come back in order.

    work(list of jobs) -> list of results          one call does one slice of the jobs

Function, arguments and results travel between processes, so they must be plain data (picklable). With one
core, or hardly any jobs, all is done in this process: the results are the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

J = TypeVar("J")
R = TypeVar("R")

Step = Callable[[], None]
SLICES_PER_CORE = 8
"""So many slices for each core: progress moves, and no core waits long for the last one."""


def spread(
    work: Callable[[Sequence[J]], list[R]], jobs: Sequence[J], step: Step, least: int = 8, most: int = 64
) -> list[R]:
    """Return the result of every job, in order; `step` is called once for each.

    Below `least` jobs nothing is spread; `most` is the longest slice. An error of a job is raised here.
    """
    cores = _cores()
    if cores < 2 or len(jobs) < least:
        return [result for job in jobs for result in _stepped(work([job]), step)]
    from concurrent.futures import ProcessPoolExecutor

    size = max(1, min(-(-len(jobs) // (cores * SLICES_PER_CORE)), most))
    slices = [jobs[start : start + size] for start in range(0, len(jobs), size)]
    with ProcessPoolExecutor(min(cores, len(slices)), initializer=_settle) as pool:
        try:
            return [result for found in pool.map(work, slices) for result in _stepped(found, step)]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _stepped(results: list[R], step: Step) -> list[R]:
    for _ in results:
        step()
    return results


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _settle() -> None:
    """Leave interrupts to the parent, which tells of them once; a worker says nothing."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
