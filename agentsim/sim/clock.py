"""The simulation's clock: integer nanoseconds from zero, never falling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simpy import Environment, Event

_LAST = 2
"""Behind SimPy's own priorities, urgent (0) and normal (1)."""


class Clock(Environment):
    """SimPy's environment with a clock that counts whole nanoseconds."""

    def __init__(self) -> None:
        super().__init__(0)

    @property
    def now(self) -> int:
        """Nanoseconds since the start."""
        return self._now  # type: ignore[return-value]  # every delay is an int

    def at_the_end_of(self, delay_ns: int, call: Callable[[Event], None], value: Any = None) -> None:
        """Call back once everything else that is due at that nanosecond has happened.

        An engine looks at its queue then: calls that arrive at the same moment join the same iteration,
        whichever of them the simulation takes first.
        """
        alarm = Event(self)
        alarm._ok, alarm._value = True, value
        alarm.callbacks.append(call)
        self.schedule(alarm, _LAST, delay_ns)  # type: ignore[arg-type]  # any number orders
