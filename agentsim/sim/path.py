"""The critical path of one agent so far, kept as a running account.

An agent that waits for others takes over the account of whoever ended last: what the path was spent
on is known at every moment, sums to the elapsed time exactly, and needs no graph to be kept.
"""

from __future__ import annotations

from agentsim.result import Part

_PARTS = len(Part)


class CriticalPath:
    """Nanoseconds by part along the critical path; with full detail also its spans.

    `output_tokens` were written in `decode_ns` of it, those of compactions included; `slot_wait_ns` is the
    share of TOOL that was spent waiting for a slot.
    """

    __slots__ = ("decode_ns", "output_tokens", "parts", "slot_wait_ns", "spans")

    def __init__(self, keep_spans: bool) -> None:
        self.parts = [0] * _PARTS
        self.spans: list[int] | None = [] if keep_spans else None
        self.output_tokens = self.decode_ns = self.slot_wait_ns = 0

    def copy(self) -> CriticalPath:
        """Return an independent account with the same content."""
        twin = CriticalPath(False)
        twin.parts = self.parts.copy()
        twin.spans = None if self.spans is None else self.spans.copy()
        twin.output_tokens, twin.decode_ns = self.output_tokens, self.decode_ns
        twin.slot_wait_ns = self.slot_wait_ns
        return twin

    def extend(self, other: CriticalPath) -> None:
        """Append the account of a branch that began where this one stands."""
        self.parts = [mine + theirs for mine, theirs in zip(self.parts, other.parts, strict=True)]
        self.output_tokens += other.output_tokens
        self.decode_ns += other.decode_ns
        self.slot_wait_ns += other.slot_wait_ns
        if self.spans is not None and other.spans is not None:
            self.spans += other.spans
