"""From OpenHands events and metrics to a recorded session: the join, the walk, the waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from agentsim.importers._draft import Draft, Lane, made_call
from agentsim.importers._estimate import text_tokens
from agentsim.importers._openhands_events import HUMAN, RECALL, Event, Metrics
from agentsim.importers._texts import together
from agentsim.importers._trajectory import Context, Usage
from agentsim.recorded import (
    RecordedCompaction,
    RecordedEvent,
    RecordedSession,
    RecordedWait,
    Timing,
    WaitKind,
)

CLOCK_STEP_S = 1.0
"""A latency may exceed the time between two events by as much without meaning it."""
MAX_LATENCY_S = 600.0
"""Where there are no times to compare with, a median latency of more is in milliseconds."""

_START = "start up"


def session_of(
    name: str, format: str, events: Iterable[Event], metrics: Metrics, odd: Counter[str]
) -> RecordedSession | None:
    """Return the session that the events make, None where they hold no call of a model."""
    draft = Draft(name, format, odd)
    return _Reader(draft, metrics, _ordered(events, odd)).read()


def _ordered(events: Iterable[Event], odd: Counter[str]) -> list[Event]:
    """Return events once each, in order of time; one without a time has that of the one before."""
    seen: set[str] = set()
    kept: list[Event] = []
    for event in events:
        if event.key is not None and event.key in seen:
            odd["repeated event"] += 1
            continue
        seen |= {event.key} if event.key is not None else set()
        kept.append(event)
    times = [event.at_s for event in kept if event.at_s is not None]
    before_s = times[0] if times else None
    for event in kept:
        if event.at_s is None and times:
            odd["event without a time"] += 1
            event.at_s = before_s
        before_s = event.at_s
    odd["out of order"] += sum((b.at_s or 0) < (a.at_s or 0) for a, b in pairwise(kept))
    return sorted(kept, key=lambda event: event.at_s or 0.0)


class _Reader:
    """Walks the events once. `now_s` is the time of the latest; without times it counts what is known."""

    def __init__(self, draft: Draft, metrics: Metrics, events: list[Event]) -> None:
        self.draft, self.metrics, self.events, self.odd = draft, metrics, events, draft.odd
        self.timed = any(event.at_s is not None for event in events)
        self.context = Context(self.odd)
        self.stack: list[Lane] = [draft.lanes[0]]
        self.open: dict[str, tuple[Event, Lane]] = {}
        self.calls: dict[str, str] = {}  # tool call id to the event that made it
        self.latest: set[str] = set()  # the events of the latest answer that wait for a result
        self.said = 0  # characters of the user's before the first call
        self.words: list[str] = []  # what the user said before the next call, where it is kept
        self.seen: set[str] = set()
        self.now_s = next((event.at_s for event in events if event.at_s is not None), 0.0)
        self.begun_s: float | None = self.now_s  # until the first call: since when nothing was explained
        self.awaiting, self.confirmed_s = False, -1.0
        self.asked = False

    def read(self) -> RecordedSession | None:
        self._check_unit()
        extra = self._lost_calls()
        for index, event in enumerate(self.events):
            for response in extra.get(index, ()):
                self._call(event, response, 0)
            self._take(event)
            self.now_s = event.at_s if event.at_s is not None else self.now_s
        self.odd["tool without a result"] += len(self.open)
        return self.draft.built()

    def _check_unit(self) -> None:
        """Bring latencies to seconds: those of some recorders are milliseconds."""
        latencies, over, fits = self.metrics.latencies, 0, 0
        for before, event in pairwise(self.events):
            latency = latencies.get(event.response or "") if event.role == "answer" else None
            if latency is None or before.at_s is None or event.at_s is None:
                continue
            room_s = event.at_s - before.at_s + CLOCK_STEP_S
            over += latency > room_s
            fits += latency <= room_s
        middle = sorted(latencies.values())[len(latencies) // 2] if latencies else 0.0
        if over > fits if self.timed else middle > MAX_LATENCY_S:
            self.odd["latency in milliseconds"] += len(latencies)
            self.metrics.latencies = {key: value / 1e3 for key, value in latencies.items()}

    def _lost_calls(self) -> dict[int, list[str]]:
        """Give each latency whose id no event carries to an answer without id, else to where it fits.

        Returns, by index of an event, the calls that end with it though it does not say so.
        """
        place = {e.response: i for i, e in reversed(list(enumerate(self.events))) if e.response}
        extra: dict[int, list[str]] = {}
        order = list(self.metrics.order)
        known = [(k, place[key]) for k, key in enumerate(order) if key in place]
        for k, key in enumerate(order):
            if key in place or key not in self.metrics.latencies:
                continue
            low = max((i for j, i in known if j < k), default=-1)
            high = min((i for j, i in known if j > k), default=len(self.events))
            inside = range(low + 1, max(high, low + 1))
            free = [i for i in inside if self.events[i].role in ("answer", "condensation")]
            free = [i for i in free if self.events[i].response is None]
            if free:
                self.events[free[0]].response = key
            elif inside or self.events:
                extra.setdefault(self._fitting(inside, key), []).append(key)
        return extra

    def _fitting(self, inside: range, key: str) -> int:
        """Return the latest event before which there is time for the call, else the last one."""
        least_s = self.metrics.latencies[key] - 0.05
        fitting = [i for i in inside if i and self._room_s(i) >= least_s and not self.events[i].response]
        return fitting[-1] if fitting else min(max(inside.stop - 1, 0), len(self.events) - 1)

    def _room_s(self, index: int) -> float:
        before, event = self.events[index - 1], self.events[index]
        return (event.at_s or 0.0) - (before.at_s or 0.0)

    def _take(self, event: Event) -> None:
        if event.role == "answer":
            self._answer(event)
        elif event.role == "result":
            self._result(event)
        elif event.role == "condensation":
            self._compaction(event)
        elif event.role == "user":
            self._human(event)
        elif event.role == "state":
            self._state(event)
        elif event.role == "other" and event.name == RECALL and event.key is not None:
            self.open[event.key] = (event, self.stack[-1])
        if event.role == "system" and not self.draft.system_tokens:
            self.draft.system_tokens = text_tokens(event.text)
            self.odd["system prompt estimated from text"] += 1
        if event.role not in ("answer", "condensation"):
            self.context.add(event.text)

    def _state(self, event: Event) -> None:
        """Note when a user permitted what the agent had asked for."""
        if self.awaiting and event.name in ("user_confirmed", "user_rejected"):
            self.confirmed_s = self._at(event)
        self.awaiting = event.name == "awaiting_user_confirmation"

    def _at(self, event: Event) -> float:
        return self.now_s if event.at_s is None else event.at_s

    def _answer(self, event: Event) -> None:
        if event.response is None or event.response not in self.seen:
            self._call(event, event.response, event.text)
        if event.name and event.key is not None:
            self.latest.add(event.key)
            self.open[event.key] = (event, self.stack[-1])
            self.calls |= {event.tool_call: event.key} if event.tool_call else {}
        if event.delegate is not None:
            self.stack.append(self.draft.lane(event.delegate, self.stack[-1].name))
        self.asked = True

    def _call(self, event: Event, response: str | None, text: int) -> None:
        """Add the call that ends with an event."""
        self.seen |= {response} if response else set()
        self.latest = set()
        usage = self.metrics.usages.get(response or "") or (event.usage if text else Usage())
        if not usage.prompt:
            usage = Usage(None, usage.output or None, usage.cached, usage.thinking)
        start_s, length_s, timing = self._span(event, response)
        if self.begun_s is not None and start_s > self.begun_s:
            self._wait(self.stack[-1], (self.begun_s, start_s), "harness", _START)
        if self.begun_s is not None and usage.prompt and self.draft.system_tokens:
            self.draft.system_tokens = max(usage.prompt - text_tokens(self.said), 0)
        self.begun_s = None
        counts = self.context.settle(usage, text)
        model = event.model or self.metrics.model or "unknown"
        texts, self.words = (together(self.words), event.said if event.role == "answer" else ""), []
        self.stack[-1].events.append(made_call((start_s, length_s), model, counts, timing, texts))
        self.now_s = start_s + length_s if event.at_s is None else self.now_s

    def _span(self, event: Event, response: str | None) -> tuple[float, float, Timing]:
        """Return start, length and how it is known of the call that ends with an event."""
        latency, end_s = self.metrics.latencies.get(response or ""), self._at(event)
        if not self.timed:
            self.odd["call without a time"] += latency is None
            return self.now_s, latency or 0.0, "absent" if latency is None else "measured"
        if latency is not None and latency <= max(end_s - self.now_s, 0.0) + CLOCK_STEP_S:
            return end_s - latency, latency, "measured"
        self.odd["latency over the time there was"] += latency is not None
        return self.draft.inferred(self.now_s, end_s, "call")

    def _result(self, event: Event) -> None:
        key = event.cause if event.cause in self.open else self.calls.get(event.tool_call or "")
        if key is None or key not in self.open:
            self.odd["result without its call"] += event.tool_call is not None or event.cause is not None
            return
        action, lane = self.open.pop(key)
        start_s = self._at(action) if self.timed else self.now_s
        end_s = start_s + self.draft.span(start_s, self._at(event), "tool")
        if event.name == HUMAN:
            self._wait(lane, (start_s, end_s), "human", HUMAN)
        elif action.name == RECALL:
            self._wait(lane, (start_s, end_s), "harness", RECALL)
        else:
            if start_s < self.confirmed_s < end_s:
                self._wait(lane, (start_s, self.confirmed_s), "human", "permission")
                start_s = self.confirmed_s
            self._wait(lane, (start_s, end_s), "tool", action.name, (action.arguments, event.said))
        if event.delegate is not None and len(self.stack) > 1:
            self.stack.pop()

    def _wait(
        self, lane: Lane, span: tuple[float, float], kind: WaitKind, name: str, texts: tuple[str, ...] = ()
    ) -> None:
        timing: Timing = "measured" if self.timed else "absent"
        lane.events.append(RecordedWait(span[0], span[1] - span[0], kind, name, 0, timing, *texts))

    def _human(self, event: Event) -> None:
        """Add the time that the agent waited for a user: since its answer, or from the start."""
        at_s = self._at(event)
        self.said += event.text if self.begun_s is not None else 0
        self.words.append(event.said)
        if self.asked and not self.latest & set(self.open) and at_s > self.now_s:
            self._wait(self.stack[0], (self._last_s(), at_s), "human", HUMAN)
        elif self.begun_s is not None and at_s > self.begun_s + CLOCK_STEP_S:
            self._wait(self.stack[0], (self.begun_s, at_s), "human", HUMAN)
            self.begun_s = at_s
        self.asked = False

    def _last_s(self) -> float:
        """Return when the main agent was last known to do something."""
        return max((e.end_s for e in self.stack[0].events if not _is_human(e)), default=self.now_s)

    def _compaction(self, event: Event) -> None:
        """Add a summary; the condenser's call is in its time, not a call of its own."""
        start_s, length_s, timing = self._span(event, event.response)
        self.seen |= {event.response} if event.response else set()
        usage = self.metrics.usages.get(event.response or "") or Usage()
        summary = usage.output if usage.output else text_tokens(event.text)
        self.odd["summary estimated from text"] += not usage.output
        self.stack[-1].events.append(RecordedCompaction(start_s, length_s, summary, timing))
        self.context.known = min(self.context.known, self.draft.system_tokens + summary)
        self.context.since = 0


def _is_human(event: RecordedEvent) -> bool:
    return isinstance(event, RecordedWait) and event.kind == "human"
