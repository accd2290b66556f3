"""How far the answer reaches if data are what their ranges allow, and the workflow draws anew each time.

Every uncertain datum is drawn once a sample, whichever deployments read it; the workflow's seed changes
with the sample and is the same on all deployments. Latin hypercube: of N samples, each datum has exactly
one in each N-th of its probability (McKay, Beckman and Conover, Technometrics 21, 1979).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agentsim.claims import Claim
from agentsim.pool import Step
from agentsim.result import percentile
from agentsim.seeds import stream
from agentsim.specs.ranges import DISTRIBUTION
from agentsim.variation import Outcome, Study, Variation

BAND = (0.05, 0.5, 0.95)


@dataclass(frozen=True, slots=True)
class Band:
    """What nine tenths of a sample lie in, and its middle. The unit is the sample's own."""

    p5: float
    p50: float
    p95: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Band | None:
        """Return the band of a sample; None where it is empty."""
        ordered = sorted(values)
        return cls(*(percentile(ordered, share) for share in BAND)) if ordered else None


@dataclass(frozen=True)
class Uncertainty:
    """Bands over samples. By deployment: task time (s), speed-up over the first, token speed (tok/s).

    `probability` is the share of samples in which the claim holds for `fastest` against the first; samples
    that do not fit a deployment count as none and are listed with their reasons.
    """

    samples: int
    seed: int
    distribution: str
    drawn: dict[str, int]
    task_s: dict[str, Band | None]
    speedup: dict[str, Band | None]
    tokens_per_s: dict[str, Band | None]
    claim: str
    fastest: str
    probability: float | None
    misfits: dict[str, dict[str, int]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def latin_hypercube(names: Iterable[str], samples: int, seed: int) -> list[dict[str, float]]:
    """Return for every sample the share of each name's probability, strictly between 0 and 1.

    A name's shares depend on the seed, the name and the number of samples: another name moves none.
    """
    columns: dict[str, list[float]] = {}
    for name in names:
        draw = stream(seed, "latin hypercube", name)
        order = sorted((draw(), stratum) for stratum in range(samples))
        columns[name] = [(stratum + draw()) / samples for _, stratum in order]
    return [{name: column[i] for name, column in columns.items()} for i in range(samples)]


def sampled(study: Study, samples: int, seed: int, step: Step = lambda: None) -> list[list[Outcome]]:
    """Return the outcome of every sample on every deployment."""
    shares = latin_hypercube(study.data(), samples, seed)
    variations = [Variation((seed + index,), drawn) for index, drawn in enumerate(shares)]
    return study.outcomes(variations, step)


def uncertainty_of(
    study: Study, claim: Claim, fastest: str, found: Sequence[Sequence[Outcome]], seed: int
) -> Uncertainty:
    """Return the bands over the samples that `sampled` returned."""
    columns = dict(zip(study.deployments, zip(*found, strict=True), strict=True))
    base = columns[study.deployments[0]]
    pairs = _pairs(base, columns[fastest])
    return Uncertainty(
        samples=len(found),
        seed=seed,
        distribution=DISTRIBUTION,
        drawn={name: len(study.uses[name]) for name in columns},
        task_s={
            name: Band.of([s for o in column for s in o.completion_s]) for name, column in columns.items()
        },
        speedup={
            name: Band.of([a / b for a, b in _pairs(base, column) if b]) for name, column in columns.items()
        },
        tokens_per_s={
            name: Band.of([o.token_speed for o in column if o.token_speed])
            for name, column in columns.items()
        },
        claim=claim.text,
        fastest=fastest,
        probability=sum(claim.is_kept(a, b) for a, b in pairs) / len(pairs) if pairs else None,
        misfits={
            name: reasons
            for name, column in columns.items()
            if (reasons := by_reason(o.problem for o in column))
        },
    )


def _pairs(base: Sequence[Outcome], other: Sequence[Outcome]) -> list[tuple[float, float]]:
    """Return (seconds on base, seconds on other) of every sample that both can have."""
    both = [(a, b) for a, b in zip(base, other, strict=True) if not a.problem and not b.problem]
    return [pair for a, b in both for pair in zip(a.completion_s, b.completion_s, strict=True)]


def by_reason(problems: Iterable[str]) -> dict[str, int]:
    """Return how often each reason was given; what differs in numbers alone is told by the first of it."""
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for problem in filter(None, problems):
        alike = re.sub(r"[\d.,]*\d[kMGT]?", "#", problem)
        counts[first.setdefault(alike, problem)] += 1
    return dict(counts)
