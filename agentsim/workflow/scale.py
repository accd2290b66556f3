"""A task with its levers moved: slower tools, longer outputs, more turns, a farther network.

Draws come from the same streams as before, so that a moved task differs from the other in nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

from agentsim.workflow import graph
from agentsim.workflow.distribution import Draw

MIDDLE = 0.5


@dataclass(frozen=True, slots=True)
class Levers:
    """Factors on what a workflow says; 1 leaves it as it is.

    `tools` is the time of tools and files, `output` the tokens that each call writes, `turns` how often the
    outermost loops go round, `network` the round trip.
    """

    tools: float = 1.0
    output: float = 1.0
    turns: float = 1.0
    network: float = 1.0


UNMOVED = Levers()


def scaled(task: graph.Task, levers: Levers) -> graph.Task:
    """Return the task with its levers moved; compactions keep their length."""
    if levers == UNMOVED:
        return task
    return task._replace(
        body=_Scale(levers).body(task.body, levers.turns),
        round_trip_s=_times(task.round_trip_s, levers.network),
    )


def levers_of(task: graph.Task) -> tuple[str, ...]:
    """Return the names of the levers that a task has."""
    kinds = {type(operation) for operation in _all(task.body)}
    there = {
        "tools": kinds & {graph.ToolCall, graph.FileAccess},
        "output": kinds & {graph.ModelCall},
        "turns": kinds & {graph.Loop},
        "network": task.round_trip_s(lambda: MIDDLE) > 0,
    }
    return tuple(name for name, found in there.items() if found)


def _all(body: tuple[Any, ...]) -> Iterator[Any]:
    for operation in body:
        yield operation
        if isinstance(operation, graph.Parallel):
            yield from operation.branches
        elif isinstance(operation, graph.Loop):
            yield from _all(operation.body)
        elif isinstance(operation, graph.FanOut):
            for agent in operation.agents:
                yield from _all(agent.body)


class _Scale:
    """Rebuilds operations; `turns` is 1 inside a loop that is longer already."""

    def __init__(self, levers: Levers) -> None:
        self.levers = levers

    def body(self, body: tuple[graph.Operation, ...], turns: float) -> tuple[graph.Operation, ...]:
        return tuple(self._operation(operation, turns) for operation in body)

    def _operation(self, operation: Any, turns: float) -> Any:
        levers = self.levers
        if isinstance(operation, graph.ModelCall):
            tokens = _whole(operation.tokens, levers.output)
            return operation._replace(
                tokens=tokens, thinking_tokens=_whole(operation.thinking_tokens, levers.output)
            )
        if isinstance(operation, graph.ToolCall):
            return operation._replace(time_s=_times(operation.time_s, levers.tools))
        if isinstance(operation, graph.FileAccess):
            return operation._replace(
                latency_s=_times(operation.latency_s, levers.tools),
                bytes_per_s=operation.bytes_per_s / levers.tools if levers.tools else inf,
            )
        if isinstance(operation, graph.Parallel):
            return graph.Parallel(tuple(self._operation(branch, 1.0) for branch in operation.branches))
        if isinstance(operation, graph.Loop):
            return operation._replace(
                times=_whole(operation.times, turns), body=self.body(operation.body, 1.0)
            )
        if isinstance(operation, graph.FanOut):
            agents = (a._replace(body=self.body(a.body, turns)) for a in operation.agents)
            return graph.FanOut(tuple(agents))
        return operation


def _times(draw: Draw, factor: float) -> Draw:
    return draw if factor == 1.0 else lambda uniform: factor * draw(uniform)


def _whole(draw: Draw, factor: float) -> Draw:
    return draw if factor == 1.0 else lambda uniform: float(round(factor * draw(uniform)))
