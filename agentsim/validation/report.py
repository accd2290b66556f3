"""How far the simulator is from measured runs, over all and by what a run is; plain data for JSON.

An error is |simulated / measured - 1|. Figures over all count the runs that look right; those that look
wrong are simulated too, and stand apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from agentsim.units import MILLISECOND_S

T = TypeVar("T")
WORST = 10


@dataclass(frozen=True, slots=True)
class Judged:
    """One measured run and what it took in the simulator; times in seconds.

    `labels` say what it is, by heading of the report; `load` and `setup` describe it in words. `speculation`
    is on, off or none (the model has no drafter), `inferred` where nothing but the times tells; `wrong` says
    why it looks wrong. `fitted_on` is what the engine's constants were fitted on.
    """

    line: int
    labels: Mapping[str, str]
    setup: str
    load: str
    users: int
    measured_ttft_s: float
    measured_tpot_s: float
    ttft_s: float
    tpot_s: float
    speculation: str
    inferred: bool
    wrong: str | None
    fitted_on: tuple[str, ...]
    assumed: tuple[str, ...]

    @property
    def tpot_off(self) -> float:
        """Simulated over measured TPOT, less 1."""
        return self.tpot_s / self.measured_tpot_s - 1

    @property
    def ttft_off(self) -> float:
        """Simulated over measured TTFT, less 1."""
        return self.ttft_s / self.measured_ttft_s - 1

    def to_json(self) -> dict[str, Any]:
        """Return plain data, times in milliseconds."""
        return {
            "line": self.line,
            **self.labels,
            "setup": self.setup,
            "load": self.load,
            "users": self.users,
            "speculation": self.speculation,
            "speculation_inferred": self.inferred,
            **{f"measured_{k}_ms": v / MILLISECOND_S for k, v in self._times(True).items()},
            **{f"{k}_ms": v / MILLISECOND_S for k, v in self._times(False).items()},
            "tpot_off": self.tpot_off,
            "ttft_off": self.ttft_off,
            "looks_wrong": self.wrong,
            "assumed": list(self.assumed),
        }

    def _times(self, measured: bool) -> dict[str, float]:
        if measured:
            return {"ttft": self.measured_ttft_s, "tpot": self.measured_tpot_s}
        return {"ttft": self.ttft_s, "tpot": self.tpot_s}


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and 90th percentile of errors, and the median of simulated / measured - 1, which has a sign."""

    median: float
    p90: float
    bias: float

    @staticmethod
    def of(offs: Sequence[float]) -> Spread | None:
        """Return the spread of signed errors, or None where there are none."""
        if not offs:
            return None
        sizes = sorted(map(abs, offs))
        return Spread(quantile(sizes, 0.5), quantile(sizes, 0.9), quantile(sorted(offs), 0.5))

    def to_json(self) -> dict[str, float]:
        """Return plain data."""
        return {"median": self.median, "p90": self.p90, "bias": self.bias}


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of a set of runs."""

    rows: int
    tpot: Spread | None
    ttft: Spread | None

    @staticmethod
    def of(judged: Iterable[Judged]) -> Errors:
        """Return the errors of runs."""
        runs = list(judged)
        tpot, ttft = [run.tpot_off for run in runs], [run.ttft_off for run in runs]
        return Errors(len(runs), Spread.of(tpot), Spread.of(ttft))

    def to_json(self) -> dict[str, Any]:
        """Return plain data; None where there is no run."""
        tpot, ttft = (spread.to_json() if spread else None for spread in (self.tpot, self.ttft))
        return {"rows": self.rows, "tpot": tpot, "ttft": ttft}


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that was not simulated."""

    line: int
    reason: str
    detail: str


