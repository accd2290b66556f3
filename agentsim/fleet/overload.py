"""Whether a fleet's backlog grows without bound: a test on the agents alive while others arrive.

Arrivals last for some time; the mean number of agents alive in its last third is held against that in its
middle third. What is served keeps it level, but for chance; where more arrive than are served, it grows by
what is left over. The first third, in which the deployment fills up, counts for nothing.

Why so: the task times of late agents say little, since they are short again once nobody arrives any more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentsim.result import TaskOutcome
from agentsim.units import to_s

LEAST_GROWTH = 0.05
"""A backlog grows where over this share of the agents that arrive is left over ..."""
LEAST_DEVIATIONS = 2.5
"""... and that is more than so many standard deviations of a count of so many agents."""
LEAST_SPAN = 5.0
"""Arrivals must last so many times the longest task alone: until then the deployment is still filling up."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The verdict, and the mean number of agents alive in the middle and the last third of the arrivals.

    `untold` where the arrivals are over too soon; `enough_agents` would tell.
    """

    verdict: Literal["grows", "holds", "untold"]
    middle: float
    last: float
    enough_agents: int


def backlog_of(tasks: Sequence[TaskOutcome], alone_s: float) -> Backlog | None:
    """Judge tasks that arrived by themselves; `alone_s` is what a long one takes with nobody beside it.

    None where all arrived at once.
    """
    starts = [task.start_ns for task in tasks]
    first, span = min(starts), max(starts) - min(starts)
    if not span:
        return None
    thirds = [first + span * third // 3 for third in range(4)]
    middle, last = (_alive(tasks, thirds[i], thirds[i + 1]) for i in (1, 2))
    enough = math.ceil(len(tasks) * LEAST_SPAN * alone_s / to_s(span))
    if to_s(span) < LEAST_SPAN * alone_s:
        return Backlog("untold", middle, last, enough)
    left_over = (last - middle) / (len(tasks) / 3)
    grows = left_over > LEAST_GROWTH and last - middle > LEAST_DEVIATIONS * math.sqrt(last)
    return Backlog("grows" if grows else "holds", middle, last, enough)


def _alive(tasks: Sequence[TaskOutcome], start_ns: int, end_ns: int) -> float:
    """Return the mean number of agents that are alive between two moments."""
    inside = sum(max(min(t.end_ns, end_ns) - max(t.start_ns, start_ns), 0) for t in tasks)
    return inside / max(end_ns - start_ns, 1)
