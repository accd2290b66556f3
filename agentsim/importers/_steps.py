"""The steps that a recorded session is written as, and their lines in a workflow file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class RecordedStep:
    """A step to be written: `fields` in braces, or `text` as it is, or steps and sub-agents inside."""

    kind: str
    fields: dict[str, str] = field(default_factory=dict)
    text: str = ""
    branches: list[RecordedStep] = field(default_factory=list)
    agents: list[RecordedAgent] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RecordedAgent:
    """A sub-agent to be written. `head` are its fields without the steps."""

    head: dict[str, str]
    steps: list[RecordedStep]


def lines_of(steps: Iterable[RecordedStep], indent: int) -> Iterator[str]:
    """Yield the lines of steps in a workflow file, `indent` columns in."""
    pad = " " * indent
    for step in steps:
        if step.agents:
            yield f"{pad}- agents:"
            for agent in step.agents:
                yield from _agent_lines(agent, indent + 4)
        elif step.branches:
            yield f"{pad}- parallel:"
            yield from lines_of(step.branches, indent + 4)
        else:
            inside = ", ".join(f"{key}: {value}" for key, value in step.fields.items())
            yield f"{pad}- {step.kind}: {step.text or f'{{{inside}}}'}"


def _agent_lines(agent: RecordedAgent, indent: int) -> Iterator[str]:
    pad = " " * indent
    for index, (key, value) in enumerate(agent.head.items()):
        yield f"{pad}{'  ' if index else '- '}{key}: {value}"
    yield f"{pad}  steps:" if agent.steps else f"{pad}  steps: []"
    yield from lines_of(agent.steps, indent + 4)
