"""The laws of a static schedule, each one function; a breach is a bug in the compiler, never in its input."""

from __future__ import annotations

from itertools import pairwise

from agentsim.backends.lpx.schedule import Schedule
from agentsim.errors import InvariantViolation


def check_schedule(schedule: Schedule) -> None:
    """Check all laws; raises `InvariantViolation` with the first that does not hold."""
    for law in LAWS:
        law(schedule)


def nothing_used_twice(schedule: Schedule) -> None:
    """No unit, port or SRAM does two things at once."""
    units: dict[str, list[tuple[int, int]]] = {"sram": []}
    for event in schedule.events:
        units.setdefault(event.unit, []).append((event.start, event.end))
        if event.sram_ps:
            units["sram"].append((event.start, event.start + event.sram_ps))
    for unit, spans in units.items():
        for (_, end), (start, _) in pairwise(sorted(spans)):
            _require(start >= end, f"{unit} is used twice at {start} ps")


def nothing_too_early(schedule: Schedule) -> None:
    """Nothing starts before all its operands are there, as the events that made them say."""
    for index, event in enumerate(schedule.events):
        needs = event.needs
        _require(event.start >= needs.time, f"{event.label} starts at {event.start} ps without operands")
        for producer in event.consumed():
            made = schedule.events[producer]
            there = made.end + made.lag_ps
            ordered = producer < index
            _require(ordered and event.start >= there, f"{event.label} uses {made.label} before it is made")


def nothing_unused(schedule: Schedule) -> None:
    """All that is made is consumed later, or is a result: an operand that is forgotten is found here."""
    used = {producer for event in schedule.events for producer in event.consumed()}
    for block in schedule.results:
        used |= block.producers()
    for index, event in enumerate(schedule.events):
        _require(index in used, f"{event.label} is made at {event.end} ps and never used")


def all_received(schedule: Schedule) -> None:
    """The vectors that are sent are those that the sizes of the tensors ask for."""
    sent = sum(event.senders * event.ports * event.vectors for event in schedule.events)
    _require(sent == schedule.received_vectors, f"{sent} vectors sent, {schedule.received_vectors} received")


def no_shorter_than_its_parts(schedule: Schedule) -> None:
    """A schedule lasts to the end of the last event, and until all its results are there."""
    end = max((event.end for event in schedule.events), default=0)
    _require(schedule.makespan_ps >= end, f"an event ends at {end} ps, after the schedule")
    for producer in set[int]().union(*(block.producers() for block in schedule.results)):
        made = schedule.events[producer]
        there = made.end + made.lag_ps
        _require(schedule.makespan_ps >= there, f"{made.label} is there at {there} ps, after it is complete")


def parts_sum(schedule: Schedule) -> None:
    """The critical path's parts sum to the whole, exactly; none is negative."""
    parts = schedule.parts_ps
    _require(sum(parts.values()) == schedule.makespan_ps, f"parts {parts} do not sum to the makespan")
    _require(min(parts.values()) >= 0, f"a part is negative: {parts}")


LAWS = (
    nothing_used_twice,
    nothing_too_early,
    nothing_unused,
    all_received,
    no_shorter_than_its_parts,
    parts_sum,
)


def _require(holds: bool, breach: str) -> None:
    if not holds:
        raise InvariantViolation(f"static schedule: {breach}")
