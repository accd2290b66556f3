"""The columns of a sweep's table, and what they say of a point's runs. SI units, in the name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentsim.errors import unknown_name
from agentsim.result import Part, Spread
from agentsim.summary import Summary

DEFAULT = "task_time_p50_s"
TOLD = ("status", "reason")
"""Columns that say whether there is a result, and why not."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of a point: its column, what people call it, its dimension, and whether more is better."""

    column: str
    label: str
    dimension: str
    value: Callable[[Summary], Any]
    more_is_better: bool = False


def _time(field: str) -> Metric:
    label = "mean" if field == "avg" else field
    return Metric(
        f"task_time_{field}_s", f"task time {label}", "time", lambda s: getattr(s.completion_s, field)
    )


def _part(part: Part) -> Metric:
    label = part.key.replace("_", " ")
    return Metric(f"{part.key}_s", label, "time", lambda s: s.parts_s[part])


def _of(spread: Spread | None, field: str) -> float | None:
    return getattr(spread, field) if spread else None


METRICS = (
    *map(_time, Spread.__slots__),
    *(_part(part) for part in Part if part is not Part.HUMAN),
    Metric("tool_slot_wait_s", "waiting for a tool's slot", "time", lambda s: s.slot_wait_s),
    Metric("human_wait_s", "waiting for you", "time", lambda s: s.human_s),
    Metric("inference_share", "share of inference", "share", lambda s: s.inference_share),
    Metric("output_tokens_per_s", "token speed", "token speed", lambda s: s.output_tokens_per_s, True),
    Metric("ttft_p95_s", "TTFT p95", "time", lambda s: _of(s.ttft_s, "p95")),
    Metric("ttft_p50_s", "TTFT p50", "time", lambda s: _of(s.ttft_s, "p50")),
    Metric("itl_p50_s", "ITL p50", "time", lambda s: _of(s.itl_s, "p50")),
    Metric("cost_usd", "cost of a task", "USD", lambda s: s.cost_usd),
    Metric("prompt_tokens", "prompt tokens", "tokens", lambda s: s.tokens.prompt),
    Metric("cached_tokens", "cached tokens", "tokens", lambda s: s.tokens.cached, True),
    Metric("output_tokens", "output tokens", "tokens", lambda s: s.tokens.output),
    Metric("peak_context_tokens", "peak context", "tokens", lambda s: s.peak_context),
    Metric("model_calls", "model calls", "count", lambda s: s.model_calls),
    Metric("tool_calls", "tool calls", "count", lambda s: s.tool_calls),
)
BY_NAME = {metric.column: metric for metric in METRICS}
NOTES: dict[str, Callable[[Summary], Any]] = {
    "lower_bound": lambda s: s.is_lower_bound,
    "warnings": lambda s: "; ".join(s.warnings),
}
RESULT = (*TOLD, *BY_NAME, *NOTES)
"""Every column behind the axes."""


def metric_named(name: str) -> Metric:
    """Return a metric by its column; `UnknownNameError` with the nearest."""
    if name not in BY_NAME:
        raise unknown_name("metric", name, BY_NAME)
    return BY_NAME[name]


def measured(summary: Summary) -> dict[str, Any]:
    """Return the row of a point that ran."""
    figures = {metric.column: metric.value(summary) for metric in METRICS}
    return {"status": "ok", **figures, **{name: value(summary) for name, value in NOTES.items()}}


def without_result(status: str, reason: str) -> dict[str, Any]:
    """Return the row of a point that has none, with the reason on one line."""
    return {"status": status, "reason": " ".join(reason.split())}
