"""Building blocks of every YAML schema: the strict base model, quantities and token counts.

Values are SI floats or plain integers after validation; in YAML they carry their unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic import WithJsonSchema as JsonSchema
from pydantic import model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from agentsim import units
from agentsim.errors import suggestion


class Strict(BaseModel):
    """A frozen model that refuses unknown keys and names the nearest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            allowed = {field.alias or name for name, field in cls.model_fields.items()}
            for key in data:
                if key not in allowed:
                    raise unknown_key(str(key), allowed)
        return data


def unknown_key(key: str, allowed: set[str]) -> PydanticCustomError:
    """Return the validation error for a key that a mapping does not have."""
    text = f"unknown key '{key}'{suggestion(key, allowed) or '.'} Allowed: {', '.join(sorted(allowed))}"
    return PydanticCustomError("unknown_key", "{text}", {"text": text, "key": key})


@dataclass(frozen=True)
class Quantity:
    """Marks a float field that is written in YAML as text with a unit of one dimension."""

    dimension: str

    def parse(self, value: object) -> float:
        return units.parse(value, self.dimension)

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.parse)

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {
            "type": "string",
            "description": f"a {self.dimension} with its unit, such as {units.EXAMPLES[self.dimension]}",
        }


Seconds = Annotated[float, Quantity("time")]
Bytes = Annotated[float, Quantity("size")]
BytesPerSecond = Annotated[float, Quantity("bandwidth")]
FlopsPerSecond = Annotated[float, Quantity("compute")]
Watts = Annotated[float, Quantity("power")]
UsdPerSecond = Annotated[float, Quantity("price")]
UsdPerToken = Annotated[float, Quantity("token price")]
TokensPerSecond = Annotated[float, Quantity("token speed")]
SecondsPerToken = Annotated[float, Quantity("time per token")]

_TOKENS_SCHEMA = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^[\d_.]+[kM]?$"}],
    "description": "a number of tokens, such as 14_000 or 14k",
}
Tokens = Annotated[int, BeforeValidator(units.parse_tokens), JsonSchema(_TOKENS_SCHEMA)]
Count = Annotated[int, BeforeValidator(units.parse_count), JsonSchema({"type": "integer", "minimum": 0})]
Number = Annotated[float, BeforeValidator(units.parse_number), JsonSchema({"type": "number", "minimum": 0})]
Probability = Annotated[
    float, BeforeValidator(units.parse_share), JsonSchema({"type": "number", "minimum": 0, "maximum": 1})
]
