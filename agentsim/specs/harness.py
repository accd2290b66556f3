"""How serving measurements were taken: lengths of requests, how many, and settings of the engines.

All of them live in one file, `harnesses.yaml`, beside the folders of the catalog.
"""

from __future__ import annotations

import os
from functools import cache

from pydantic import Field

from agentsim.fields import BytesPerSecond, Efficiency, Line, PositiveCount, PositiveTokens, Seconds, Strict
from agentsim.specs import catalog
from agentsim.specs.hardware import Precision
from agentsim.specs.sourced import Datum


class Harness(Strict):
    """A closed loop: `concurrency` users start at once and each sends its next request when one is done.

    Lengths are uniform between `shortest` times the label and the label. `batched_tokens` by engine
    replaces the token budget of the engine's profile. `kv` by engine is the format of the KV cache where
    activations have 8 bits or fewer; with 16 it is bf16.
    """

    title: Line
    shortest: Datum[Efficiency]
    requests_per_user: Datum[PositiveCount]
    batched_tokens: dict[str, Datum[PositiveTokens]] = Field(default_factory=dict)
    kv: dict[str, Datum[Precision]]


class Harnesses(Strict):
    """The whole file.

    `draft_tokens`: drafts a step where a run is taken to have speculated. `kv_launch` and `kv_rate`: start-up
    of a KV transfer between workers, and bytes per second of one GPU. `fastest_gemm`: the largest share
    of a dense peak that any measured matrix product reaches; a run that needs more cannot be right.
    """

    title: Line
    sources: dict[str, str] = Field(default_factory=dict)
    draft_tokens: Datum[PositiveCount]
    kv_launch: Datum[Seconds]
    kv_rate: Datum[BytesPerSecond]
    fastest_gemm: dict[Precision, Datum[Efficiency]]
    harnesses: dict[str, Harness]


@cache
def load_harnesses() -> Harnesses:
    """Return the harnesses that come with agentsim."""
    here = os.path.dirname(catalog.folder("models"))
    return catalog.load_file(Harnesses, os.path.join(here, "harnesses.yaml"), "harnesses")
