"""A number with where it comes from, and the ledger of the numbers that a run used.

Every value in `specs/` is a `Datum`. A backend reads it through `Ledger.take`, so that a run can list
its sources and say how weak the weakest is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, model_validator

from agentsim.errors import SpecError
from agentsim.fields import STRICT, known_keys

T = TypeVar("T")

Basis = Literal["datasheet", "measured", "paper", "calibrated", "derived", "assumed", "unknown"]
BASES: tuple[Basis, ...] = (
    "datasheet",
    "measured",
    "paper",
    "derived",
    "calibrated",
    "assumed",
    "unknown",
)
"""Strongest first."""


MOST_SPREAD = 3.0
"""The sigma of a logarithm: twice of it either way are factors of four hundred."""


@dataclass(frozen=True)
class Datum(Generic[T]):
    """One sourced value; `range` brackets an assumed one, `spread` (relative) is a calibrated one's.

    `source` is a key of the file's sources, or the source itself. `unknown` has no value: the vendor has
    not said, and nothing is invented in its place.
    """

    __pydantic_config__ = STRICT

    basis: Basis
    value: T | None = None
    source: str = ""
    why: str | None = None
    range: tuple[T, T] | None = None
    spread: float | None = None
    fitted_on: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _keys(cls, data: Any) -> Any:
        return known_keys(cls, data)

    def __post_init__(self) -> None:
        if (self.value is None) != (self.basis == "unknown"):
            raise ValueError("a datum has a value, or basis 'unknown' and no value")
        if self.basis in ("assumed", "unknown") and not self.why:
            raise ValueError(f"basis '{self.basis}' needs a why")
        if self.basis == "calibrated" and not self.fitted_on:
            raise ValueError("basis 'calibrated' needs fitted_on")
        if self.basis not in ("assumed", "unknown") and not self.source:
            raise ValueError(f"basis '{self.basis}' needs a source")
        if self.spread is not None and not 0 <= self.spread <= MOST_SPREAD:
            raise ValueError(f"spread is {self.spread:g}: a relative one lies between 0 and {MOST_SPREAD:g}")
        if self.range is not None and not _lies_in(self.value, *self.range):
            raise ValueError("the value must lie in its range, which goes from the least to the most")
        if self.range is not None and not _are_alike(self.value, *self.range):
            raise ValueError("the ends of a range have as many numbers as the value")

    @property
    def name(self) -> str:
        """The datum's place in the catalog, such as `h200.memory_bandwidth`."""
        return str(self.__dict__.get("_name", ""))

    @property
    def source_text(self) -> str:
        """The source in full; for an assumed value, why."""
        return str(self.__dict__.get("_source_text") or self.source or self.why or "")

    @property
    def range_text(self) -> str:
        """What the value may be instead, as its file writes it: `1 ms to 70 ms`, `±8 %`."""
        written = self.__dict__.get("_written") or self.range
        if written:
            return " to ".join(str(end[0] if isinstance(end, list | tuple) else end) for end in written)
        return f"±{100 * self.spread:.2g} %" if self.spread else ""

    def named(self, name: str, sources: dict[str, str], written: Any = None) -> None:
        """Give the datum its place, the text of its source, and its range as `written` in its file.

        Called once, when the file is loaded.
        """
        self.__dict__["_name"] = name
        self.__dict__["_source_text"] = sources.get(self.source, self.source)
        self.__dict__["_written"] = written


def _lies_in(value: Any, least: Any, most: Any) -> bool:
    """Tell whether a number, or each of a row of numbers, lies between two; of anything else, yes."""
    if isinstance(value, int | float):
        return bool(least <= value <= most)
    if isinstance(value, tuple):
        return all(_lies_in(*three) for three in zip(value, least, most, strict=False))
    return True


def _are_alike(*values: Any) -> bool:
    rows = [len(value) for value in values if isinstance(value, tuple)]
    return len(set(rows)) <= 1


def data_of(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Datum[Any]]]:
    """Yield every datum inside a spec with its path, in the order of the schema."""
    if isinstance(value, Datum):
        yield path, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from data_of(getattr(value, name), (*path, name))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from data_of(item, (*path, str(key)))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from data_of(item, (*path, str(index)))


@dataclass(frozen=True, slots=True)
class UsedDatum:
    """A line of a run's list of sources; `datum` is the entry itself, where it is one of the catalog's."""

    name: str
    basis: Basis
    source: str
    datum: Datum[Any] | None = field(default=None, compare=False, repr=False)


Instead = Callable[[Datum[Any]], Any]
"""Returns the value that a known datum has in a counterfactual; the datum's own where nothing changes."""


class Ledger:
    """Remembers which data were read while something was compiled.

    `instead` is the one seam for "what if this number were another": a backend that reads through the
    ledger compiles the counterfactual and knows nothing of it.
    """

    def __init__(self, instead: Instead | None = None) -> None:
        self._instead = instead
        self._used: dict[str, UsedDatum] = {}
        self._warnings: dict[str, None] = {}
        self._left_out: dict[str, None] = {}
        self._fitted_on: dict[str, None] = {}

    def take(self, datum: Datum[T]) -> T:
        """Return the value and note its source. Raises `SpecError` where it is unknown."""
        if datum.value is None:
            raise SpecError(
                f"{datum.name} is unknown, and nothing can be computed without it: give a value, "
                "if need be an assumed one with a range"
            )
        self._note(datum)
        found = self.value(datum)
        assert found is not None, "what is known stays known in a counterfactual"
        return found

    def take_or_none(self, datum: Datum[T] | None) -> T | None:
        """Return the value, or None where it is unknown or not given; an unknown is noted too."""
        if datum is not None:
            self._note(datum)
        return None if datum is None else self.value(datum)

    def value(self, datum: Datum[T]) -> T | None:
        """Return the value unnoted, for whoever notes it once a result rests on it; None where unknown."""
        if datum.value is None or self._instead is None:
            return datum.value
        found: T = self._instead(datum)
        return found

    def warn(self, text: str) -> None:
        """Remember what a reader of the results must know of how they were made."""
        self._warnings[text] = None

    def leave_out(self, part: str) -> None:
        """Remember a part of the time that nobody has published and that counts as zero."""
        self._left_out[part] = None

    def left_out(self) -> tuple[str, ...]:
        """Return the parts that count as zero: what was compiled is a lower bound where there are any."""
        return tuple(self._left_out)

    def warnings(self) -> tuple[str, ...]:
        """Return the warnings, each once, in order."""
        return tuple(self._warnings)

    def fitted_on(self) -> tuple[str, ...]:
        """Return what the calibrated data that were read were fitted on, each text once."""
        return tuple(self._fitted_on)

    def _note(self, datum: Datum[Any]) -> None:
        if datum.fitted_on is not None:
            self._fitted_on[datum.fitted_on] = None
        self._used[datum.name] = UsedDatum(datum.name, datum.basis, datum.source_text, datum)

    def used(self) -> tuple[UsedDatum, ...]:
        """Return what was read, strongest basis first, then by name."""
        return tuple(sorted(self._used.values(), key=lambda u: (BASES.index(u.basis), u.name)))
