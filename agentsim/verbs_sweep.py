"""What `sweep` does, without the command line: load, run what is missing, read the table.

Returns data; prints nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentsim.errors import InputError
from agentsim.pool import cores
from agentsim.sweep.columns import BY_NAME, metric_named
from agentsim.sweep.effects import SCHEMA, Reading, read_rows
from agentsim.sweep.load import Sweep, load_sweep
from agentsim.sweep.run import Place, Row, Running

Step = Callable[[], None]


@dataclass(frozen=True)
class Swept:
    """A sweep as far as it is done, and what its table says of one metric."""

    sweep: Sweep
    output: str
    reading: Reading
    rows: list[Row]

    @property
    def bugs(self) -> int:
        """How many points ended in an error that is none of the input's."""
        return self.reading.statuses.get("error", 0)

    def to_json(self) -> dict[str, Any]:
        """Return the object that `sweep --format json` prints."""
        return {
            "schema": SCHEMA,
            "sweep": self.sweep.name,
            "workflow": self.sweep.task,
            "runs": len(self.sweep.work.seeds),
            "seed": self.sweep.work.seeds[0],
            "output": self.output,
            "points": self.sweep.space.size,
            "statuses": dict(self.reading.statuses),
            "axes": [{"path": a.path, "values": list(a.values)} for a in self.sweep.space.axes],
            **(self.reading.to_json() if self.reading.statuses.get("ok") else {}),
            "rows": self.rows,
        }


def default_output(path: str) -> str:
    """Return where a sweep's table goes that was not told: beside the one who asks, by the sweep's name."""
    return os.path.splitext(os.path.basename(path))[0] + ".csv"


def place_of(workers: int | None, dask: str | None) -> Place:
    """Return who does the work: a cluster at an address, or processes here, one for each core."""
    if dask is not None:
        if workers is not None:
            raise InputError("sweep: give --workers or --dask; a cluster has workers of its own")
        return Place("dask", dask)
    return Place("local", str(workers or cores()))


def open_sweep(
    path: str, output: str | None, metric: str | None, restart: bool, only_read: bool
) -> tuple[Running, str]:
    """Return a sweep and its output, ready to be entered, and the column that pictures show."""
    if metric is not None:
        metric_named(metric)
    sweep = load_sweep(path)
    running = Running(sweep, default_output(path) if output is None else output, restart, only_read)
    return running, metric or sweep.metric


def swept(running: Running, metric: str, with_rows: bool = True) -> Swept:
    """Return what is done of a sweep that is entered; its rows only where they are asked for."""
    reading = read_rows(running.sweep.space, BY_NAME[metric], running.rows())
    rows = list(running.rows()) if with_rows else []
    return Swept(running.sweep, running.output, reading, rows)
