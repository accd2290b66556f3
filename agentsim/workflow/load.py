"""Reads a workflow file: YAML, overrides, schema, then the checks that span several steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agentsim import yaml_file
from agentsim.errors import WorkflowError, suggestion
from agentsim.workflow import schema
from agentsim.workflow.distribution import largest
from agentsim.yaml_file import Document, Path

MAX_CALLS = 1_000_000
"""Model and tool calls in one task, sub-agents included; over it the file is refused."""


def load_workflow(path: str, overrides: Sequence[str] = ()) -> schema.Workflow:
    """Return a checked workflow; `overrides` are `a.b=value` pairs applied before the check.

    Raises `WorkflowError` with file, line and YAML path.
    """
    return check_document(yaml_file.read(path, WorkflowError), overrides)


def check_document(document: Document, overrides: Sequence[str] = ()) -> schema.Workflow:
    """Return the workflow that a document describes, after `overrides`."""
    document = yaml_file.with_overrides(document, overrides, WorkflowError)
    workflow = yaml_file.validate(schema.Workflow, document, WorkflowError)
    _Checks(workflow, document).run()
    return workflow


class _Checks:
    """What a schema cannot say: names that must exist, sizes that must end."""

    def __init__(self, workflow: schema.Workflow, document: Document) -> None:
        self.workflow, self.document = workflow, document

    def run(self) -> None:
        context, path = self.workflow.context, ("context",)
        if context.compaction and context.limit_tokens is None:
            self._fail((*path, "compaction"), "compaction needs limit_tokens: the window it is a share of")
        if context.limit_tokens is not None and context.system_tokens >= context.limit_tokens:
            self._fail((*path, "system_tokens"), "system_tokens leave no room below limit_tokens")
        if context.compaction and context.limit_tokens is not None:
            kept = context.system_tokens + context.compaction.summary_tokens
            if kept >= context.limit_tokens:
                self._fail(
                    (*path, "compaction"), "system_tokens and summary_tokens leave no room below limit_tokens"
                )
        if not self.workflow.steps:
            self._fail(("steps",), "a task needs at least one step")
        self._steps(self.workflow.steps, ("steps",), 1.0, set())

    def _fail(self, path: Path, problem: str) -> None:
        raise WorkflowError(self.document.at(path) + problem)

    def _steps(self, steps: Iterable[Any], path: Path, times: float, background: set[str]) -> float:
        """Check steps that run `times` times; return how many calls they make in all."""
        calls = 0.0
        for index, step in enumerate(steps):
            here = (*path, index, step.kind)
            calls += self._step(step.kind, step.body, here, times, background)
            if calls > MAX_CALLS:
                self._fail(here, f"{calls:,.0f} calls; at most {MAX_CALLS:,} are simulated in one task")
        return calls

    def _step(self, kind: str, step: Any, path: Path, times: float, background: set[str]) -> float:
        if kind == "repeat":
            times *= max(largest(step.times), 0.0)
            return times + self._steps(step.steps, (*path, "steps"), times, background)
        if kind == "parallel":
            return self._steps(step, path, times, background)
        if kind == "agents":
            return self._agents(step, path, times, background)
        if kind == "call":
            self._tool(step, path)
        if kind in ("read_file", "write_file"):
            return times * self._files(kind, step, path)
        if kind == "join":
            self._join(step, path, background)
        return times

    def _agents(
        self, agents: Sequence[schema.Agent], path: Path, times: float, background: set[str]
    ) -> float:
        calls = 0.0
        for index, agent in enumerate(agents):
            here = (*path, index)
            calls += times * agent.count
            calls += self._steps(agent.steps, (*here, "steps"), times * agent.count, set())
            if calls > MAX_CALLS:
                self._fail(here, f"{calls:,.0f} calls; at most {MAX_CALLS:,} are simulated in one task")
            if agent.background:
                background.add(agent.name)
        return calls

    def _files(self, kind: str, step: Any, path: Path) -> float:
        if self.workflow.storage is None:
            self._fail(path, f"{kind} needs a storage section (latency, bandwidth) in the workflow")
        return max(largest(step.count), 1.0)

    def _tool(self, call: schema.Call, path: Path) -> None:
        if call.tool in self.workflow.tools or call.time is not None:
            return
        known = list(self.workflow.tools)
        hint = suggestion(call.tool, known) or "."
        listed = f" Known: {', '.join(known)}" if known else " The workflow has no tools section"
        self._fail(path, f"unknown tool '{call.tool}'{hint}{listed}, or give its time here")

    def _join(self, names: tuple[str, ...], path: Path, background: set[str]) -> None:
        for index, name in enumerate(names):
            if name not in background:
                hint = suggestion(name, background) or "."
                self._fail((*path, index), f"no background sub-agent '{name}' is running here{hint}")
