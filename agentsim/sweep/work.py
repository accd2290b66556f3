"""A point of a sweep becomes a row of its table: compile, run, summarise. Pure, so it can run anywhere."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agentsim.compile import compile_plan
from agentsim.errors import AgentsimError, InfeasibleError
from agentsim.plan import Plan
from agentsim.sim.engine import simulate
from agentsim.specs import catalog
from agentsim.summary import Summary, SummaryBuilder
from agentsim.sweep.columns import measured, without_result
from agentsim.sweep.space import Space
from agentsim.workflow.graph import build_task
from agentsim.workflow.load import check_document
from agentsim.workflow.schema import Workflow
from agentsim.yaml_file import Document

AXIS = "deployment"
"""The axis that is not a field but what the task runs on."""
KEPT = 64
"""Plans that are kept at once."""
Changes = Mapping[str, Any]


@dataclass(frozen=True)
class Work:
    """What computes any point of a sweep. `near` is the folder that paths are relative to.

    Plans are kept and used again for another task with the same window: compiling a rack takes longer
    than simulating most tasks.
    """

    workflow: Document
    space: Space
    deployment: str | None
    fixed: Changes
    seeds: range
    near: str
    _plans: dict[tuple[Any, ...], Plan] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": {}}

    def __call__(self, index: int) -> dict[str, Any]:
        """Return the row of one point: its figures, or why it has none."""
        try:
            return measured(self.summary(self.space.point(index)))
        except InfeasibleError as answer:
            return without_result("infeasible", self._told(answer))
        except AgentsimError as refusal:
            return without_result("invalid", self._told(refusal))
        except Exception as bug:
            return without_result("error", f"{type(bug).__name__}: {self._told(bug)}")

    def _told(self, error: Exception) -> str:
        text = str(error).removeprefix("--set ")
        return text.replace(os.path.join(self.near, ""), "") if self.near else text

    def summary(self, point: Changes) -> Summary:
        """Run the task with a point's values; raises as compiling and simulating do."""
        workflow = self.changed_workflow(point)
        plan = self._plan(workflow, self.deployment_at(point), deployment_changes({**self.fixed, **point}))
        builder = SummaryBuilder()
        for seed in self.seeds:
            builder.add(simulate(plan, seed))
        return builder.build()

    def changed_workflow(self, point: Changes) -> Workflow:
        """Return the workflow with a point's values in it."""
        return check_document(self.workflow, workflow_changes({**self.fixed, **point}))

    def deployment_at(self, point: Changes) -> str:
        """Return what the task runs on at a point, as `--on` takes it."""
        return reference(str(point.get(AXIS, self.deployment)), self.near)

    def _plan(self, workflow: Workflow, deployment: str, changes: list[str]) -> Plan:
        context = workflow.context
        key = (deployment, *changes, context.system_tokens, context.limit_tokens)
        if deployment == catalog.RECORDED:
            return compile_plan(workflow, deployment, changes)
        if key not in self._plans:
            if len(self._plans) >= KEPT:
                self._plans.clear()
            self._plans[key] = compile_plan(workflow, deployment, changes)
        return replace(self._plans[key], task=build_task(workflow))


def workflow_changes(point: Changes) -> list[str]:
    """Return the values that are of the workflow's fields, as `--set` takes them."""
    return [f"{path}={_text(value)}" for path, value in point.items() if not _of_deployment(path)]


def deployment_changes(point: Changes) -> list[str]:
    """Return the values that are of the deployment's fields, without the word before them."""
    theirs = {path: value for path, value in point.items() if path.startswith(catalog.DEPLOYMENT)}
    return [f"{path.removeprefix(catalog.DEPLOYMENT)}={_text(value)}" for path, value in theirs.items()]


def _of_deployment(path: str) -> bool:
    return path == AXIS or path.startswith(catalog.DEPLOYMENT)


def _text(value: Any) -> str:
    return json.dumps(value)  # JSON is YAML


def reference(name: str, near: str) -> str:
    """Return what a file in `near` means by a deployment: a name, or a path beside the file."""
    path, mark, entry = name.partition("#")
    if path.endswith((".yaml", ".yml")) or os.sep in path:
        return os.path.join(near, path) + mark + entry
    return name
