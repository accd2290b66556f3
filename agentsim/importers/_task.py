"""From a recorded session straight to the task that is simulated, as its workflow file would give it.

The file, its parsing and its checks take most of the time of many sessions; what is written in it is
written by this project, so that nothing is left to check. `workflow_document` stays the one description.
"""

from __future__ import annotations

from math import inf

from agentsim.importers._build import steps_of
from agentsim.importers._steps import RecordedAgent, RecordedStep
from agentsim.recorded import RecordedSession
from agentsim.workflow import graph
from agentsim.workflow.distribution import Draw, constant

_NOTHING = constant(0.0)


def recorded_task(session: RecordedSession) -> graph.Task:
    """Return the task of a session: the same as that of its workflow file."""
    system, steps = steps_of(session)
    return graph.Task(
        name=session.name,
        system_tokens=system,
        limit_tokens=None,
        compaction_at=None,
        summary_tokens=0,
        round_trip_s=_NOTHING,
        body=_body(steps),
    )


def _body(steps: list[RecordedStep]) -> tuple[graph.Operation, ...]:
    return tuple(_operation(step) for step in steps)


def _operation(step: RecordedStep) -> graph.Operation:
    if step.agents:
        return graph.FanOut(tuple(_agent(agent) for agent in step.agents))
    if step.branches:
        branches = (_operation(branch) for branch in step.branches)
        return graph.Parallel(tuple(b for b in branches if isinstance(b, graph.ToolCall)))
    if step.kind == "generate":
        return _model_call(step.fields)
    if step.kind == "call":
        return _tool_call(step.fields)
    if step.kind == "user":
        return graph.UserMessage(_count(step.fields["tokens"]))
    if step.kind == "think":
        return graph.HumanWait(constant(_seconds(step.text)))
    if step.kind == "compact":
        return graph.Summarise(_count(step.fields["summary_tokens"]), _seconds(step.fields["time"]))
    assert step.kind == "join", "the kinds of step that a session is written as"
    return graph.Join(tuple(map(unquoted, step.names)))


def _model_call(fields: dict[str, str]) -> graph.ModelCall:
    return graph.ModelCall(
        tokens=_count(fields["tokens"]),
        thinking_tokens=_count(fields.get("thinking_tokens", "0")),
        prompt_tokens=int(fields["prompt_tokens"]),
        cached_tokens=int(fields["cached_tokens"]),
        recorded_s=_seconds(fields["time"]) if "time" in fields else None,
        recorded_ttft_s=_seconds(fields["ttft"]) if "ttft" in fields else None,
    )


def _tool_call(fields: dict[str, str]) -> graph.ToolCall:
    name = unquoted(fields["tool"])
    return graph.ToolCall(
        name=name,
        time_s=constant(_seconds(fields["time"])),
        result_tokens=_count(fields.get("result_tokens", "0")),
        slots=None,
        retry=None,
        timeout_s=inf,
        cause=f"tool {name}",
    )


def _agent(agent: RecordedAgent) -> graph.SubAgent:
    head = agent.head
    return graph.SubAgent(
        name=unquoted(head["name"]),
        inherits=False,
        system_tokens=int(head["system_tokens"]),
        task_tokens=_count(head["task_tokens"]),
        report_tokens=_count(head.get("report_tokens", "0")),
        background="background" in head,
        body=_body(agent.steps),
    )


def _count(text: str) -> Draw:
    return constant(float(text))


def _seconds(text: str) -> float:
    return float(text.removesuffix(" s"))


def unquoted(text: str) -> str:
    """Return what a name is that `_build` may have put in quotes."""
    if not text.startswith('"'):
        return text
    return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
