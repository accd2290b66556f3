"""mini-swe-agent trajectories: v0, a bare list of messages, and v1 and v2 with what the run was beside them.

A message of v2 says when it was made: the model's time is that of its answer less that of the message
before, the tool's that of the result less that of what came before it. The first messages carry no time,
so the first call has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentsim.importers._draft import Draft, made_call, of_values, told
from agentsim.importers._estimate import text_tokens
from agentsim.importers._texts import text_in, together, written
from agentsim.importers._trajectory import (
    Context,
    chars,
    is_list_of_objects,
    stem,
    sub,
    top_keys,
    usage_of,
    words,
)
from agentsim.importers._values import instant
from agentsim.importers.base import objects
from agentsim.recorded import RecordedSession, RecordedWait, Timing, WaitKind

_SHELL, _HUMAN = "bash", "human"


class MiniSweAgent:
    """The importer of mini-swe-agent trajectories."""

    name = "mini_swe_agent"

    def recognises(self, path: str, head: bytes) -> bool:
        """Tell it by its format's name or its version; a bare list of messages also by the file's name."""
        if is_list_of_objects(head):
            return path.endswith((".traj.json", ".traj.json.gz")) and {b"role", b"content"} <= set(
                top_keys(head)
            )
        if not head.lstrip().startswith(b"{"):
            return False
        keys = top_keys(head)
        if keys.get(b"trajectory_format", b"").startswith(b"mini-swe-agent"):
            return True
        return b"info" in keys and (
            b'"mini_version"' in head or {b"messages", b"trajectory_format"} <= set(keys)
        )

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield the session of a file."""
        yield from told(of_values(path, lambda value: _sessions(value, path, False)), path)

    def sessions_with_text(self, path: str) -> Iterator[RecordedSession]:
        """Yield it with what was said."""
        yield from told(of_values(path, lambda value: _sessions(value, path, True)), path)


PLUGIN = MiniSweAgent()


def _sessions(data: Any, path: str, keep_text: bool) -> Iterator[RecordedSession | None]:
    messages = objects(data if isinstance(data, list) else sub(data).get("messages"))
    name = words(sub(data).get("instance_id"), stem(path))
    model = words(sub(data, "info", "config", "model").get("model_name"), "unknown")
    yield _Reader(name, model, keep_text).read(messages)


def _role(message: dict[str, Any]) -> str:
    """Return the role; messages of the Responses API have none."""
    if message.get("object") == "response":
        return "assistant"
    if message.get("type") == "function_call_output":
        return "tool"
    return words(message.get("role"))


class _Reader:
    def __init__(self, name: str, model: str, keep_text: bool) -> None:
        self.draft, self.model = Draft(name, PLUGIN.name), model
        self.keep_text, self.said = keep_text, ""
        self.asked: list[str] = []
        self.context = Context(self.draft.odd)
        self.now_s: float | None = None
        self.tools = 0  # asked for and not yet answered
        self.answered = False
        self.seen: set[str] = set()

    def read(self, messages: list[dict[str, Any]]) -> RecordedSession | None:
        for message in messages:
            role = _role(message)
            if role == "assistant":
                self._call(message)
            elif role in ("user", "tool", "exit"):
                self._input(message, role)
            elif role == "system" and not self.draft.system_tokens:
                self.draft.system_tokens = text_tokens(chars(message.get("content")))
                self.draft.odd["system prompt estimated from text"] += 1
            if role not in ("assistant", "exit"):
                self.context.add(chars(message.get("content")) + chars(message.get("output")))
        return self.draft.built()

    def _call(self, message: dict[str, Any]) -> None:
        extra = sub(message, "extra")
        response = message if message.get("object") == "response" else sub(extra, "response")
        key = words(response.get("id"))
        if key and key in self.seen:
            self.draft.odd["repeated call"] += 1
            return
        self.seen.add(key)
        text = sum(chars(message.get(part)) for part in ("content", "tool_calls", "output"))
        counts = self.context.settle(usage_of(sub(response, "usage")), text)
        start_s, length_s, timing = self._span(extra, "call")
        self.draft.odd["call without a time"] += timing == "absent"
        model = self.model if self.model != "unknown" else words(response.get("model"), "unknown")
        texts, self.said = (self.said, self._kept(message, "content", "output")), ""
        self.draft.lanes[0].events.append(made_call((start_s, length_s), model, counts, timing, texts))
        actions = extra.get("actions")
        self.asked = [written(sub(a).get("command") or a) for a in objects(actions)] if self.keep_text else []
        self.tools = len(actions) if isinstance(actions, list) else 1
        self.answered = True

    def _span(self, extra: dict[str, Any], what: str) -> tuple[float, float, Timing]:
        """Return start, length and how it is known of what ended with a message."""
        before_s, at_s = self.now_s, instant(extra.get("timestamp"))
        if at_s is None:
            return before_s or 0.0, 0.0, "absent"
        self.now_s = at_s
        if before_s is None:
            return at_s, 0.0, "absent"
        return self.draft.inferred(before_s, at_s, what)

    def _kept(self, message: dict[str, Any], *keys: str) -> str:
        return together(text_in(message.get(key)) for key in keys) if self.keep_text else ""

    def _input(self, message: dict[str, Any], role: str) -> None:
        """Add the wait that a message ends: a tool's, in turn for those of one answer, or a human's."""
        extra = sub(message, "extra")
        start_s, length_s, timing = self._span(extra, "tool")
        told = self._kept(message, "content", "output")
        if not self.answered:
            self.said = together([self.said, told])
            return
        interrupt = words(extra.get("interrupt_type"))
        kind: WaitKind = "tool"
        if "User" in interrupt or (not self.tools and role == "user"):
            kind = "human"
        elif interrupt or not self.tools:
            kind = "harness"
        self.tools = max(self.tools - 1, 0)
        if kind == "tool" or length_s:
            name = {"tool": _SHELL, "human": _HUMAN, "harness": "harness"}[kind]
            known: Timing = "measured" if timing == "inferred" else timing
            texts = (self.asked.pop(0) if self.asked else "", told) if kind == "tool" else ()
            self.draft.lanes[0].events.append(RecordedWait(start_s, length_s, kind, name, 0, known, *texts))
        self.said = together([self.said, told]) if kind == "human" else self.said
