"""OTLP/JSON spans with OpenTelemetry's GenAI attributes, so that tracing tools open a simulated run.

A trace per task: `invoke_agent` spans for agents, `chat` spans for model calls, `execute_tool` spans for
tool calls and file reads. A wait for a human is the tool `ask_human`. The importer `otel` reads it back.

Attributes: OpenTelemetry semantic conventions 1.41, gen-ai (status: development). Those that they do not
have begin with `agentsim.`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from agentsim.exports._events import Event, Lane, Task, tasks_of
from agentsim.exports.base import Export
from agentsim.result import Result
from agentsim.units import to_s

EPOCH_NS = 1_767_225_600 * 10**9
"""The start of 2026: simulated time has no date, and tracing tools refuse the one of zero."""
ASK_HUMAN = "ask_human"
_INTERNAL, _CLIENT = 1, 3
_HEAD = (
    '{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"agentsim"}}'
    "]},"
)


def render(result: Result) -> Iterator[str]:
    """Yield the pieces of `otel.json`: one export with every span."""
    yield _HEAD
    yield '"scopeSpans":[{"scope":{"name":"agentsim"},"spans":[\n'
    comma = ""
    for task in tasks_of(result):
        for span in _Trace(result, task).spans():
            yield comma + json.dumps(span, separators=(",", ":"))
            comma = ",\n"
    yield "\n]}]}]}\n"


class _Trace:
    """The spans of one task; ids follow from the run and the place of a span in it."""

    def __init__(self, result: Result, task: Task) -> None:
        self.result, self.task = result, task
        self.session = f"{result.workflow} on {result.deployment}, seed {result.seed}, task {task.name}"
        self.trace = sha256(self.session.encode()).hexdigest()[:32]
        self.made = 0

    def spans(self) -> Iterator[dict[str, Any]]:
        agents: dict[str | None, str] = {}
        for lane in self.task.lanes:
            agent = self._agent(lane, agents.get(lane.parent, ""))
            agents[lane.name] = agent["spanId"]
            yield agent
            for event in lane.events:
                if event.kind != "idle":
                    yield self._event(event, agent["spanId"])

    def _agent(self, lane: Lane, parent: str) -> dict[str, Any]:
        inside = [one for one in self.task.lanes if f"{one.name}/".startswith(f"{lane.name}/")]
        start_ns, end_ns = min(one.start_ns for one in inside), max(one.end_ns for one in inside)
        facts = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": lane.label}
        return self._span(f"invoke_agent {lane.label}", _INTERNAL, parent, start_ns, end_ns, facts)

    def _event(self, event: Event, parent: str) -> dict[str, Any]:
        if event.turn is not None:
            name, kind, facts = f"chat {self.result.deployment}", _CLIENT, self._call(event)
        else:
            tool = ASK_HUMAN if event.kind == "human" else event.name
            facts = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
            name, kind = f"execute_tool {tool}", _INTERNAL
        return self._span(name, kind, parent, event.start_ns, event.end_ns, facts)

    def _call(self, event: Event) -> dict[str, Any]:
        turn = event.turn
        assert turn is not None
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "agentsim",
            "gen_ai.request.model": self.result.deployment,
            "gen_ai.usage.input_tokens": turn.prompt,
            "gen_ai.usage.cache_read.input_tokens": turn.cached,
            "gen_ai.usage.output_tokens": turn.output,
            "gen_ai.usage.reasoning.output_tokens": turn.thinking,
            "gen_ai.response.time_to_first_chunk": to_s(turn.ttft_ns),
            "agentsim.turn": turn.index,
            "agentsim.compaction": turn.compaction,
        }

    def _span(
        self, name: str, kind: int, parent: str, start_ns: int, end_ns: int, facts: dict[str, Any]
    ) -> dict[str, Any]:
        self.made += 1
        facts = {**facts, "gen_ai.conversation.id": self.session}
        return {
            "traceId": self.trace,
            "spanId": sha256(f"{self.trace} {self.made}".encode()).hexdigest()[:16],
            "parentSpanId": parent,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(EPOCH_NS + start_ns),
            "endTimeUnixNano": str(EPOCH_NS + end_ns),
            "attributes": [{"key": key, "value": _typed(value)} for key, value in facts.items()],
        }


def _typed(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


PLUGIN = Export("otel.json", _HEAD, render)
