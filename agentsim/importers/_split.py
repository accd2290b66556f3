"""Where the observed time of a recorded session went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import add

from agentsim import units
from agentsim.importers._build import children_of, gaps_of, groups_of, stretches_of
from agentsim.recorded import RecordedCompaction, RecordedSession, RecordedWait


@dataclass(frozen=True, slots=True)
class Split:
    """Where the observed time went; the parts sum to `elapsed_s`.

    What overlaps counts once, as the first that applies of: `model_s` and `tool_s` of the main agent
    (tools as far as no sub-agent was awaited meanwhile), the sub-agents' two, `human_s`. `residual_s` is
    what the record does not explain. `measured`, `inferred` and `absent` count the model calls by how
    their durations are known.
    """

    elapsed_s: float
    model_s: float
    tool_s: float
    subagent_model_s: float
    subagent_tool_s: float
    human_s: float
    residual_s: float
    measured: int
    inferred: int
    absent: int
    odd: Mapping[str, int]


_MODEL, _TOOL, _SUB_MODEL, _SUB_TOOL, _HUMAN, _NOTHING = range(6)
_Stretch = tuple[float, float, int]
_PARTS = {"tool": _TOOL, "human": _HUMAN, "harness": _NOTHING}


def observed_split(session: RecordedSession) -> Split:
    """Return where the recorded time went; counted in whole nanoseconds, so that nothing is lost."""
    parts = of_one_agent(session) or _swept(_marked(session))
    timing = Counter(call.timing for call in session.calls)
    model, tool, sub_model, sub_tool, human, rest = (units.to_s(part) for part in parts)
    known = timing["measured"], timing["inferred"], timing["absent"]
    return Split(
        units.to_s(sum(parts)), model, tool, sub_model, sub_tool, human, rest, *known, dict(session.odd)
    )


def of_one_agent(session: RecordedSession) -> list[int] | None:
    """Return the parts where there is but one agent, in little room; None for any other session.

    What overlaps is swept, and what stands alone only counted: most agents do one thing after another.
    """
    if len(session.lanes) > 1:
        return None
    parts, together, until = [0] * 6, list[_Stretch](), None
    for event in session.lanes[0].events:
        if isinstance(event, RecordedCompaction):
            continue  # it is part of what nothing else explains
        start, end = units.to_ns(event.start_s), units.to_ns(event.end_s)
        if until is None or start >= until:
            _count(together, parts)
            parts[_NOTHING] += 0 if until is None else start - until
            together, until = [], end
        if end < start or (together and event.start_s < together[-1][0]):
            return None
        part = _PARTS[event.kind] if isinstance(event, RecordedWait) else _MODEL
        together.append((event.start_s, event.end_s, part))
        until = max(until, end)
    _count(together, parts)
    return parts


def _count(together: list[_Stretch], parts: list[int]) -> None:
    if len(together) == 1:
        start_s, end_s, part = together[0]
        parts[part] += units.to_ns(end_s) - units.to_ns(start_s)
    elif together:
        parts[:] = map(add, parts, _swept(together))


def _marked(session: RecordedSession) -> Iterator[_Stretch]:
    """Yield (start, end, part) of every event; waits of the main agent without awaited sub-agents."""
    children = children_of(session)
    for gap in gaps_of(session.lanes[0], children):
        if gap.before is not None:
            yield gap.before.start_s, gap.before.end_s, _MODEL
        for stretch in stretches_of(gap.waits, groups_of(gap, children)):
            yield from ((p.start_s, p.end_s, _part(p.wait, _TOOL)) for p in stretch)
    for lane in session.lanes[1:]:
        yield from ((call.start_s, call.end_s, _SUB_MODEL) for call in lane.calls)
        waits = (event for event in lane.events if isinstance(event, RecordedWait))
        yield from ((wait.start_s, wait.end_s, _part(wait, _SUB_TOOL)) for wait in waits)


def _part(wait: RecordedWait, tool: int) -> int:
    return tool if wait.kind == "tool" else _PARTS[wait.kind]


def _swept(stretches: Iterable[_Stretch]) -> list[int]:
    """Return nanoseconds by part, each instant counted for the first part that is going on."""
    edges = sorted(
        (units.to_ns(at_s), change, part)
        for start_s, end_s, part in stretches
        for at_s, change in ((start_s, 1), (end_s, -1))
    )
    parts, going, before = [0] * 6, [0] * 6, edges[0][0] if edges else 0
    for at, change, part in edges:
        parts[next((i for i, count in enumerate(going) if count > 0), _NOTHING)] += at - before
        going[part], before = going[part] + change, at
    return parts
