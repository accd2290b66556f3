"""Whether a session can be written as a workflow that is read again, told from its figures alone.

Parsing what was just written takes most of the time of an import. Only figures beyond what a workflow
may hold can be wrong in it, and such sessions are rare: they are written, parsed and judged as any file.
"""

from __future__ import annotations

from agentsim.importers._build import call_step
from agentsim.importers._steps import lines_of
from agentsim.recorded import RecordedCall, RecordedEvent, RecordedLane, RecordedSession, RecordedWait
from agentsim.units import MAX_SECONDS, MAX_TOKENS
from agentsim.workflow.load import MAX_CALLS

STEPS_OF_EVENT = 8
"""At the most: an event and the time before it, each up to three waits; a user's words; what joined."""


def least_bytes(session: RecordedSession) -> int:
    """Return what a session takes as a workflow file at the least: its model calls alone."""
    return sum(map(len, lines_of(map(call_step, session.calls), 2)))


def is_readable(session: RecordedSession) -> bool:
    """Tell whether a session's workflow is surely valid; False says that only reading it can tell."""
    events = sum(len(lane.events) for lane in session.lanes)
    return (
        events > 0
        and STEPS_OF_EVENT * (events + len(session.lanes)) <= MAX_CALLS
        and 0 <= session.system_tokens <= MAX_TOKENS
        and all(_is_plain(lane, session.lanes[0].name) for lane in session.lanes)
    )


def _is_plain(lane: RecordedLane, main: str) -> bool:
    """Tell whether a lane is no sub-agent of a sub-agent, and its figures are in range."""
    return lane.parent in (None, main) and all(map(_is_in_range, lane.events))


def _is_in_range(event: RecordedEvent) -> bool:
    if not (abs(event.start_s) <= MAX_SECONDS and 0 <= event.duration_s <= MAX_SECONDS):
        return False
    if isinstance(event, RecordedCall):
        return _agree(event)
    return isinstance(event, RecordedWait) or 0 <= event.summary_tokens <= MAX_TOKENS


def _agree(call: RecordedCall) -> bool:
    return (
        0 <= call.cached_tokens <= call.prompt_tokens <= MAX_TOKENS
        and 0 <= call.thinking_tokens <= call.output_tokens <= MAX_TOKENS
        and (call.ttft_s is None or 0 <= call.ttft_s <= MAX_SECONDS)
    )
