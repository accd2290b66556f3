"""What a sweep's table says of one metric: the best and the worst point, and what drives it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

from agentsim.errors import InputError
from agentsim.sweep.columns import Metric
from agentsim.sweep.space import Space, value_text

SCHEMA = "agentsim.sweep/1"
Surface = list[list[float | None]]


@dataclass(frozen=True, slots=True)
class Driver:
    """Axes that move together: the mean of the metric at each value, and what share of its variation between
    points the differences of these means are. The shares of all drivers and of their interplay sum to 1
    where every point has a result."""

    group: int
    label: str
    means: tuple[float | None, ...]
    share: float


@dataclass(frozen=True)
class Reading:
    """A metric over the points of a sweep, by number; None where a point has no result or is not done."""

    space: Space
    metric: Metric
    values: Sequence[float | None]
    statuses: Mapping[str, int]
    reasons: Mapping[str, int]
    lower_bounds: frozenset[int]
    warned: int
    drivers: tuple[Driver, ...]

    @property
    def best(self) -> int:
        """The number of the point that is best; the first of several."""
        return self._extreme(self.metric.more_is_better)

    @property
    def worst(self) -> int:
        """The number of the point that is worst; the first of several."""
        return self._extreme(not self.metric.more_is_better)

    def _extreme(self, most: bool) -> int:
        known = [(value, index) for index, value in enumerate(self.values) if value is not None]
        return min(known, key=lambda pair: (-pair[0] if most else pair[0], pair[1]))[1]

    def surface(self, down: int, across: int) -> Surface:
        """Return the mean of the metric at each pair of values of two groups, over all others."""
        lengths = self.space.lengths
        sums: list[list[list[float]]] = [[[] for _ in range(lengths[across])] for _ in range(lengths[down])]
        for index, value in enumerate(self.values):
            if value is not None:
                places = self.space.coordinates(index)
                sums[places[down]][places[across]].append(value)
        return [[_mean(cell) for cell in row] for row in sums]

    def to_json(self) -> dict[str, Any]:
        """Return what the table says, as plain data."""
        points = {"best": self.best, "worst": self.worst}
        return {
            "metric": self.metric.column,
            **{
                name: {
                    "point": index,
                    **self.space.point(index),
                    self.metric.column: self.values[index],
                    "lower_bound": index in self.lower_bounds,
                }
                for name, index in points.items()
            },
            "drivers": [
                {"axis": driver.label, "share_of_variation": driver.share, "means": list(driver.means)}
                for driver in self.drivers
            ],
        }


def read_rows(space: Space, metric: Metric, rows: Iterable[Mapping[str, Any]]) -> Reading:
    """Return what the rows say of a metric. Raises `InputError` where no point has a value of it."""
    values: list[float | None] = [None] * space.size
    statuses: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    bounds, warned = set(), 0
    for row in rows:
        statuses[row["status"]] += 1
        if row.get("reason"):
            reasons[row["reason"]] += 1
        values[row["point"]] = row.get(metric.column)
        warned += bool(row.get("warnings"))
        if row.get("lower_bound"):
            bounds.add(row["point"])
    if all(value is None for value in values) and statuses["ok"]:
        raise InputError(f"--metric {metric.column}: it is unknown at every point; choose another")
    drivers = _drivers(space, values)
    return Reading(space, metric, values, statuses, reasons, frozenset(bounds), warned, drivers)


def _drivers(space: Space, values: Sequence[float | None]) -> tuple[Driver, ...]:
    """Return the groups of axes, the one that explains most first."""
    known = [value for value in values if value is not None]
    middle = _mean(known) or 0.0
    total = fsum((value - middle) ** 2 for value in known)
    cells: list[list[list[float]]] = [[[] for _ in range(length)] for length in space.lengths]
    for index, value in enumerate(values):
        if value is not None:
            for group, place in enumerate(space.coordinates(index)):
                cells[group][place].append(value)
    found = []
    for group, (axes, columns) in enumerate(zip(space.groups, cells, strict=True)):
        means = tuple(map(_mean, columns))
        between = fsum(
            len(c) * (m - middle) ** 2 for c, m in zip(columns, means, strict=True) if m is not None
        )
        share = between / total if total else 0.0
        found.append(Driver(group, ", ".join(axis.path for axis in axes), means, share))
    return tuple(sorted(found, key=lambda driver: -driver.share))


def _mean(values: Sequence[float]) -> float | None:
    return fsum(values) / len(values) if values else None


def point_text(space: Space, index: int) -> str:
    """Return where a point lies, in one line."""
    return ", ".join(f"{path} {value_text(value)}" for path, value in space.point(index).items())
