"""Calls of one agent that ran beside another of its own, as lanes of their own: steps of a lane wait.

A request that was sent again, a rewound answer or a completion in the background overlaps the agent's call.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count

from agentsim.recorded import RecordedCall, RecordedEvent, RecordedLane, RecordedSession

NAME = "beside"


def side_by_side(session: RecordedSession, least_s: float) -> RecordedSession:
    """Return a session in which no call of a lane begins `least_s` and more before another of it ends."""
    names = {lane.name for lane in session.lanes}
    free = (name for n in count(1) if (name := f"{NAME} {n}") not in names)
    lanes: list[RecordedLane] = []
    moved: list[RecordedLane] = []
    for lane in session.lanes:
        kept, apart = _divided(lane, least_s)
        lanes.append(lane if not apart else replace(lane, events=tuple(kept)))
        moved += [RecordedLane(next(free), lane.name, (call,)) for call in apart]
    return session if not moved else replace(session, lanes=(*lanes, *moved))


def _divided(lane: RecordedLane, least_s: float) -> tuple[list[RecordedEvent], list[RecordedCall]]:
    kept: list[RecordedEvent] = []
    apart: list[RecordedCall] = []
    until_s = -math.inf
    for event in lane.events:
        if not isinstance(event, RecordedCall):
            kept.append(event)
        elif event.start_s < until_s - least_s:
            apart.append(event)
        else:
            kept.append(event)
            until_s = event.end_s
    return kept, apart