@dataclass(frozen=True)
class Report:
    """A file of measurements against the simulator.

    `read` rows are either judged, refused, or repeat another row. `headings` are the labels to group by.
    `holdout` is the seed of the half that was left out of a fit, where only that half was judged,
    `in_fit` how many runs the other half has. `own_profiles`: not only the catalog's engines were used.
    `separate`: prefill and decode had workers of their own.
    """

    file: str
    separate: bool
    read: int
    duplicates: int
    judged: tuple[Judged, ...]
    refused: tuple[Refused, ...]
    headings: tuple[str, ...]
    group_by: tuple[str, ...]
    holdout: int | None = None
    in_fit: int = 0
    own_profiles: bool = False

    @property
    def counted(self) -> list[Judged]:
        """The runs that look right: those that the figures are of."""
        return [run for run in self.judged if run.wrong is None]

    @property
    def wrong(self) -> list[Judged]:
        """The runs that look wrong."""
        return [run for run in self.judged if run.wrong is not None]

    def in_sample(self) -> int:
        """Return how many counted runs have constants that were fitted on a file of this name."""
        return sum(any(self.file in text for text in run.fitted_on) for run in self.counted)

    def by(self, *headings: str) -> dict[tuple[str, ...], Errors]:
        """Return errors by labels, in the order of the labels; numbers and ranges by size."""
        groups = grouped(self.counted, lambda run: tuple(run.labels[h] for h in headings))
        order = sorted(groups, key=lambda key: [_rank(text) for text in key])
        return {key: Errors.of(groups[key]) for key in order}

    def worst(self) -> list[Judged]:
        """Return the counted runs whose TPOT is furthest off, the worst first."""
        return sorted(self.counted, key=lambda run: (-abs(run.tpot_off), run.line))[:WORST]

    def reasons(self) -> Counter[str]:
        """Return how many rows were refused, by reason."""
        return Counter(row.reason for row in self.refused)

    def to_json(self) -> dict[str, Any]:
        """Return what `validate-model --format json` prints."""
        errors = Errors.of(self.counted).to_json()
        return {
            "file": self.file,
            "separate_workers": self.separate,
            "read": self.read,
            "rows": errors["rows"],
            "refused": len(self.refused),
            "duplicates": self.duplicates,
            "looks_wrong": len(self.wrong),
            "holdout": self.holdout,
            "in_fit": self.in_fit,
            "in_sample": self.in_sample(),
            "own_profiles": self.own_profiles,
            "tpot": errors["tpot"],
            "ttft": errors["ttft"],
            "groups": [self._group(key, found) for key, found in self.by(*self.group_by).items()],
            "by": {h: {key[0]: e.to_json() for key, e in self.by(h).items()} for h in self.headings},
            "speculation": {s: Errors.of(r).to_json() for s, r in self.by_speculation().items()},
            "speculation_inferred": {
                s: Errors.of(found).to_json()
                for s, r in self.by_speculation().items()
                if (found := [run for run in r if run.inferred])
            },
            "with_wrong_rows": Errors.of(self.judged).to_json(),
            "worst": [run.to_json() for run in self.worst()],
            "refused_why": dict(self.reasons().most_common()),
            "refused_rows": [{"line": r.line, "reason": r.reason, "detail": r.detail} for r in self.refused],
            "wrong_rows": [run.to_json() for run in self.wrong],
        }

    def _group(self, key: tuple[str, ...], errors: Errors) -> dict[str, Any]:
        tpot, ttft = errors.tpot, errors.ttft
        medians = {"tpot_median": tpot and tpot.median, "ttft_median": ttft and ttft.median}
        return {**dict(zip(self.group_by, key, strict=True)), "rows": errors.rows, **medians}

    def by_speculation(self) -> dict[str, list[Judged]]:
        """Return the counted runs whose model has a drafter, by whether they are taken to have used it."""
        able = [run for run in self.counted if run.speculation != "none"]
        return grouped(able, lambda run: run.speculation)


def _rank(text: str) -> tuple[int, str]:
    """Return what a label is sorted by: a number, or the first of a range, by its size."""
    first = text.split("-")[0]
    return (int(first) if first.isdigit() else -1), text


def grouped(runs: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    """Return runs by key, in the order in which keys are met."""
    groups: dict[Any, list[T]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of ordered figures, between neighbours in proportion; there is at least one."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
