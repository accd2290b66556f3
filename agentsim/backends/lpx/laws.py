"""The laws of a static schedule, each one function; a breach is a bug in the compiler, never in its input."""

from __future__ import annotations

from itertools import pairwise

from agentsim.backends.lpx.schedule import START, Schedule
from agentsim.errors import InvariantViolation


def check_schedule(schedule: Schedule) -> None:
    """Check all laws; raises `InvariantViolation` with the first that does not hold."""
    for law in (nothing_used_twice, nothing_too_early, all_received, no_shorter_than_its_parts, parts_sum):
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
    """Nothing is consumed before it is there, or before what made it has ended."""
    for event in schedule.events:
        needs = event.needs
        _require(event.start >= needs.time, f"{event.label} starts at {event.start} ps without operands")
        if needs.event != START:
            made = schedule.events[needs.event]
            _require(needs.time >= made.end, f"{event.label} uses {made.label} before it is made")


def all_received(schedule: Schedule) -> None:
    """As many vectors are received as are sent."""
    sent = sum(event.senders * event.ports * event.vectors for event in schedule.events)
    _require(sent == schedule.received_vectors, f"{sent} vectors sent, {schedule.received_vectors} received")


def no_shorter_than_its_parts(schedule: Schedule) -> None:
    """A schedule lasts as long as each of its units works, and to the end of the last event."""
    longest = max(schedule.busy_ps().values())
    _require(schedule.makespan_ps >= longest, f"{longest} ps of work in {schedule.makespan_ps} ps")
    end = max((event.end for event in schedule.events), default=0)
    _require(schedule.makespan_ps >= end, f"an event ends at {end} ps, after the schedule")


def parts_sum(schedule: Schedule) -> None:
    """The critical path's parts sum to the whole, exactly; none is negative."""
    parts = schedule.parts_ps
    _require(sum(parts.values()) == schedule.makespan_ps, f"parts {parts} do not sum to the makespan")
    _require(min(parts.values()) >= 0, f"a part is negative: {parts}")


def _require(holds: bool, breach: str) -> None:
    if not holds:
        raise InvariantViolation(f"static schedule: {breach}")
