"""The workflow file: what the agent does, turn by turn. Read this file first.

Every step is a mapping with one key, its kind. Times and sizes carry units and may be distributions.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import CoreSchema

from agentsim.fields import (
    BytesPerSecond,
    Count,
    Line,
    Number,
    Positive,
    Probability,
    Seconds,
    Strict,
    Tokens,
)
from agentsim.workflow.distribution import (
    Distribution,
    DrawnBytes,
    DrawnCount,
    DrawnSeconds,
    DrawnTokens,
)

MAX_RETRIES = 100
MAX_AGENTS = 10_000
LONGEST_PAUSE_S = 1e6

Text = Annotated[str | None, Field(description="what was said, of a recorded session; it changes no figure")]

_NO_TOKENS: Distribution[int] = Distribution(constant=0)
_ONE: Distribution[int] = Distribution(constant=1)


class Compaction(Strict):
    """When the context is summarised, and how long the summary is."""

    at: Annotated[Probability, Field(description="share of the limit that triggers it")] = 0.9
    summary_tokens: Tokens = 4000


class Context(Strict):
    """The agent's context window. A turn's prompt is the whole context."""

    system_tokens: Annotated[Tokens, Field(description="system prompt and tool definitions")] = 0
    limit_tokens: Tokens | None = None
    compaction: Compaction | None = None


class Network(Strict):
    """The way between the agent and its model."""

    round_trip: Annotated[DrawnSeconds, Field(description="paid once per model call")]


class Storage(Strict):
    """Where the agent's files are."""

    latency: Annotated[DrawnSeconds, Field(description="paid once per file")]
    bandwidth: BytesPerSecond
    bytes_per_token: Annotated[Positive, Field(description="how much text makes a token")] = 4.0


class Backoff(Strict):
    """The pause before a failed tool call is tried again: `initial`, then `factor` times longer."""

    initial: Seconds = 1.0
    factor: Number = 2.0


class Failure(Strict):
    """How a tool fails: an attempt takes its full time, then is tried again after a pause."""

    probability: Probability
    retries: Annotated[Count, Field(description=f"at most {MAX_RETRIES}")] = 0
    backoff: Backoff = Field(default_factory=Backoff)

    @model_validator(mode="after")
    def _ends(self) -> Failure:
        if self.retries > MAX_RETRIES:
            raise ValueError(f"{self.retries:,} retries; at most {MAX_RETRIES} are simulated")
        longest_s = self.backoff.initial * max(self.backoff.factor, 1.0) ** self.retries
        if longest_s > LONGEST_PAUSE_S:
            raise ValueError(f"the last pause grows to {longest_s:.3g} s; use a smaller factor")
        return self


class Tool(Strict):
    """Something the agent calls and waits for."""

    time: DrawnSeconds
    result_tokens: DrawnTokens = _NO_TOKENS
    slots: Annotated[Count | None, Field(description="calls that run at once; the rest queue")] = None
    timeout: Annotated[Seconds | None, Field(description="the harness ends an attempt there; it failed")] = (
        None
    )
    failure: Failure | None = None

    @model_validator(mode="after")
    def _at_least_one_slot(self) -> Tool:
        if self.slots == 0:
            raise ValueError("slots is 0: no call could ever run; leave it out for no limit")
        return self


class User(Strict):
    """A message of the user."""

    tokens: DrawnTokens
    text: Text = None


class Generate(Strict):
    """A model call: the whole context is the prompt.

    The rest is for recorded calls, whose exact figures are known. `time` and `ttft` are what they took;
    they count where the recorded durations themselves are replayed.
    """

    tokens: Annotated[DrawnTokens, Field(description="visible output, kept in the context")]
    thinking_tokens: Annotated[DrawnTokens, Field(description="written, then dropped from the context")] = (
        _NO_TOKENS
    )
    prompt_tokens: Annotated[Tokens | None, Field(description="recorded prompt")] = None
    cached_tokens: Annotated[Tokens | None, Field(description="recorded part of it that was cached")] = None
    model: Annotated[Line | None, Field(description="the model that answered when this was recorded")] = None
    time: Annotated[Seconds | None, Field(description="recorded time of the whole call")] = None
    ttft: Annotated[Seconds | None, Field(description="recorded time to the first token")] = None
    text: Text = None

    @model_validator(mode="after")
    def _recorded_figures_agree(self) -> Generate:
        if self.cached_tokens is not None and self.cached_tokens > (self.prompt_tokens or 0):
            raise ValueError("cached_tokens needs a prompt_tokens that is at least as large")
        return self


