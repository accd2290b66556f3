"""A model call on its way through a server, and the door that every server has."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from simpy import Event

from agentsim.result import Part
from agentsim.sim.clock import Clock

Stretch = tuple[Part, str, int]
"""Part, name, nanoseconds."""


class Prefix(NamedTuple):
    """The part of a prompt that a server has seen before: how much of it, and when it was last used.

    What of it is still cached is the server's to say. `owner` is the agent whose calls made it.
    """

    tokens: int
    used_ns: int
    owner: str = ""


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

    `overhead_ns` is the fixed time before it could queue; it counts as prefill.
    """

    __slots__ = (
        "below_window",
        "cached",
        "context",
        "done",
        "finished_ns",
        "first_token_ns",
        "gain",
        "joined",
        "kv",
        "output",
        "overhead_ns",
        "prompt",
        "remaining",
        "started_ns",
        "submitted_ns",
    )

    def __init__(self, env: Clock, prompt: int, cached: int, output: int) -> None:
        self.prompt, self.cached, self.output = prompt, max(cached, 0), output
        self.done = Event(env)
        self.submitted_ns = env.now
        self.overhead_ns = self.started_ns = self.first_token_ns = self.finished_ns = 0
        self.remaining = prompt - self.cached
        self.context = float(prompt - self.remaining)
        self.joined = 0
        self.below_window = False
        self.kv = 0.0
        self.gain = 1.0

    @property
    def queue_ns(self) -> int:
        return self.started_ns - self.submitted_ns - self.overhead_ns

    @property
    def prefill_ns(self) -> int:
        return self.overhead_ns + self.first_token_ns - self.started_ns

    @property
    def transfer_ns(self) -> int:
        return 0

    @property
    def decode_ns(self) -> int:
        return self.finished_ns - self.first_token_ns

    def stretches(self) -> tuple[Stretch, ...]:
        """Return what the call's time was spent on, in order; it sums to the time since it was submitted."""
        return (
            (Part.QUEUE, "queue", self.queue_ns),
            (Part.PREFILL, "prefill", self.prefill_ns),
            (Part.DECODE, "decode", self.decode_ns),
        )


class Server(Protocol):
    """Takes calls; each ends by its `done` event."""

    def submit(self, work: Work) -> Answer:
        """Start a call now. Preconditions: prompt >= 1, output >= 0.

        At least one token of the prompt is computed, whatever is cached.
        """
        ...
