"""ATIF trajectories (Harbor, terminal-bench, NeMo), versions 1.0 to 1.8: a document, or one a line.

A step holds an answer, its tool calls and their results under one time, that of the step: the time of a
tool is known only where `extra` holds it, and else is in the model's time after it, which is counted.

Why so: what a reference names, a continuation or a sub-agent in a file of its own, is not opened, for
paths inside a log are not followed; it is a session of its own, and the reference is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agentsim.importers._draft import Draft, Lane, made_call, of_values, rescale, told
from agentsim.importers._estimate import text_tokens
from agentsim.importers._texts import text_in, together, written
from agentsim.importers._trajectory import (
    Context,
    chars,
    stem,
    sub,
    top_keys,
    usage_of,
    words,
)
from agentsim.importers._values import LONGEST_S, first_tokens, instant, number, tokens
from agentsim.importers.base import objects
from agentsim.recorded import (
    RecordedCall,
    RecordedCompaction,
    RecordedSession,
    RecordedWait,
    Timing,
    WaitKind,
)
from agentsim.units import MAX_TOKENS

MAX_DEPTH = 16
MAX_SUM = 1000
"""A step may stand for several calls; of more than this the count is not believed."""
CLOCK_STEP_S = 1.0

Texts = tuple[str, ...]

_VERSION = re.compile(r"ATIF-v1\.[0-8](\.\d+)?")
_SECONDS = ("duration_s", "duration_sec", "duration_seconds", "latency_s", "execution_time", "elapsed_s")
_MILLISECONDS = ("duration_ms", "durationMs", "latency_ms")
_ASKS_A_HUMAN = {"AskUserQuestion", "ExitPlanMode", "ask_user", "ask_human"}


class Atif:
    """The importer of ATIF trajectories."""

    name = "atif"

    def recognises(self, path: str, head: bytes) -> bool:  # noqa: ARG002  (content decides, not the name)
        """Tell it by its schema version, which stands at the top."""
        return b"ATIF-v" in head and top_keys(head).get(b"schema_version", b"").startswith(b"ATIF-v")

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield a session for each trajectory; those inside another are its sub-agents."""
        yield from told(of_values(path, lambda value: _sessions(value, path, False)), path)

    def sessions_with_text(self, path: str) -> Iterator[RecordedSession]:
        """Yield them with what was said."""
        yield from told(of_values(path, lambda value: _sessions(value, path, True)), path)


PLUGIN = Atif()


def _sessions(data: Any, path: str, keep_text: bool) -> Iterator[RecordedSession | None]:
    for root in objects(data) if isinstance(data, list) else [sub(data)]:
        yield _session(root, stem(path), keep_text)


def _session(root: dict[str, Any], default: str, keep_text: bool) -> RecordedSession | None:
    name = words(root.get("session_id")) or words(root.get("trajectory_id"), default)
    draft = Draft(name, PLUGIN.name, keep_text=keep_text)
    if not _VERSION.fullmatch(words(root.get("schema_version"))):
        draft.odd["version of ATIF that is not known here"] += 1
    timed = any(instant(step.get("timestamp")) for step in objects(root.get("steps")))
    _Reader(draft, draft.lanes[0], root, timed, 0.0, 1).read()
    return draft.built()


