"""A model call on its way through a server, and the door that every server has."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from simpy import Event

from agentsim.result import Part
from agentsim.sim.clock import Clock

if TYPE_CHECKING:
    from agentsim.sim.kv_sizes import Segment

Stretch = tuple[Part, str, int]
"""Part, name, nanoseconds."""


class Prefix(NamedTuple):
    """The part of a prompt that a server has seen before: how much of it, and when it was last used.

    What of it is still cached is the server's to say. `owner` is the agent whose calls made it. The first
    `shared_tokens` of the prompt are a system prompt, the same for all calls of one `shared_key`.
    """

    tokens: int
    used_ns: int
    owner: str = ""
    shared_tokens: int = 0
    shared_key: str = ""


class Work(NamedTuple):
    """What a model call asks of a server.

    `pace` is how many tokens a speculative step yields for it, against the average request. The recorded
    times are those of a call that is replayed; None where they are not known.
    """

    prompt: int
    prefix: Prefix
    output: int
    pace: float = 1.0
    recorded_ns: int | None = None
    recorded_ttft_ns: int | None = None


class Answer(Protocol):
    """A model call that was submitted: when it is done, and what its time went into."""

    prompt: int
    cached: int
    """What of the prompt was still in the cache."""
    output: int
    done: Event

    @property
    def queue_ns(self) -> int:
        """Waiting for engines."""
        ...

    @property
    def prefill_ns(self) -> int:
        """Prefill, fixed request costs included."""
        ...

    @property
    def transfer_ns(self) -> int:
        """KV cache on its way between engines."""
        ...

    @property
    def decode_ns(self) -> int:
        """From the first token to the last."""
        ...

    def stretches(self) -> tuple[Stretch, ...]:
        """The same in order of time, stage by stage; precondition: it is done."""
        ...


class Request:
    """One model call: what it asks for, and when what happened to it (clock nanoseconds).

    `overhead_ns` is the fixed time before it could queue; it counts as prefill. A call that is put back
    and resumed goes through rounds of queue, loading, prefill and decode: `started_ns`, `loading_ns` and
    `token_ns` (the end of its prefill) are those of the present round, `past` holds the rounds before.
    What it waits for after its first token counts as decode. In tokens: `goal` is what the present round
    needs the KV of, `claim` what of it was computed before, `written` what is out; `blocks` are the KV
    blocks that it takes when admitted.
    """

    __slots__ = (
        "admitted",
        "below_window",
        "blocks",
        "cached",
        "claim",
        "context",
        "copy",
        "done",
        "finished_ns",
        "first_token_ns",
        "gain",
        "goal",
        "joined",
        "loading_ns",
        "lost_loading_ns",
        "lost_queue_ns",
        "order",
        "output",
        "overhead_ns",
        "past",
        "prefix",
        "prompt",
        "remaining",
        "round_ns",
        "segment",
        "started_ns",
        "submitted_ns",
        "token_ns",
        "written",
    )

    admitted: int
    below_window: bool
    blocks: int
    claim: int
    context: float
    copy: int
    gain: float
    goal: int
    joined: int
    order: int
    prefix: Prefix
    remaining: int
    written: float

    def __init__(self, env: Clock, prompt: int, cached: int, output: int) -> None:
        self.prompt, self.cached, self.output = prompt, max(cached, 0), output
        self.done = Event(env)
        self.submitted_ns = self.round_ns = env.now
        self.overhead_ns = self.started_ns = self.first_token_ns = self.finished_ns = 0
        self.token_ns = self.loading_ns = self.lost_queue_ns = self.lost_loading_ns = 0
        self.past: list[Stretch] | None = None
        self.segment: Segment | None = None

    @property
    def _waits_for_token(self) -> bool:
        """Whether the first token is written in the present round, or has yet to be."""
        return not 0 < self.first_token_ns < self.started_ns

    @property
    def queue_ns(self) -> int:
        if self.past is None:
            return self.started_ns - self.submitted_ns - self.overhead_ns
        own = self.started_ns - self.round_ns if self._waits_for_token else 0
        return self.lost_queue_ns + own

    @property
    def transfer_ns(self) -> int:
        if self.past is None:
            return self.loading_ns
        return self.lost_loading_ns + (self.loading_ns if self._waits_for_token else 0)

    @property
    def prefill_ns(self) -> int:
        if self.past is None:
            return self.first_token_ns - self.started_ns - self.loading_ns + self.overhead_ns
        return self.first_token_ns - self.submitted_ns - self.queue_ns - self.transfer_ns

    @property
    def decode_ns(self) -> int:
        return self.finished_ns - self.first_token_ns

    def put_back(self, now: int) -> None:
        """End the present round before the call is done; the next begins in the queue."""
        if not self.first_token_ns:
            self.lost_queue_ns, self.lost_loading_ns = self.queue_ns, self.transfer_ns
        self.past = (self.past or []) + self._round(now)
        self.round_ns, self.token_ns = now, 0

    def _round(self, end: int) -> list[Stretch]:
        fixed = 0 if self.past else self.overhead_ns
        began, token = self.started_ns + self.loading_ns, self.token_ns or end
        again = " (put back)" if self.past else ""
        return [
            (Part.QUEUE, f"queue{again}", self.started_ns - self.round_ns - fixed),
            (Part.KV_TRANSFER, "KV from a lower tier", self.loading_ns),
            (Part.PREFILL, f"prefill{again}", fixed + token - began),
            (Part.DECODE, "decode", end - token),
        ]

    def stretches(self) -> tuple[Stretch, ...]:
        """Return what the call's time was spent on, in order; it sums to the time since it was submitted."""
        if self.past is None and not self.loading_ns:
            return (
                (Part.QUEUE, "queue", self.queue_ns),
                (Part.PREFILL, "prefill", self.prefill_ns),
                (Part.DECODE, "decode", self.decode_ns),
            )
        return (*(self.past or ()), *self._round(self.finished_ns))


class Server(Protocol):
    """Takes calls; each ends by its `done` event."""

    def submit(self, work: Work) -> Answer:
        """Start a call now. Preconditions: prompt >= 1, output >= 0.

        At least one token of the prompt is computed, whatever is cached.
        """
        ...
