"""What a task must meet to count as good (`--slo task=10min,ttft=2s`)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from agentsim.errors import InputError, unknown_name
from agentsim.result import TaskOutcome
from agentsim.units import duration_text, parse, to_s

PARTS = {
    "task": "task completion time",
    "ttft": "95th percentile of its calls' time to first token",
    "itl": "mean time between its tokens",
}
"""The parts that an objective may have, and what of a task each bounds."""


@dataclass(frozen=True, slots=True)
class Objective:
    """Bounds in seconds, None where there is none; a task is good where it is within all that are given.

    `task_s` bounds its completion time, `ttft_s` the 95th percentile of its calls' time to first token,
    `itl_s` its decode time over all tokens but the first of each call.
    """

    task_s: float | None = None
    ttft_s: float | None = None
    itl_s: float | None = None

    def missed(self, task: TaskOutcome) -> list[str]:
        """Return the parts that a task does not meet."""
        return [part for part, bound in self.bounds() if figure(task, part) > bound]

    def bounds(self) -> list[tuple[str, float]]:
        """Return the parts that are bounded, with their bounds."""
        given = {part: getattr(self, f"{part}_s") for part in PARTS}
        return [(part, bound) for part, bound in given.items() if bound is not None]

    @property
    def text(self) -> str:
        """The objective in words."""
        names = {"task": "task", "ttft": "TTFT p95 of a task", "itl": "ITL of a task"}
        return ", ".join(f"{names[part]} ≤ {duration_text(bound)}" for part, bound in self.bounds())

    @property
    def option(self) -> str:
        """The objective as it is written on a command line."""
        return ",".join(f"{part}={bound:g}s" for part, bound in self.bounds())

    def to_json(self) -> dict[str, Any]:
        """Return the bounds as plain data."""
        return asdict(self)


def figure(task: TaskOutcome, part: str) -> float:
    """Return the seconds of a task that a part of an objective bounds."""
    if part == "task":
        return to_s(task.completion_ns)
    if part == "ttft":
        return to_s(task.ttft_p95_ns)
    later = task.output_tokens - task.model_calls
    return to_s(task.decode_ns) / later if later > 0 else 0.0


def parse_objective(text: str) -> Objective:
    """Return what `task=10min,ttft=2s` says. Raises `InputError` for an unknown part or a bad time."""
    bounds: dict[str, float] = {}
    for item in text.split(","):
        name, sign, value = (piece.strip() for piece in item.partition("="))
        if not sign:
            raise InputError(f"--slo {text}: write it like task=10min,ttft=2s")
        if name not in PARTS:
            raise unknown_name("part of an objective", name, PARTS)
        if f"{name}_s" in bounds:
            raise InputError(f"--slo {text}: '{name}' is given twice")
        bounds[f"{name}_s"] = _bound(name, value)
    return Objective(**bounds)


def _bound(name: str, value: str) -> float:
    try:
        bound = parse(value, "time")
    except ValueError as problem:
        raise InputError(f"--slo {name}: {problem}") from None
    if not bound:
        raise InputError(f"--slo {name}: '{value}' is zero; nothing takes no time")
    return bound
