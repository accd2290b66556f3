"""What a run's decode time went into, as the engine that decodes breaks it down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from agentsim.backends.base import Batch, IterationCost
from agentsim.coexec.base import Serve
from agentsim.plan import Plan
from agentsim.result import Part, TaskOutcome
from agentsim.units import to_s


@runtime_checkable
class Broken(Protocol):
    """A cost model that says where the time of an iteration goes."""

    def parts(self, batch: Batch) -> dict[str, float]:
        """Return seconds by part; they sum to `iteration_s`."""
        ...


def decode_parts(plan: Plan, tasks: Sequence[TaskOutcome]) -> dict[str, float]:
    """Return the mean decode time of a task (s) by parts, as shares of a step at the mean context.

    Empty where several engines decode, or where the one that does has no parts.
    """
    engines = [s.engine for s in plan.stages if isinstance(s, Serve) and s.does != "prefill"]
    cost = plan.engines[engines[0]] if len(engines) == 1 else None
    calls = sum(task.model_calls for task in tasks)
    if not isinstance(cost, IterationCost) or not isinstance(cost, Broken) or not calls:
        return {}
    context = sum(task.prompt_tokens + task.output_tokens / 2 for task in tasks) / calls
    step = cost.parts(Batch(1, context, min(context, cost.window_tokens or 0)))
    total, decode_s = sum(step.values()), to_s(sum(task.parts_ns[Part.DECODE] for task in tasks)) / len(tasks)
    return {name: decode_s * seconds / total for name, seconds in step.items() if seconds * decode_s}
