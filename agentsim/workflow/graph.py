"""The executable form of a workflow: frozen operations whose draws are ready to be called.

An operation names the random stream that it draws from (`cause`), so that adding one operation
changes no draw of another.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

from agentsim.errors import InfeasibleError
from agentsim.workflow import schema
from agentsim.workflow.distribution import Distribution, Draw, sampler


class UserMessage(NamedTuple):
    """The user's text joins the context."""

    tokens: Draw
    cause: str = "user"


class ModelCall(NamedTuple):
    """One model call. Recorded figures, where given, replace what the context would say."""

    tokens: Draw
    thinking_tokens: Draw
    prompt_tokens: int | None
    cached_tokens: int | None
    recorded_s: float | None = None
    recorded_ttft_s: float | None = None
    cause: str = "generate"


class Retry(NamedTuple):
    """An attempt fails with `probability`; pauses grow by `factor` from `initial_s`."""

    probability: float
    retries: int
    initial_s: float
    factor: float


class ToolCall(NamedTuple):
    """One tool call; `slots` limits how many of this tool run at once over the whole simulation."""

    name: str
    time_s: Draw
    result_tokens: Draw
    slots: int | None
    retry: Retry | None
    timeout_s: float
    cause: str


class FileAccess(NamedTuple):
    """Files read or written one after another; each pays the latency and its size over the bandwidth."""

    writes: bool
    size_bytes: Draw
    files: Draw
    latency_s: Draw
    bytes_per_s: float
    tokens: Callable[[float], float]
    result_tokens: Draw
    cause: str

    @property
    def name(self) -> str:
        return "write_file" if self.writes else "read_file"


class Parallel(NamedTuple):
    """Tool operations side by side; the slowest decides."""

    branches: tuple[ToolCall | FileAccess, ...]


class Loop(NamedTuple):
    """The body again, `times` drawn when it is entered."""

    times: Draw
    body: tuple[Operation, ...]
    cause: str = "repeat"


class SubAgent(NamedTuple):
    """A sub-agent; `system_tokens` counts for a fresh context only."""

    name: str
    inherits: bool
    system_tokens: int
    task_tokens: Draw
    report_tokens: Draw
    background: bool
    body: tuple[Operation, ...]
    cause: str = "agent"


class FanOut(NamedTuple):
    """Sub-agents started at the same moment."""

    agents: tuple[SubAgent, ...]


class Join(NamedTuple):
    """Waits for the background sub-agents of these names."""

    names: tuple[str, ...]


class HumanWait(NamedTuple):
    """A wait for a person."""

    time_s: Draw
    cause: str = "think"


class Summarise(NamedTuple):
    """A compaction here."""

    summary_tokens: Draw
    recorded_s: float | None = None
    cause: str = "compact"


Operation = (
    UserMessage | ModelCall | ToolCall | FileAccess | Parallel | Loop | FanOut | Join | HumanWait | Summarise
)


class CompactionRule(NamedTuple):
    """Summarise to `summary_tokens` when the context reaches `at_tokens`."""

    at_tokens: int
    summary_tokens: int


class Task(NamedTuple):
    """The whole task, ready to run. Tokens are counts; the round trip is in seconds."""

    name: str
    system_tokens: int
    limit_tokens: int | None
    compaction_at: float | None
    summary_tokens: int
    round_trip_s: Draw
    body: tuple[Operation, ...]

    def limit_below(self, model_limit: int | None, model: str) -> int | None:
        """Return the smaller of the task's window and the model's; None where neither has one."""
        if model_limit is not None and self.system_tokens >= model_limit:
            raise InfeasibleError(
                f"the system prompt alone ({self.system_tokens:,} tokens) fills the "
                f"{model_limit:,} of {model}"
            )
        limits = [limit for limit in (self.limit_tokens, model_limit) if limit is not None]
        return min(limits, default=None)


def build_task(workflow: schema.Workflow) -> Task:
    """Turn a checked workflow into operations."""
    context, rule = workflow.context, workflow.context.compaction
    builder = _Builder(workflow)
    return Task(
        name=workflow.name,
        system_tokens=context.system_tokens,
        limit_tokens=context.limit_tokens,
        compaction_at=rule.at if rule else None,
        summary_tokens=rule.summary_tokens if rule else 0,
        round_trip_s=sampler(workflow.network.round_trip) if workflow.network else _nothing,
        body=builder.body(workflow.steps),
    )