class _Reader:
    """Reads one trajectory into its lane. `now_s` is when the latest of it ended, None before any time."""

    def __init__(
        self, draft: Draft, lane: Lane, data: dict[str, Any], timed: bool, start_s: float, depth: int
    ) -> None:
        self.draft, self.lane, self.data, self.timed, self.depth = draft, lane, data, timed, depth
        self.odd, self.start_s = draft.odd, start_s
        self.now_s: float | None = None if timed else start_s
        self.context = Context(self.odd)
        self.model = words(sub(data, "agent").get("model_name"), "unknown")
        self.inside = objects(data.get("subagent_trajectories"))  # those that no step has referred to yet
        self.toolless: bool | None = None  # whether the latest answer asked for no tool; None before any
        self.awaited_s = 0.0  # when the latest sub-agent ended
        self.said = ""  # what the user said before the next call, where it is kept
        self.blurred = False  # whether it asked for tools whose time is not known

    def read(self) -> None:
        steps = self._steps()
        for index, step in enumerate(steps):
            self._step(step, steps[index + 1 :][:1])
        while self.inside:
            self.odd["sub-agent that no step refers to"] += 1
            self._sub_agent(self.inside.pop(0))
        self.odd["continues in another file"] += bool(words(self.data.get("continued_trajectory_ref")))
        self._scale()

    def _steps(self) -> list[dict[str, Any]]:
        """Return steps once each, in order of their ids where all have one."""
        seen: set[int] = set()
        kept: list[dict[str, Any]] = []
        for step in objects(self.data.get("steps")):
            key = tokens(step.get("step_id"))
            if key is not None and key in seen:
                self.odd["repeated step"] += 1
                continue
            seen |= {key} if key is not None else set()
            kept.append(step)
        keys = [tokens(step.get("step_id")) for step in kept]
        if None in keys or keys == sorted(key or 0 for key in keys):
            return kept
        self.odd["out of order"] += 1
        return sorted(kept, key=lambda step: tokens(step.get("step_id")) or 0)

    def _step(self, step: dict[str, Any], after: list[dict[str, Any]]) -> None:
        text = chars(step.get("message")) + chars(step.get("reasoning_content"))
        text += sum(len(str(call.get("arguments") or "")) for call in objects(step.get("tool_calls")))
        results = objects(sub(step, "observation").get("results"))
        seen = sum(chars(result.get("content")) for result in results)
        if step.get("is_copied_context") is True:
            self.odd["copied context"] += 1
            self.context.add(text + seen)
            return
        source = step.get("source")
        if source == "agent":
            self._answer(step, text, results)
        else:
            self._other(step, source == "user")
            if source == "user":
                self.said = together([self.said, self._kept(step.get("message"))])
            self.context.add(text)
            if source == "system" and self.toolless is None and self.depth == 1:
                self.draft.system_tokens += text_tokens(text)
                self.odd["system prompt estimated from text"] = 1
        self._summary(step, results, after)
        for result in results:
            self._references(result)
        self.context.add(seen)

    # ---- an answer and its tools

    def _answer(self, step: dict[str, Any], text: int, results: list[dict[str, Any]]) -> None:
        count = number(step.get("llm_call_count"))
        calls = objects(step.get("tool_calls"))
        if count == 0:
            self.odd["step without a model call"] += 1
            self._pass(step)
            self.context.add(text)
        else:
            self._calls(step, text, int(count) if count and 1 <= count <= MAX_SUM else 1)
        self.toolless, self.blurred = not calls and not results, False
        begun_s = self._now()
        for index, call in enumerate(calls):
            key = words(call.get("tool_call_id"))
            result = next((r for r in results if key and r.get("source_call_id") == call["tool_call_id"]), {})
            self._tool(call, result or (results[index] if index < len(results) else {}), begun_s)
        if results and not calls:
            self._wait(begun_s, 0.0, "tool", "observation", "absent")
            self.blurred = True

    def _calls(self, step: dict[str, Any], text: int, count: int) -> None:
        """Add the call of a step; one that sums up several is divided evenly among them."""
        metrics = sub(step, "metrics")
        usage = usage_of(metrics)
        usage.thinking = usage.thinking or first_tokens(sub(metrics, "extra"), "reasoning_tokens") or 0
        start_s, length_s, timing = self._span(step)
        counts = self.context.settle(usage, text)
        model = words(step.get("model_name"), self.model)
        if count > 1:
            self.odd["call known only as part of a sum"] += count
        self.odd["call without a time"] += timing == "absent"
        for index in range(count):
            part = tuple(n * (index + 1) // count - n * index // count for n in counts)
            prompt, cached, output, thinking = part
            whole = prompt, min(cached, prompt), output, min(thinking, output)
            span = start_s + length_s * index / count, length_s / count
            texts = (self.said, self._kept(step.get("message"))) if not index else ("", "")
            self.lane.events.append(made_call(span, model, whole, timing, texts))
        self.said = ""

    def _span(self, step: dict[str, Any]) -> tuple[float, float, Timing]:
        """Return start, length and how it is known of a step's call; what came before ended at `now_s`."""
        begun_s, ended_s = _invocation(step)
        before_s, at_s = self.now_s, self._time(step)
        if self.timed and begun_s is not None and ended_s is not None and ended_s >= begun_s:
            if before_s is None or begun_s >= before_s - CLOCK_STEP_S:
                if before_s is not None and begun_s > before_s and not self.lane.events:
                    self._wait(before_s, begun_s - before_s, "harness", "start up", "inferred")
                self.now_s = ended_s
                return begun_s, ended_s - begun_s, "measured"
            self.odd["span over several steps left out"] += 1
        if at_s is None or before_s is None:
            self.now_s = at_s if at_s is not None else before_s
            return self._now(), 0.0, "absent"
        if before_s < self.awaited_s <= at_s:
            before_s, self.blurred = self.awaited_s, False
        self.odd["time of tools and model not apart"] += self.blurred and at_s > before_s
        self.now_s = at_s
        return self.draft.inferred(before_s, at_s, "call")

    def _tool(self, call: dict[str, Any], result: dict[str, Any], begun_s: float) -> None:
        start_s, end_s = _invocation(call) if self.timed else (None, None)
        name = words(call.get("function_name"), "tool")
        given = written(call.get("arguments")) if self.draft.keep_text else ""
        texts = given, self._kept(result.get("content"))
        kind: WaitKind = "human" if name in _ASKS_A_HUMAN else "tool"
        known_s = _duration(sub(call, "extra"), sub(result, "extra"))
        if start_s is not None and end_s is not None and end_s >= start_s:
            self._wait(start_s, self.draft.span(start_s, end_s, "tool"), kind, name, "measured", texts)
        elif known_s is not None:
            self._wait(begun_s, known_s, kind, name, "measured", texts)
        else:
            self._wait(begun_s, 0.0, kind, name, "absent", texts)
            self.blurred = True

    def _kept(self, content: Any) -> str:
        return text_in(content) if self.draft.keep_text else ""

    def _wait(
        self, start_s: float, length_s: float, kind: WaitKind, name: str, timing: Timing, texts: Texts = ()
    ) -> None:
        self.lane.events.append(RecordedWait(start_s, length_s, kind, name, 0, timing, *texts))
        self.now_s = max(self._now(), start_s + length_s)

    # ---- everything else

    def _other(self, step: dict[str, Any], user: bool) -> None:
        """Let the time of a user or of the harness pass."""
        before_s, at_s = self.now_s, self._time(step)
        if at_s is not None and before_s is not None and at_s > before_s and not self.blurred:
            human = user and self.toolless is True
            length_s = self.draft.span(before_s, at_s, "wait")
            self._wait(
                before_s,
                length_s,
                "human" if human else "harness",
                "human" if human else "harness",
                "inferred",
            )
        self._pass(step)

    def _pass(self, step: dict[str, Any]) -> None:
        at_s = self._time(step)
        if at_s is not None:
            self.now_s = max(at_s, self._now())

    def _time(self, step: dict[str, Any]) -> float | None:
        at_s = instant(step.get("timestamp")) if self.timed else None
        if self.timed and at_s is None:
            self.odd["step without a time"] += step.get("source") == "agent"
        return at_s

    def _now(self) -> float:
        return self.start_s if self.now_s is None else self.now_s

    def _references(self, result: dict[str, Any]) -> None:
        refs = result.get("subagent_trajectory_ref")
        for ref in [refs] if isinstance(refs, dict) else objects(refs):
            place = next((i for i, inner in enumerate(self.inside) if _refers(ref, inner)), None)
            if place is None:
                self.odd["sub-agent in another file"] += 1
            else:
                self._sub_agent(self.inside.pop(place))

    def _sub_agent(self, inner: dict[str, Any]) -> None:
        if self.depth >= MAX_DEPTH:
            self.odd[f"sub-agent over {MAX_DEPTH} deep left out"] += 1
            return
        name = words(sub(inner, "agent").get("name"), "sub-agent")
        lane = self.draft.lane(name, self.lane.name)
        timed = self.timed and any(instant(step.get("timestamp")) for step in objects(inner.get("steps")))
        reader = _Reader(self.draft, lane, inner, timed, self._now(), self.depth + 1)
        reader.read()
        self.awaited_s = max(self.awaited_s, reader._now()) if timed else self.awaited_s

    def _summary(
        self, step: dict[str, Any], results: list[dict[str, Any]], after: list[dict[str, Any]]
    ) -> None:
        """Add a compaction where the harness says so and does not hold its calls."""
        said = step.get("message")
        refers = any(result.get("subagent_trajectory_ref") for result in results)
        if step.get("source") != "system" or not refers or self.data.get("subagent_trajectories"):
            return
        if isinstance(said, str) and "summari" in said[:2000].lower():
            summary = text_tokens(sum(chars(next_step.get("message")) for next_step in after))
            self.odd["summary estimated from text"] += 1
            self.lane.events.append(RecordedCompaction(self._now(), 0.0, summary, "absent"))
            self.context.known, self.context.since = 0, 0

    def _scale(self) -> None:
        """Bring estimates to the totals, where no step of the trajectory has tokens of its own."""
        known = any(usage_of(sub(step, "metrics")) for step in objects(self.data.get("steps")))
        totals = sub(self.data, "final_metrics")
        if not known and any(isinstance(event, RecordedCall) for event in self.lane.events):
            names = "total_prompt_tokens", "total_completion_tokens"
            rescale(self.lane, *(first_tokens(totals, name, most=MAX_TOKENS) for name in names))


def _refers(ref: dict[str, Any], inner: dict[str, Any]) -> bool:
    keys = ("trajectory_id", "session_id")  # one run may share its session id among its sub-agents
    same = [words(ref.get(key)) == words(inner.get(key)) for key in keys if words(ref.get(key))]
    return bool(same) and same[0]


def _invocation(data: dict[str, Any]) -> tuple[float | None, float | None]:
    times = sub(data, "extra", "invocation")
    return instant(times.get("start_timestamp")), instant(times.get("end_timestamp"))


def _duration(*extras: dict[str, Any]) -> float | None:
    for extra in extras:
        for names, per_s in ((_SECONDS, 1.0), (_MILLISECONDS, 1e3)):
            for name in names:
                value = number(extra.get(name))
                if value is not None and 0 <= value / per_s <= LONGEST_S:
                    return value / per_s
    return None
