"""The recorded durations themselves: no hardware, each call takes what it took.

Where only the whole time is known and not the first token's, all of it counts as decode.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplayCost:
    """Marks an engine that answers every call in its recorded time."""


PLUGIN = ReplayCost