def _nothing(_uniform: Any) -> float:
    return 0.0


class _Builder:
    """Builds operations; one method per kind of step."""

    def __init__(self, workflow: schema.Workflow) -> None:
        self.workflow = workflow

    def body(self, steps: tuple[Any, ...]) -> tuple[Operation, ...]:
        return tuple(self._operation(step) for step in steps)

    def _operation(self, step: Any) -> Operation:
        operation: Operation = getattr(self, f"_{step.kind}")(step.body)
        return operation

    def _user(self, user: schema.User) -> UserMessage:
        return UserMessage(sampler(user.tokens))

    def _generate(self, call: schema.Generate) -> ModelCall:
        return ModelCall(
            tokens=sampler(call.tokens),
            thinking_tokens=sampler(call.thinking_tokens),
            prompt_tokens=call.prompt_tokens,
            cached_tokens=call.cached_tokens,
            recorded_s=call.time,
            recorded_ttft_s=call.ttft,
        )

    def _call(self, call: schema.Call) -> ToolCall:
        tool = self.workflow.tools.get(call.tool)
        time = call.time or (tool.time if tool else None)
        assert time is not None, "checked when the workflow was loaded"
        result = call.result_tokens or (tool.result_tokens if tool else None)
        return ToolCall(
            name=call.tool,
            time_s=sampler(time),
            result_tokens=sampler(result) if result else _nothing,
            slots=tool.slots if tool else None,
            retry=_retry(tool.failure) if tool and tool.failure else None,
            timeout_s=tool.timeout if tool and tool.timeout is not None else inf,
            cause=f"tool {call.tool}",
        )

    def _files(self, size: Distribution[Any], count: Distribution[Any], result: Draw | None) -> FileAccess:
        storage = self.workflow.storage
        assert storage is not None, "checked when the workflow was loaded"
        per_token = storage.bytes_per_token
        return FileAccess(
            writes=result is not None,
            size_bytes=sampler(size),
            files=sampler(count),
            latency_s=sampler(storage.latency),
            bytes_per_s=storage.bandwidth,
            tokens=_nothing if result is not None else lambda size_bytes: size_bytes / per_token,
            result_tokens=result or _nothing,
            cause="write_file" if result is not None else "read_file",
        )

    def _read_file(self, read: schema.ReadFile) -> FileAccess:
        return self._files(read.size, read.count, None)

    def _write_file(self, write: schema.WriteFile) -> FileAccess:
        return self._files(write.size, write.count, sampler(write.result_tokens))

    def _parallel(self, steps: tuple[Any, ...]) -> Parallel:
        branches = (self._operation(step) for step in steps)
        return Parallel(tuple(b for b in branches if isinstance(b, ToolCall | FileAccess)))

    def _repeat(self, repeat: schema.Repeat) -> Loop:
        return Loop(sampler(repeat.times), self.body(repeat.steps))

    def _agents(self, agents: tuple[schema.Agent, ...]) -> FanOut:
        return FanOut(tuple(self._sub_agent(agent) for agent in agents for _ in range(agent.count)))

    def _sub_agent(self, agent: schema.Agent) -> SubAgent:
        system = agent.system_tokens
        return SubAgent(
            name=agent.name,
            inherits=agent.context == "inherit",
            system_tokens=self.workflow.context.system_tokens if system is None else system,
            task_tokens=sampler(agent.task_tokens),
            report_tokens=sampler(agent.report_tokens),
            background=agent.background,
            body=self.body(agent.steps),
        )

    def _join(self, names: tuple[str, ...]) -> Join:
        return Join(names)

    def _think(self, think: schema.Think) -> HumanWait:
        return HumanWait(sampler(think.time))

    def _compact(self, compact: schema.Compact) -> Summarise:
        return Summarise(sampler(compact.summary_tokens), compact.time)


def _retry(failure: schema.Failure) -> Retry:
    return Retry(failure.probability, failure.retries, failure.backoff.initial, failure.backoff.factor)
