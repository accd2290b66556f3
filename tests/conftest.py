"""What several test files build on: workflows from plain data, made-up services, plans."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import HealthCheck, settings

from agentsim.backends.base import CostModel
from agentsim.backends.endpoint import EndpointCost
from agentsim.compile import compile_plan
from agentsim.plan import Plan
from agentsim.workflow.graph import build_task
from agentsim.workflow.load import check_document
from agentsim.workflow.schema import Workflow
from agentsim.yaml_file import Document

settings.register_profile(
    "agentsim", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("agentsim")


def workflow(*steps: dict[str, Any], **sections: Any) -> Workflow:
    """Return the workflow of these steps, checked as a file would be."""
    data = {"name": "made", "steps": list(steps), **sections}
    return check_document(Document("made.yaml", data, {}))


def endpoint(
    fixed_s: float = 0.0,
    per_uncached_token_s: float = 0.0,
    per_cached_token_s: float = 0.0,
    tokens_per_s: float = 100.0,
    cache_lifetime_s: float | None = None,
) -> EndpointCost:
    """Return a made-up service with one decode speed."""
    return EndpointCost(
        fixed_s, per_uncached_token_s, per_cached_token_s, (0,), (tokens_per_s,), cache_lifetime_s
    )


def plan_of(task: Workflow, cost: CostModel | None = None) -> Plan:
    """Return the plan of a workflow on a cost model that no catalog knows."""
    return replace(
        _yardstick(),
        task=build_task(task),
        deployment="made",
        title="a made-up service",
        engines={"main": cost or endpoint()},
        limit_tokens=task.context.limit_tokens,
    )


@cache
def _yardstick() -> Plan:
    return compile_plan(workflow({"user": {"tokens": 1}}), "endpoint-100")
