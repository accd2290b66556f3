"""The simulation's clock: integer nanoseconds from zero, never falling."""

from __future__ import annotations

from simpy import Environment


class Clock(Environment):
    """SimPy's environment with a clock that counts whole nanoseconds."""

    def __init__(self) -> None:
        super().__init__(0)

    @property
    def now(self) -> int:
        """Nanoseconds since the start."""
        return self._now  # type: ignore[return-value]  # every delay is an int
