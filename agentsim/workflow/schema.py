"""The workflow file: what the agent does, turn by turn. Read this file first.

Every step is a mapping with one key, its kind. Times and sizes carry units and may be distributions.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from agentsim.fields import Bytes, BytesPerSecond, Count, Number, Probability, Seconds, Strict, Tokens
from agentsim.workflow.distribution import Distribution

DrawnSeconds = Distribution[Seconds]
DrawnTokens = Distribution[Tokens]
DrawnBytes = Distribution[Bytes]
DrawnCount = Distribution[Count]


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
    bytes_per_token: Annotated[Number, Field(description="how much text makes a token")] = 4.0


class Backoff(Strict):
    """The pause before a failed tool call is tried again: `initial`, then `factor` times longer."""

    initial: Seconds = 1.0
    factor: Number = 2.0


class Failure(Strict):
    """How a tool fails: an attempt takes its full time, then is tried again after a pause."""

    probability: Probability
    retries: Count = 0
    backoff: Backoff = Backoff()


class Tool(Strict):
    """Something the agent calls and waits for."""

    time: DrawnSeconds
    result_tokens: DrawnTokens = DrawnTokens(constant=0)
    slots: Annotated[Count | None, Field(description="calls that run at once; the rest queue")] = None
    failure: Failure | None = None

    @model_validator(mode="after")
    def _at_least_one_slot(self) -> Tool:
        if self.slots == 0:
            raise ValueError("slots is 0: no call could ever run; leave it out for no limit")
        return self


class User(Strict):
    """A message of the user."""

    tokens: DrawnTokens


class Generate(Strict):
    """A model call: the whole context is the prompt.

    `prompt_tokens` and `cached_tokens` are for recorded calls, whose exact figures are known.
    """

    tokens: Annotated[DrawnTokens, Field(description="visible output, kept in the context")]
    thinking_tokens: Annotated[DrawnTokens, Field(description="written, then dropped from the context")] = (
        DrawnTokens(constant=0)
    )
    prompt_tokens: Annotated[Tokens | None, Field(description="recorded prompt")] = None
    cached_tokens: Annotated[Tokens | None, Field(description="recorded part of it that was cached")] = None
    model: Annotated[str | None, Field(description="the model that answered when this was recorded")] = None

    @model_validator(mode="after")
    def _recorded_figures_agree(self) -> Generate:
        if self.cached_tokens is not None and self.cached_tokens > (self.prompt_tokens or 0):
            raise ValueError("cached_tokens needs a prompt_tokens that is at least as large")
        return self


class Call(Strict):
    """A tool call; `time` and `result_tokens` here replace those of the tool."""

    tool: str
    time: DrawnSeconds | None = None
    result_tokens: DrawnTokens | None = None

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, data: Any) -> Any:
        return {"tool": data} if isinstance(data, str) else data


class ReadFile(Strict):
    """Reads files one after another; their text joins the context."""

    size: DrawnBytes
    count: DrawnCount = DrawnCount(constant=1)


class WriteFile(Strict):
    """Writes files one after another; only `result_tokens` join the context."""

    size: DrawnBytes
    count: DrawnCount = DrawnCount(constant=1)
    result_tokens: DrawnTokens = DrawnTokens(constant=0)


class Repeat(Strict):
    """The same steps again, a fixed or drawn number of times."""

    times: DrawnCount
    steps: tuple[Step, ...]


class Agent(Strict):
    """A sub-agent with its own context; its report joins the context of whoever started it.

    `background` ones are not waited for until `join` names them, or the work around them ends.
    """

    name: str
    context: Literal["fresh", "inherit"] = "fresh"
    system_tokens: Annotated[Tokens | None, Field(description="of a fresh context")] = None
    task_tokens: Annotated[DrawnTokens, Field(description="the assignment it is given")] = DrawnTokens(
        constant=0
    )
    count: Annotated[Count, Field(description="how many of this kind start together")] = 1
    background: bool = False
    report_tokens: DrawnTokens = DrawnTokens(constant=0)
    steps: tuple[Step, ...]


class Think(Strict):
    """A wait for a human; kept apart from task time."""

    time: DrawnSeconds

    @model_validator(mode="before")
    @classmethod
    def _time_alone(cls, data: Any) -> Any:
        return data if isinstance(data, dict) and "time" in data else {"time": data}


class Compact(Strict):
    """A compaction at this place, whatever the size of the context."""

    summary_tokens: DrawnTokens


class UserStep(Strict):
    user: User


class GenerateStep(Strict):
    generate: Generate


class CallStep(Strict):
    call: Call


class ReadFileStep(Strict):
    read_file: ReadFile


class WriteFileStep(Strict):
    write_file: WriteFile


class ParallelStep(Strict):
    """Tool calls and files side by side; results join the context in the order written."""

    parallel: tuple[ToolStep, ...]


class RepeatStep(Strict):
    repeat: Repeat


class AgentsStep(Strict):
    """Sub-agents side by side."""

    agents: tuple[Agent, ...]


class JoinStep(Strict):
    """Waits for background sub-agents by name."""

    join: tuple[str, ...]


class ThinkStep(Strict):
    think: Think


class CompactStep(Strict):
    compact: Compact


def _kind(step: Any) -> str:
    """Return the one key of a step; anything else becomes a tag that no union member carries."""
    if isinstance(step, Strict):
        return next(iter(type(step).model_fields))
    keys = list(step) if isinstance(step, dict) else [step]
    return ", ".join(map(str, keys[:4])) or "nothing"


Step = Annotated[
    Annotated[UserStep, Tag("user")]
    | Annotated[GenerateStep, Tag("generate")]
    | Annotated[CallStep, Tag("call")]
    | Annotated[ReadFileStep, Tag("read_file")]
    | Annotated[WriteFileStep, Tag("write_file")]
    | Annotated[ParallelStep, Tag("parallel")]
    | Annotated[RepeatStep, Tag("repeat")]
    | Annotated[AgentsStep, Tag("agents")]
    | Annotated[JoinStep, Tag("join")]
    | Annotated[ThinkStep, Tag("think")]
    | Annotated[CompactStep, Tag("compact")],
    Discriminator(_kind),
]
ToolStep = Annotated[
    Annotated[CallStep, Tag("call")]
    | Annotated[ReadFileStep, Tag("read_file")]
    | Annotated[WriteFileStep, Tag("write_file")],
    Discriminator(_kind),
]


class Workflow(Strict):
    """A whole task."""

    name: str
    description: str = ""
    source: Annotated[str | None, Field(description="where a recorded session comes from")] = None
    context: Context = Context()
    network: Network = Network(round_trip=DrawnSeconds.model_validate("0 s"))
    storage: Storage | None = None
    tools: dict[str, Tool] = Field(default_factory=dict)
    steps: tuple[Step, ...]


Workflow.model_rebuild()
