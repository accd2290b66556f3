"""What an executor is: something that calls one function for many numbers, in any order, anywhere.

An executor module exposes `PLUGIN`, a `Run`. The function is picklable and pure, and raises only what
ends all work; the caller orders the results, so that no executor can change them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any

Work = Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class Lost:
    """Stands for the result of a number whose process ended under it; says how."""

    reason: str


Run = Callable[[Work, Iterable[int], str], Generator[tuple[int, Any], None, None]]
"""`run(work, numbers, where)` yields (number, `work(number)` or `Lost`) once for each, as they come.

Numbers are taken as they are needed. `where` says where in the executor's own words; closing it
ends what was started. Raises `InputError` where there is no such place.
"""
