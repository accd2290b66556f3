"""The JSON that agentsim's commands print, as far as a report reads it; what does not fit is refused.

Times are seconds, tokens are counts. Keys that are not read may be there.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Figure = Annotated[float, Field(ge=0, le=1e15)]
Text = Annotated[str, Field(max_length=20_000)]


class Shape(BaseModel):
    """What all of them are: numbers are finite, types are as written."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, frozen=True)


class Spread(Shape):
    """A sample, summed up."""

    avg: Figure
    p50: Figure
    p95: Figure
    p99: Figure
    max: Figure


class Datum(Shape):
    """A datum that a run used, its basis, and where it is from."""

    name: Text
    basis: Text
    source: Text


class Sources(Shape):
    """Every datum that a run used."""

    list: list[Datum]


class Tokens(Shape):
    """Means over runs; `prompt` includes `cached`."""

    prompt: Figure
    cached: Figure
    output: Figure


class Run(Shape):
    """What `run --format json` prints: the runs of one workflow on one deployment."""

    workflow: Text
    deployment: Text
    title: Text
    overrides: list[Text] = []
    runs: Annotated[int, Field(ge=1)]
    seed: int
    task_completion_s: Spread
    breakdown_s: dict[str, Figure]
    human_wait_s: Figure
    tool_slot_wait_s: Figure = 0.0
    inference_share: Figure
    tokens: Tokens
    peak_context_tokens: Figure
    model_calls: Figure
    tool_calls: Figure
    output_tokens_per_s: Figure | None
    ttft_s: Spread | None
    itl_s: Spread | None
    cost_usd: Figure | None = None
    sources: Sources
    lower_bound: bool
    warnings: list[Text]


class Verdict(Shape):
    """What a comparison says of its claim."""

    claim: Text
    holds: bool
    fastest: Text
    lower_bound: bool = False
    probability: Figure | None = None
    runs: int | None = None
    speedup: Figure
    token_speed_ratio: Figure | None
    ceiling_speedup: Figure | None
    instant_s: Figure
    non_inference_share: float
    saturation_tok_s: Figure | None


class Band(Shape):
    """What nine tenths of a sample lie in."""

    p5: Figure
    p50: Figure
    p95: Figure


class Uncertainty(Shape):
    """Bands over samples of the uncertain data, by deployment."""

    samples: int
    task_s: dict[str, Band | None]
    claim: Text
    fastest: Text
    probability: Figure | None


class Comparison(Shape):
    """What `compare --format json` prints; the first column is the base."""

    columns: Annotated[list[Run], Field(min_length=1)]
    verdict: Verdict
    uncertainty: Uncertainty | None = None


class Bar(Shape):
    """What one cause does to the answer, between its two ends; None where it does not fit."""

    name: Text
    basis: Text = ""
    low: Figure | None
    high: Figure | None
    problem: Text = ""


class Sensitivity(Shape):
    """What `sensitivity --format json` prints: the answer, in s or as a speed-up, and what moves it."""

    workflow: Text
    base: Text
    other: Text | None = None
    answer: Figure
    unit: Text = "s"
    bars: list[Bar]


class Session(Shape):
    """A recorded session, of those that `observe --format json` prints."""

    session: Text
    format: Text
    task_s: Figure
    model_s: Figure
    tool_s: Figure
    human_s: Figure
    residual_s: Figure
    tools_s: dict[str, Figure]
    model_calls: Figure
    tool_calls: Figure
    tokens: Tokens


class Sessions(Shape):
    """The list that `observe --format json` prints."""

    sessions: Annotated[list[Session], Field(min_length=1)]
