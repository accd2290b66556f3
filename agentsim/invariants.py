"""The laws that every result obeys. Each is one function over a `Result`; a breach is a bug.

They run after every simulation and in the tests. What needs two runs (L5 same seed, same bytes; L7 no
faster than with infinite resources; L8 more tokens never cost less) is in the tests alone; L3 and L9
are checked where time passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentsim.errors import InvariantViolation
from agentsim.result import Result, Turn


def check(result: Result) -> Result:
    """Return the result unchanged, or raise `InvariantViolation` with the law and the breach."""
    for law in LAWS:
        for breach in law(result):
            raise InvariantViolation(f"{law.__name__}: {breach}")
    return result


def l1_calls_are_conserved(result: Result) -> Iterator[str]:
    """Every model call that started has finished, and the tasks made all of them."""
    if result.calls_started != result.calls_finished:
        yield f"{result.calls_started} calls started, {result.calls_finished} finished"
    made = sum(task.model_calls for task in result.tasks)
    if made != result.calls_started:
        yield f"{result.calls_started} calls started, the tasks count {made}"


def l2_causes_end_first(result: Result) -> Iterator[str]:
    """No span starts before the spans that caused it have ended."""
    for span in result.spans:
        for cause in span.causes:
            if result.spans[cause].end_ns > span.start_ns:
                yield f"span {span.id} starts at {span.start_ns}, its cause {cause} ends later"


def l3_time_moves_forward(result: Result) -> Iterator[str]:
    """Nothing ends before it starts."""
    for span in result.spans:
        if span.end_ns < span.start_ns:
            yield f"span {span.id} ends before it starts"
    for task in result.tasks:
        if task.end_ns < task.start_ns:
            yield "a task ends before it starts"


def l4_capacity_is_kept(result: Result) -> Iterator[str]:
    """No resource holds more than its capacity, KV cache included."""
    for resource in result.resources:
        if resource.peak > resource.capacity * (1 + 1e-12):
            yield f"{resource.name} held {resource.peak} of {resource.capacity}"


def l6_parts_sum_to_the_task(result: Result) -> Iterator[str]:
    """The parts of the critical path sum to the elapsed time, in nanoseconds, and none is negative."""
    for task in result.tasks:
        if sum(task.parts_ns) != task.end_ns - task.start_ns:
            yield f"parts sum to {sum(task.parts_ns)} ns of {task.end_ns - task.start_ns}"
        if min(task.parts_ns) < 0:
            yield f"a part is negative: {task.parts_ns}"


def l6_critical_spans_sum_to_the_tasks(result: Result) -> Iterator[str]:
    """The critical spans fill the elapsed time of all tasks without gap or overlap."""
    if result.spans:
        critical = sum(span.end_ns - span.start_ns for span in result.spans if span.critical)
        elapsed = sum(task.end_ns - task.start_ns for task in result.tasks)
        if critical != elapsed:
            yield f"critical spans sum to {critical} ns of {elapsed}"


def l10_every_number_has_a_source(result: Result) -> Iterator[str]:
    """Every datum that a simulation used names where it comes from."""
    if result.origin == "simulated" and not result.sources:
        yield "no sources are listed"
    for source in result.sources:
        if not source.text:
            yield f"{source.name} has no source"


def l11_tokens_add_up(result: Result) -> Iterator[str]:
    """A turn's prompt is the context before plus what was added; its output joins what follows."""
    last: dict[str, int] = {}
    for turn in sorted(result.turns, key=lambda t: (t.start_ns, t.index)):
        yield from _token_breaches(turn)
        before = last.get(turn.lane)
        if before is not None and before != turn.context_before:
            yield f"turn {turn.index} starts from {turn.context_before} tokens, not {before}"
        last[turn.lane] = turn.context_after


def _token_breaches(turn: Turn) -> Iterator[str]:
    if turn.prompt != turn.context_before + turn.added:
        yield f"turn {turn.index}: prompt {turn.prompt} is not {turn.context_before} + {turn.added}"
    if not 0 <= turn.cached <= turn.prompt:
        yield f"turn {turn.index}: {turn.cached} of {turn.prompt} prompt tokens cached"
    if not turn.compaction and turn.context_after != turn.prompt + turn.output - turn.thinking:
        yield f"turn {turn.index}: {turn.context_after} tokens after it"


LAWS: tuple[Callable[[Result], Iterator[str]], ...] = (
    l1_calls_are_conserved,
    l2_causes_end_first,
    l3_time_moves_forward,
    l4_capacity_is_kept,
    l6_parts_sum_to_the_task,
    l6_critical_spans_sum_to_the_tasks,
    l10_every_number_has_a_source,
    l11_tokens_add_up,
)
