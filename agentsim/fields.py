"""Building blocks of every YAML schema: the strict base model, quantities and token counts.

Values are SI floats or plain integers after validation; in YAML they carry their unit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Set
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from agentsim import units
from agentsim.errors import suggestion

STRICT = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Strict(BaseModel):
    """A frozen model that refuses unknown keys and names the nearest known one."""

    model_config = STRICT

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        return _check_keys(_model_keys(cls), data)


@cache
def _model_keys(cls: type[BaseModel]) -> frozenset[str]:
    return frozenset(cls.model_fields)


@cache
def _dataclass_keys(cls: Any) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(cls))


def unknown_key(key: str, allowed: Set[str]) -> PydanticCustomError:
    """Return the validation error for a key that a mapping does not have."""
    text = f"unknown key '{key}'{suggestion(key, allowed) or '.'} Allowed: {', '.join(sorted(allowed))}"
    return PydanticCustomError("unknown_key", "{text}", {"text": text, "key": key})


def known_keys(cls: type, data: Any) -> Any:
    """Return the data of a plain dataclass in a schema; unknown keys are refused, as in `Strict`."""
    return _check_keys(_dataclass_keys(cls), data)


def _check_keys(allowed: Set[str], data: Any) -> Any:
    for key in data if isinstance(data, dict) else ():
        if key not in allowed:
            raise unknown_key(str(key), allowed)
    return data


class Scalar:
    """Marks a field that one function reads from plain YAML data, and says what it looks like there."""

    def __init__(self, parse: Callable[[object], Any], **json_schema: Any) -> None:
        self.parse, self.json_schema = parse, json_schema

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.parse)

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: Any) -> dict[str, Any]:
        return self.json_schema


class Quantity(Scalar):
    """Marks a float field that is written in YAML as text with a unit of one dimension."""

    def __init__(self, dimension: str) -> None:
        self.dimension = dimension
        example = units.EXAMPLES[dimension]
        super().__init__(
            lambda value: units.parse(value, dimension),
            type="string",
            description=f"a {dimension} with its unit, such as {example}",
        )


Seconds = Annotated[float, Quantity("time")]
Bytes = Annotated[float, Quantity("size")]
BytesPerSecond = Annotated[float, Quantity("bandwidth")]
FlopsPerSecond = Annotated[float, Quantity("compute")]
Watts = Annotated[float, Quantity("power")]
UsdPerSecond = Annotated[float, Quantity("price")]
UsdPerToken = Annotated[float, Quantity("token price")]
TokensPerSecond = Annotated[float, Quantity("token speed")]
SecondsPerToken = Annotated[float, Quantity("time per token")]
Tokens = Annotated[
    int,
    Scalar(
        units.parse_tokens,
        anyOf=[{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^[\d_.]+[kM]?$"}],
        description="a number of tokens, such as 14_000 or 14k",
    ),
]
PositiveTokens = Annotated[
    int,
    Scalar(
        units.over_zero(units.parse_tokens),
        anyOf=[{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"^[\d_.]+[kM]?$"}],
        description="a number of tokens over 0, such as 8192 or 8k",
    ),
]
Count = Annotated[int, Scalar(units.parse_count, type="integer", minimum=0)]
Number = Annotated[float, Scalar(units.parse_number, type="number", minimum=0)]
Positive = Annotated[float, Scalar(units.over_zero(units.parse_number), type="number", exclusiveMinimum=0)]
PositiveCount = Annotated[int, Scalar(units.over_zero(units.parse_count), type="integer", minimum=1)]
Line = Annotated[str, Scalar(units.parse_line, type="string", maxLength=units.MAX_LINE)]
"""A name or title, fit to be shown."""
Probability = Annotated[float, Scalar(units.parse_share, type="number", minimum=0, maximum=1)]
Efficiency = Annotated[
    float,
    Scalar(units.over_zero(units.parse_efficiency), type="number", minimum=units.LEAST_EFFICIENCY, maximum=1),
]
"""A share of a published peak: something is reached of it."""
Capacity = Annotated[
    float,
    Scalar(
        units.over_zero(lambda value: units.parse(value, "size")),
        type="string",
        description=f"a size over 0 with its unit, such as {units.EXAMPLES['size']}",
    ),
]
