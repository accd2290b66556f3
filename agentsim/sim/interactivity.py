"""How fast one user sees a deployment write, on one turn with most of its context cached."""

from __future__ import annotations

from dataclasses import replace

from agentsim.plan import Plan
from agentsim.sim.engine import simulate
from agentsim.units import to_s
from agentsim.workflow.graph import build_task
from agentsim.workflow.schema import Workflow

CACHED, NEW, OUTPUT = 400_000, 4_000, 400
"""Tokens of the turn that NVIDIA's comparison of the three patterns takes (Hot Chips 2026)."""


def interactivity(
    plan: Plan, cached: int = CACHED, new: int = NEW, output: int = OUTPUT, *, with_ttft: bool = False
) -> float:
    """Return the tokens/s of one turn on a plan's deployment, alone on it; whatever the plan's task is.

    Tokens after the first over the time after the first; or, `with_ttft`, all tokens over the whole turn.
    Every request yields the average of a speculative step. Precondition: output >= 2.
    """
    call = {"tokens": output, "prompt_tokens": cached + new, "cached_tokens": cached}
    task = build_task(Workflow.model_validate({"name": "one turn", "steps": [{"generate": call}]}))
    [turn] = simulate(replace(plan, task=task, pace_sigma=0.0)).turns
    if with_ttft:
        return output / to_s(turn.end_ns - turn.start_ns)
    return (output - 1) / to_s(turn.decode_ns)
