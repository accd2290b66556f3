"""The constants of an engine profile as a point that a fit moves, and how alike two profiles are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from agentsim.backends.gpu.constants import Constants
from agentsim.calibrate.least_squares import Array
from agentsim.specs import catalog
from agentsim.specs.engine import ModelClass, ServingConstants
from agentsim.specs.law import GpuLaw
from agentsim.specs.sourced import Datum

FIELDS: dict[str, tuple[str, ...]] = {
    "layer_overhead": ("layer_s",),
    "iteration_overhead": ("iteration_s",),
    "sequence_overhead": ("sequence_s",),
    "prefill_overhead": ("prefill_s",),
    "request_overhead": ("request_s",),
    "weight_read_efficiency": ("packed_read", "kept_read"),
    "expert_read_efficiency": ("expert_read",),
    "kv_read_efficiency": ("kv_read",),
    "gemm_efficiency": ("packed_gemm", "kept_gemm", "expert_gemm"),
    "expert_gemm_efficiency": ("expert_gemm",),
    "expert_skew": ("skew",),
}
"""What a profile calls a constant, and what it is in the cost law."""
_NOT_FITTED: dict[ModelClass, tuple[str, ...]] = {"dense": (), "moe": ("iteration_overhead",)}
MOST = 8
"""Constants that a profile may have fitted."""
_ALIKE = {"engine": 6.0, "generation": 3.0, "gpu": 2.0, "precision": 2.0}
"""By how much a profile tells more about another one that shares these."""
_OWN_WEIGHT, _FULL_ROWS, _ROWS_PER_WEIGHT = 30.0, 40, 8.0
"""Weight of the prior in the law; rows from which on a profile's weight grows no more; rows a weight."""


class Key(NamedTuple):
    """What constants are told apart by."""

    engine: str
    gpu: str
    precision: str
    kind: ModelClass

    @property
    def file(self) -> str:
        """The name of the engine profile that the constants stand in."""
        return f"{self.engine}-{self.gpu}"

    def __str__(self) -> str:
        return " ".join((self.engine, self.gpu, self.precision, self.kind))


class Space(NamedTuple):
    """The constants of a class that are fitted, their ranges, where a fit starts, and those that are not."""

    names: tuple[str, ...]
    low: Array
    high: Array
    start: Array
    held: Mapping[str, float]

    def constants(self, point: Array, base: Constants) -> Constants:
        """Return the law's constants at a point of logarithms; the rest as in `base`."""
        values = dict(zip(self.names, np.exp(point).tolist(), strict=True)) | dict(self.held)
        return replace(base, **{field: v for name, v in values.items() for field in FIELDS[name]})

    def values(self, point: Array) -> dict[str, float]:
        """Return the fitted constants by name."""
        return dict(zip(self.names, np.exp(point).tolist(), strict=True))


def space_of(key: Key) -> Space:
    """Return what is fitted of a profile: the priors of its class, at most eight of them."""
    law = catalog.load(GpuLaw, "gpu-law")
    priors = data_of_constants(law.priors[key.kind])
    held = _NOT_FITTED[key.kind]
    names = tuple(name for name in priors if name not in held)
    ranges = [_range(priors[name]) for name in names]
    return Space(
        names=names,
        low=np.log([low for low, _ in ranges]),
        high=np.log([high for _, high in ranges]),
        start=np.log([_value(priors[name]) for name in names]),
        held={name: _value(priors[name]) for name in held},
    )


def data_of_constants(constants: ServingConstants) -> dict[str, Datum[float]]:
    """Return the constants that are given, by name."""
    return {name: datum for name in FIELDS if (datum := getattr(constants, name)) is not None}


def _range(datum: Datum[float]) -> tuple[float, float]:
    assert datum.range is not None, "each prior has one"
    return datum.range


def _value(datum: Datum[float]) -> float:
    assert datum.value is not None, "each prior has one"
    return datum.value


def likeness(one: Key, other: Key) -> float:
    """Return how much one profile tells about another; 0 between classes of models."""
    if one.kind != other.kind:
        return 0.0
    shared = {
        "engine": one.engine.split("-")[0] == other.engine.split("-")[0],
        "generation": generation(one.gpu) == generation(other.gpu),
        "gpu": one.gpu == other.gpu,
        "precision": one.precision == other.precision,
    }
    return float(np.prod([_ALIKE[name] for name, same in shared.items() if same]))


def generation(gpu: str) -> str:
    """Return the letter of an NVIDIA generation: H100 and H200, B200 and GB200 are of one each."""
    return gpu.removeprefix("g")[:1]


def pooled(key: Key, found: Mapping[Key, Array], rows: Mapping[Key, int], names: Sequence[str]) -> Array:
    """Return where a profile is expected: the law's prior and the other profiles, by likeness and rows."""
    space = space_of(key)
    total, weight = _OWN_WEIGHT * space.start, np.full(len(names), _OWN_WEIGHT)
    for other, point in found.items():
        share = likeness(key, other) * min(rows[other], _FULL_ROWS) / _ROWS_PER_WEIGHT
        if other == key or not share:
            continue
        theirs = dict(zip(space_of(other).names, point, strict=True))
        for index, name in enumerate(names):
            if name in theirs:
                total[index] += share * theirs[name]
                weight[index] += share
    return np.asarray(total / weight)


def stand_in(key: Key, found: Mapping[Key, Array], rows: Mapping[Key, int]) -> Array | None:
    """Return what an engine reached in a format on the GPUs of a generation, by rows: they are of one die.

    None where it was measured on none of them.
    """
    own = [k for k in found if (k.engine, k.precision, k.kind) == (key.engine, key.precision, key.kind)]
    like = [k for k in own if generation(k.gpu) == generation(key.gpu)]
    if not like:
        return None
    return np.asarray(np.average([found[k] for k in like], axis=0, weights=[rows[k] for k in like]))
