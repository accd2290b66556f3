"""What a fit or a check comes to, by recorded model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

S = TypeVar("S", bound="ModelScore")


@dataclass(frozen=True)
class Costs:
    """Seconds per call and per token; or, as spreads, relative standard deviations (None: cost is 0)."""

    fixed: float | None
    per_uncached_token: float | None
    per_cached_token: float | None
    per_output_token: float | None


@dataclass(frozen=True)
class ModelScore:
    """How predictions meet one model's recorded calls, summed by session.

    Error: the median of |predicted / recorded - 1| over sessions of ten calls and more; ratio: of their
    sums; None where there are none. Sigmas of log(recorded / predicted): of a call inside its session,
    and of the factor that a session shares.
    """

    sessions: int
    calls: int
    judged_sessions: int
    median_session_error: float | None
    total_ratio: float | None
    call_sigma: float
    session_sigma: float


@dataclass(frozen=True)
class ModelFit(ModelScore):
    """A fitted model; error and ratio are those of sessions that their fit had not seen."""

    costs: Costs
    spreads: Costs


@dataclass(frozen=True)
class ProfileScore(ModelScore):
    """An endpoint held against recorded calls; `lower_bound` where a part of its time is unknown."""

    endpoint: str
    lower_bound: bool
    extrapolated_calls: int


@dataclass(frozen=True)
class Report(Generic[S]):
    """Scores by recorded model name; calls that do not count, by reason; models passed over, and why."""

    models: Mapping[str, S]
    excluded: Mapping[str, int]
    skipped: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return plain data; a missing figure is None."""
        return {**vars(self), "models": {name: asdict(score) for name, score in self.models.items()}}


Calibration = Report[ModelFit]
EndpointCheck = Report[ProfileScore]
