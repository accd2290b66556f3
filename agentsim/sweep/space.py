"""The points of a sweep, by number: the first axis turns slowest, as in nested loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from agentsim.units import amount

SUFFIXES = {
    "time": "s",
    "size": "bytes",
    "bandwidth": "bytes_per_s",
    "compute": "flops_per_s",
    "power": "watts",
    "price": "usd_per_s",
    "token price": "usd_per_token",
    "token speed": "tokens_per_s",
    "time per token": "s_per_token",
}
"""How the name of a column in SI units ends, by dimension."""


@dataclass(frozen=True)
class Axis:
    """A path and the values that it takes, as they are written."""

    path: str
    values: tuple[Any, ...]

    @cached_property
    def numbers(self) -> tuple[float, ...] | None:
        """The values as numbers in SI units; None where one is no number, or of another dimension."""
        found = [amount(value) for value in self.values]
        if any(one is None or one[1] != self.dimension for one in found):
            return None
        return tuple(one[0] for one in found if one is not None)

    @cached_property
    def dimension(self) -> str:
        """The dimension of the first value; empty for plain numbers and for what is none."""
        first = amount(self.values[0])
        return first[1] if first else ""

    @property
    def si_column(self) -> str | None:
        """The name of the column that has the values in SI units; None where that would say nothing new."""
        return f"{self.path}_{SUFFIXES[self.dimension]}" if self.numbers and self.dimension else None


@dataclass(frozen=True)
class Space:
    """Groups of axes. Those of one group move together; each group takes every value with each other."""

    groups: tuple[tuple[Axis, ...], ...]

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """How many values each group takes."""
        return tuple(len(group[0].values) for group in self.groups)

    @property
    def size(self) -> int:
        """The number of points."""
        return prod(self.lengths)

    @property
    def axes(self) -> list[Axis]:
        """All axes in the order of columns."""
        return [axis for group in self.groups for axis in group]

    def coordinates(self, index: int) -> tuple[int, ...]:
        """Return which value of each group a point has."""
        found = []
        for length in reversed(self.lengths):
            index, place = divmod(index, length)
            found.append(place)
        return tuple(reversed(found))

    def point(self, index: int) -> dict[str, Any]:
        """Return the value of every axis at a point, by path."""
        places = self.coordinates(index)
        pairs = zip(self.groups, places, strict=True)
        return {axis.path: axis.values[place] for group, place in pairs for axis in group}

    def columns(self, index: int) -> dict[str, Any]:
        """Return what the table says of a point's place: its values as written, and in SI units."""
        cells: dict[str, Any] = {}
        for group, place in zip(self.groups, self.coordinates(index), strict=True):
            for axis in group:
                cells[axis.path] = _cell(axis.values[place])
                if axis.si_column and axis.numbers:
                    cells[axis.si_column] = axis.numbers[place]
        return cells


def space_of(
    grid: Mapping[str, Sequence[Any]], together: Mapping[str, Sequence[Any]], deployments: Sequence[str] = ()
) -> Space:
    """Return the space of a sweep file's axes, in the order in which they are written."""
    groups: list[tuple[Axis, ...]] = [(Axis("deployment", tuple(deployments)),)] if deployments else []
    groups += [(Axis(path, tuple(values)),) for path, values in grid.items()]
    if together:
        groups.append(tuple(Axis(path, tuple(values)) for path, values in together.items()))
    return Space(tuple(groups))


def value_text(value: Any) -> str:
    """Return a value as a person writes it: plain words as they are, the rest in one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {value_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(value_text, value)) + "]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


def _cell(value: Any) -> Any:
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return value if plain else value_text(value)
