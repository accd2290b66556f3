"""Who holds how much of whose context, as far as whoever sends the calls there knows."""

from __future__ import annotations

from typing import Generic, TypeVar

from agentsim.sim.request import Prefix

P = TypeVar("P", str, int)
"""What names a place: an engine, or the number of a replica."""


class Holdings(Generic[P]):
    """Remembers the tokens of each agent's context that lie at each place that its calls went to."""

    def __init__(self) -> None:
        self._held: dict[str, dict[P, int]] = {}

    def of(self, prefix: Prefix) -> dict[P, int]:
        """Return the tokens of a prefix by place. What a shorter prefix has lost, is lost everywhere.

        Empty where no call of its owner has been sent anywhere yet.
        """
        owner = prefix.owner
        if owner not in self._held:  # a sub-agent that inherits a context finds it where its parent's lies
            self._held[owner] = dict(self._held.get(owner.rpartition("/")[0], {}))
        held = self._held[owner]
        for place in held:
            held[place] = min(held[place], prefix.tokens)
        return held

    def kept(self, prefix: Prefix, place: P) -> int:
        """Return how much of a prefix a place has; all of it where nobody else has seen it."""
        held = self.of(prefix)
        return held.get(place, 0) if held else prefix.tokens

    def note(self, owner: str, place: P, tokens: int) -> None:
        """Enter that a place has these tokens of an owner's context. Precondition: `of` knows the owner."""
        self._held[owner][place] = tokens
