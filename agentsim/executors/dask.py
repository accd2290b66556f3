"""The workers of a Dask cluster; `where` is the address of its scheduler, such as `tcp://host:8786`.

Files that a sweep names by path, deployments of its own among them, must lie there on the workers, too.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Any

from agentsim.errors import InputError
from agentsim.executors.base import Lost, Work

BATCH = 8
"""Numbers that are sent together; the scheduler takes about as long for each task as a small one lasts."""
AHEAD = 3
"""Batches that wait for each thread of the cluster."""
TIMEOUT = "10s"
_ADDRESS = re.compile(r"^([a-z]+://)?[^\s/]+:[0-9]+$")


def run(work: Work, numbers: Iterable[int], where: str) -> Generator[tuple[int, Any], None, None]:
    """Do the work on the cluster at an address; see `base.Run`."""
    with _client(where) as client:
        _check(client, where)
        shared = client.scatter(work, broadcast=True, hash=False)
        yield from _results(client, shared, iter(numbers))


def _client(where: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise InputError("--dask needs the package 'distributed': pip install distributed") from None
    if not _ADDRESS.match(where):
        raise InputError(f"--dask {where}: an address is written like tcp://host:8786")
    try:
        return Client(where, timeout=TIMEOUT, set_as_default=False)
    except (OSError, ValueError, TypeError) as bad:
        reason = " ".join(str(bad).split()) or "no answer"
        raise InputError(f"--dask {where}: no scheduler there ({reason})") from None


def _check(client: Any, where: str) -> None:
    if not client.nthreads():
        raise InputError(f"--dask {where}: the cluster has no workers")
    try:
        found = client.run(installed)
    except Exception as bad:  # whatever a worker without agentsim raises
        raise InputError(f"--dask {where}: a worker cannot load agentsim ({type(bad).__name__})") from None
    here = installed()
    for worker, there in found.items():
        if there != here:
            raise InputError(f"--dask {where}: {worker} has agentsim {there}, this is {here}")


def installed() -> str:
    """Return the version of agentsim that is installed."""
    from importlib.metadata import version

    return version("agentsim")


def each(work: Work, batch: list[int]) -> list[Any]:
    """Return the results of several numbers, on a worker."""
    return [work(number) for number in batch]


def _results(client: Any, shared: Any, numbers: Iterator[int]) -> Iterator[tuple[int, Any]]:
    from distributed import as_completed

    running: dict[Any, list[int]] = {}
    done = as_completed(loop=client.loop)

    def submit() -> None:
        batch = list(islice(numbers, BATCH))
        if batch:
            future = client.submit(each, shared, batch, pure=False)
            running[future] = batch
            done.add(future)

    for _ in range(AHEAD * sum(client.nthreads().values())):
        submit()
    for future in done:
        batch = running.pop(future)
        submit()
        yield from zip(batch, _outcome(future, batch), strict=True)


def _outcome(future: Any, batch: list[int]) -> list[Any]:
    from distributed import KilledWorker

    try:
        found: list[Any] = future.result()
    except KilledWorker:
        return [Lost("the worker's process ended, again and again")] * len(batch)
    return found


PLUGIN = run
