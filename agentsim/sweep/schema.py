"""What a sweep file may say."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from agentsim.errors import suggestion
from agentsim.fields import Line, PositiveCount, Scalar, Strict, unknown_key
from agentsim.units import between, parse_count

RANGE = ("from", "to", "steps", "scale")
SCALES = ("linear", "log")


def parse_axis(data: object) -> tuple[Any, ...]:
    """Return the values of an axis: those of a list, or of a range `{from, to, steps, scale}`."""
    if isinstance(data, dict) and any(key in RANGE for key in data):
        return _range(data)
    if not isinstance(data, list) or not data:
        raise ValueError("an axis is a list of values ([1 s, 5 s]) or a range {from: 1 s, to: 9 s, steps: 5}")
    twice = [value for index, value in enumerate(data) if value in data[:index]]
    if twice:
        raise ValueError(f"{twice[0]!r} stands there twice")
    return tuple(data)


def _range(data: dict[str, Any]) -> tuple[Any, ...]:
    for key in data:
        if key not in RANGE:
            raise unknown_key(str(key), set(RANGE))
    missing = [key for key in RANGE[:3] if key not in data]
    if missing:
        raise ValueError(f"a range needs from, to and steps; {', '.join(missing)} is missing")
    scale = data.get("scale", SCALES[0])
    if scale not in SCALES:
        raise ValueError(f"unknown scale '{scale}'{suggestion(str(scale), SCALES)} Known: linear, log")
    steps = parse_count(data["steps"])
    if steps > MAX_VALUES:
        raise ValueError(f"{steps:,} steps; at most {MAX_VALUES:,} are taken")
    return between(data["from"], data["to"], steps, scale == "log")


MAX_VALUES = 100_000
MAX_RUNS = 100_000
Values = Annotated[
    tuple[Any, ...],
    Scalar(
        parse_axis,
        anyOf=[
            {"type": "array", "minItems": 1},
            {
                "type": "object",
                "properties": {
                    "from": {},
                    "to": {},
                    "steps": {"type": "integer", "minimum": 2},
                    "scale": {"enum": list(SCALES)},
                },
                "required": ["from", "to", "steps"],
                "additionalProperties": False,
            },
        ],
        description="a list of values, or a range: from, to, steps, scale (linear or log)",
    ),
]


class SweepFile(Strict):
    """A workflow, what it runs on, and the fields that take several values.

    A path names a field as `--set` does: `tools.run_tests.time`, `deployment.engines.main.chips`, or
    `deployment` alone. Paths of files are relative to this one.
    """

    name: Line = ""
    description: str = ""
    workflow: Annotated[str, Field(description="path of the workflow file, as seen from this file")]
    deployment: Annotated[
        str | tuple[str, ...] | None, Field(description="what --on takes; several are an axis")
    ] = None
    runs: Annotated[PositiveCount, Field(description="runs of each point, over consecutive seeds")] = 1
    seed: int = 0
    metric: Annotated[str | None, Field(description="the column that pictures show")] = None
    set: dict[str, Any] = Field(default_factory=dict, description="fields that are changed at every point")
    grid: dict[str, Values] = Field(default_factory=dict, description="axes; every combination is a point")
    list: dict[str, Values] = Field(default_factory=dict, description="axes of one length that move together")

    @model_validator(mode="after")
    def _axes_agree(self) -> Self:
        if not self.grid and not self.list and not isinstance(self.deployment, tuple):
            raise ValueError("a sweep needs an axis: a path with several values under grid or list")
        if self.runs > MAX_RUNS:
            raise ValueError(f"{self.runs:,} runs of each point; at most {MAX_RUNS:,} are made")
        several = self.deployment if isinstance(self.deployment, tuple) else ()
        if len(set(several)) < len(several):
            raise ValueError("a deployment stands there twice")
        both = [path for path in self.grid if path in self.list]
        if both:
            raise ValueError(f"'{both[0]}' stands under grid and under list")
        lengths = {len(values) for values in self.list.values()}
        if len(lengths) > 1:
            found = ", ".join(f"{path} {len(values)}" for path, values in self.list.items())
            raise ValueError(f"the axes under list move together and need one length; found {found}")
        return self
