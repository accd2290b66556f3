"""Sessions that were forked or resumed into another file, with all that went before copied into it.

Two sessions that begin with the same calls, to the token and to the millisecond, share a history. Of the
one that is read later only what is its own is kept, so that no call of a folder counts twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agentsim.recorded import RecordedLane, RecordedSession

COPIED = "answer copied from the session that this one goes on from"
LEAST_CALLS = 2
"""So many timed calls are alike in a history and not by chance."""
REMEMBERED = 10**6
"""So many beginnings are remembered: 60 MB of them."""


class Histories:
    """What the main agents of all sessions so far began with."""

    def __init__(self) -> None:
        self._beginnings: set[int] = set()

    def own_part(self, session: RecordedSession) -> RecordedSession | None:
        """Return what of a session no other told before, None where that is nothing; remember all of it."""
        beginnings = list(_beginnings(session))
        known = self._known(beginnings)
        if len(self._beginnings) < REMEMBERED:
            self._beginnings.update(beginnings[known:])
        if known < LEAST_CALLS:
            return session
        return _after(session, known) if known < sum(1 for _ in session.lanes[0].calls) else None

    def _known(self, beginnings: list[int]) -> int:
        """Return how many calls from the first on another session began with, too."""
        for count, beginning in enumerate(beginnings):
            if beginning not in self._beginnings:
                return count
        return len(beginnings)


def _beginnings(session: RecordedSession) -> Iterator[int]:
    """Yield a number for the first call, for the first two, and so on up to one without a time."""
    so_far = hash(session.format)
    for call in session.lanes[0].calls:
        if not call.duration_s:
            return
        times = round(call.start_s, 3), round(call.duration_s, 3)
        so_far = hash((so_far, *times, call.prompt_tokens, call.cached_tokens, call.output_tokens))
        yield so_far


def _after(session: RecordedSession, calls: int) -> RecordedSession:
    """Return a session from the call on that follows its first ones, its clock started there."""
    cut_s = [call.start_s for call in session.lanes[0].calls][calls]
    lanes = [_lane_after(lane, cut_s) for lane in session.lanes]
    kept = tuple(lane for lane in lanes if lane.parent is None or lane.events)
    return replace(session, lanes=kept, odd={**session.odd, COPIED: calls})


def _lane_after(lane: RecordedLane, cut_s: float) -> RecordedLane:
    later = (event for event in lane.events if event.start_s >= cut_s)
    return replace(lane, events=tuple(replace(event, start_s=event.start_s - cut_s) for event in later))