class Call(Strict):
    """A tool call; `time` and `result_tokens` here replace those of the tool.

    Of a recorded call, `text` are the arguments and `result_text` is what came back.
    """

    tool: Line
    time: DrawnSeconds | None = None
    result_tokens: DrawnTokens | None = None
    text: Text = None
    result_text: Text = None

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, data: Any) -> Any:
        return {"tool": data} if isinstance(data, str) else data

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        return {"anyOf": [{"type": "string", "description": "a tool's name"}, handler(schema)]}


class ReadFile(Strict):
    """Reads files one after another; their text joins the context."""

    size: DrawnBytes
    count: DrawnCount = _ONE


class WriteFile(Strict):
    """Writes files one after another; only `result_tokens` join the context."""

    size: DrawnBytes
    count: DrawnCount = _ONE
    result_tokens: DrawnTokens = _NO_TOKENS


class Repeat(Strict):
    """The same steps again, a fixed or drawn number of times."""

    times: DrawnCount
    steps: tuple[Step, ...]


class Agent(Strict):
    """A sub-agent with its own context; its report joins the context of whoever started it.

    `background` ones are not waited for until `join` names them, or the work around them ends.
    """

    name: Line
    context: Literal["fresh", "inherit"] = "fresh"
    system_tokens: Annotated[Tokens | None, Field(description="of a fresh context")] = None
    task_tokens: Annotated[DrawnTokens, Field(description="the assignment it is given")] = _NO_TOKENS
    count: Annotated[Count, Field(description=f"how many start together; at most {MAX_AGENTS}")] = 1
    background: bool = False
    report_tokens: DrawnTokens = _NO_TOKENS
    steps: tuple[Step, ...]

    @model_validator(mode="after")
    def _not_too_many(self) -> Agent:
        if self.count > MAX_AGENTS:
            raise ValueError(f"{self.count:,} sub-agents; at most {MAX_AGENTS:,} start together")
        return self


class Think(Strict):
    """A wait for a human; kept apart from task time."""

    time: DrawnSeconds

    @model_validator(mode="before")
    @classmethod
    def _time_alone(cls, data: Any) -> Any:
        return data if isinstance(data, dict) and "time" in data else {"time": data}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        long_form = handler(schema)
        return {"anyOf": [long_form, handler.resolve_ref_schema(long_form)["properties"]["time"]]}


class Compact(Strict):
    """A compaction at this place, whatever the size of the context; `time` is what a recorded one took."""

    summary_tokens: DrawnTokens
    time: Seconds | None = None


class _OneOf(Strict):
    """A mapping with exactly one of its keys: the kind of a step, and what it does."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        keys = sorted(self.model_fields_set)
        empty = [key for key in keys if getattr(self, key) is None]
        if empty:
            raise ValueError(f"there is nothing behind '{empty[0]}:'")
        if len(keys) != 1:
            found = ", ".join(keys) or "none"
            raise ValueError(
                f"a step has exactly one kind; found {found}. Put each in a step of its own ('- ')"
            )
        return self

    @property
    def kind(self) -> str:
        """The one key that is given."""
        return next(iter(self.model_fields_set))

    @property
    def body(self) -> Any:
        """What stands behind the key."""
        return getattr(self, self.kind)


class ToolStep(_OneOf):
    """What can run side by side: tools and files. Model calls side by side are `agents`."""

    call: Call | None = None
    read_file: ReadFile | None = None
    write_file: WriteFile | None = None


class Step(ToolStep):
    """One thing that the agent does or waits for."""

    user: User | None = None
    generate: Generate | None = None
    parallel: Annotated[
        tuple[ToolStep, ...] | None,
        Field(description="side by side; results join the context in the order written"),
    ] = None
    repeat: Repeat | None = None
    agents: Annotated[tuple[Agent, ...] | None, Field(description="sub-agents side by side")] = None
    join: Annotated[tuple[Line, ...] | None, Field(description="background sub-agents to wait for")] = None
    think: Think | None = None
    compact: Compact | None = None


class Workflow(Strict):
    """A whole task."""

    name: Line
    description: str = ""
    source: Annotated[Line | None, Field(description="where a recorded session comes from")] = None
    context: Context = Field(default_factory=Context)
    network: Network | None = None
    storage: Storage | None = None
    tools: dict[Line, Tool] = Field(default_factory=dict)
    steps: tuple[Step, ...]


Workflow.model_rebuild()
