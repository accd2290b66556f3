"""A session that was really recorded, in the neutral form between log formats and the rest.

Importers produce it; the workflow builder, the observed timeline and the calibrations consume it.
Times are seconds from the session's start; a duration says how it is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar, dataclass_transform

Timing = Literal["measured", "inferred", "absent"]
"""`measured` by the recorder, `inferred` from neighbouring records, or `absent` (and then 0)."""

PARTIAL_OUTPUT = "output tokens too few for the text: the log kept a partial count"
"""What is odd about a model call whose count of output tokens was cut off; it stands as the log has it."""

WaitKind = Literal["tool", "human", "harness"]

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def _record(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass in the eyes of the type checker, at a fifth of one's price.

    Of a serving trace there are millions, and a frozen one takes as long to make as its row to be read.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


@_record
class RecordedCall:
    """One model call. `prompt_tokens` includes `cached_tokens`; `output_tokens` includes thinking.

    `said` is what a user said since the call before, `text` the answer; both only where asked for.
    """

    start_s: float
    duration_s: float
    model: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    thinking_tokens: int = 0
    ttft_s: float | None = None
    timing: Timing = "measured"
    said: str = ""
    text: str = ""

    @property
    def end_s(self) -> float:
        return self.start_s + self.duration_s


@_record
class RecordedWait:
    """Time between model calls: a tool at work, a human, or the harness itself.

    `text` are a tool's arguments, `result_text` is what it gave back; both only where asked for.
    """

    start_s: float
    duration_s: float
    kind: WaitKind
    name: str
    result_tokens: int = 0
    timing: Timing = "measured"
    text: str = ""
    result_text: str = ""

    @property
    def end_s(self) -> float:
        return self.start_s + self.duration_s


@_record
class RecordedCompaction:
    """The context was summarised; no call of the record says so. `duration_s` is mostly inferred."""

    start_s: float
    duration_s: float
    summary_tokens: int
    timing: Timing = "inferred"

    @property
    def end_s(self) -> float:
        return self.start_s + self.duration_s


RecordedEvent = RecordedCall | RecordedWait | RecordedCompaction


def set_time(event: RecordedEvent, start_s: float, duration_s: float) -> None:
    """Set the time of an event that nobody has seen yet but the importer that makes it."""
    event.start_s, event.duration_s = start_s, duration_s  # type: ignore[misc]


@_record
class RecordedLane:
    """What one agent did, in order of start. `parent` is the lane that started it, None for the main one."""

    name: str
    parent: str | None
    events: tuple[RecordedEvent, ...]

    @property
    def calls(self) -> Iterator[RecordedCall]:
        return (event for event in self.events if isinstance(event, RecordedCall))

    @property
    def start_s(self) -> float:
        return min((event.start_s for event in self.events), default=0.0)

    @property
    def end_s(self) -> float:
        return max((event.end_s for event in self.events), default=0.0)


@_record
class RecordedSession:
    """One session: its lanes (main first) and what was odd about the record, by count.

    `id` is what the log calls it where `name` is that of the file, which people change.
    """

    name: str
    format: str
    lanes: tuple[RecordedLane, ...]
    system_tokens: int = 0
    odd: Mapping[str, int] = field(default_factory=dict)
    id: str = ""

    @property
    def calls(self) -> Iterator[RecordedCall]:
        return (call for lane in self.lanes for call in lane.calls)
