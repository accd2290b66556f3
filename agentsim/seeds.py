"""One named stream of random numbers per cause.

A stream's numbers depend on the seed, its name and how many were drawn before, never on what other
streams did: adding a tool call moves no other draw, and two deployments see the same task.

Why so: a stream is a counter hashed with splitmix64 (Steele, Lea, Flood, OOPSLA 2014), so a live
agent carries one integer per cause instead of the 2.5 kB of a Mersenne Twister.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from statistics import NormalDist

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_TO_UNIT = 2.0**-53
_NORMAL = NormalDist()

Uniform = Callable[[], float]
"""A source of numbers in the open interval (0, 1)."""


def key(seed: int, *names: str | int) -> int:
    """Return the 64-bit key of the stream that carries these names."""
    text = "\x1f".join(map(str, (seed, *names)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


class Stream:
    """A reproducible stream of uniform numbers in the open interval (0, 1)."""

    __slots__ = ("_state",)

    def __init__(self, stream_key: int) -> None:
        self._state = stream_key

    def __call__(self) -> float:
        """Return the next number, strictly between 0 and 1."""
        self._state = z = (self._state + _GOLDEN) & _MASK
        z = ((z ^ (z >> 30)) * _MIX_1) & _MASK
        z = ((z ^ (z >> 27)) * _MIX_2) & _MASK
        return (((z ^ (z >> 31)) >> 11) + 0.5) * _TO_UNIT


def normal(uniform: Uniform) -> float:
    """Return one standard normal number, the inverse CDF at the stream's next uniform one."""
    return _NORMAL.inv_cdf(uniform())


def stream(seed: int, *names: str | int) -> Stream:
    """Return the stream named by its cause, such as `stream(7, "agent 0", "tool", "grep")`."""
    return Stream(key(seed, *names))
