"""SWE-agent trajectories (`.traj`), of all its generations.

They hold no times but the tools' `execution_time` of the newer ones, and tokens only as totals: prompts are
estimated from the text that was sent and brought to the totals, where these are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from agentsim.importers._draft import Draft, made_call, of_values, rescale, told
from agentsim.importers._estimate import text_tokens
from agentsim.importers._texts import text_in
from agentsim.importers._trajectory import (
    ESTIMATED,
    chars,
    stem,
    sub,
    top_keys,
    words,
)
from agentsim.importers._values import LONGEST_S, first_tokens, number
from agentsim.importers.base import objects
from agentsim.recorded import RecordedSession, RecordedWait, Timing
from agentsim.units import MAX_TOKENS

_BESIDE = {b"history", b"info", b"environment", b"replay_config"}
_STEP = (b'"action"', b'"observation"', b'"thought"')
_SHELL = "bash"
_TOOLS = {
    "open", "goto", "scroll_up", "scroll_down", "create", "edit", "insert", "append", "search_dir",
    "search_file", "find_file", "filemap", "submit", "str_replace_editor", "undo_edit", "view_image",
    "decompile", "disassemble", "debug_start", "debug_stop", "debug_step", "debug_continue", "debug_exec",
    "debug_add_breakpoint", "connect_start", "connect_stop", "connect_sendline", "connect_exec",
}  # fmt: skip
"""Commands that are tools of SWE-agent; any other goes to the shell, and its text stays in the log."""


class SweAgent:
    """The importer of SWE-agent trajectories."""

    name = "swe_agent"

    def recognises(self, path: str, head: bytes) -> bool:  # noqa: ARG002  (content decides, not the name)
        """Tell it by a trajectory of actions and observations beside a history or an environment."""
        if not head.lstrip().startswith(b"{"):
            return False
        keys = top_keys(head)
        if keys.get(b"attempts", b"")[:1] == b"[":
            return b'"trajectory"' in head
        steps = keys.get(b"trajectory", b"")[:1] == b"["
        return steps and (bool(_BESIDE & set(keys)) or all(key in head for key in _STEP))

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield the session of a file, or one for each attempt at the task."""
        yield from told(of_values(path, lambda value: _sessions(value, path, False)), path)

    def sessions_with_text(self, path: str) -> Iterator[RecordedSession]:
        """Yield them with what was said."""
        yield from told(of_values(path, lambda value: _sessions(value, path, True)), path)


PLUGIN = SweAgent()


def _sessions(data: Any, path: str, keep_text: bool) -> Iterator[RecordedSession | None]:
    attempts = objects(sub(data).get("attempts"))
    for index, attempt in enumerate(attempts or [sub(data)], 1):
        name = f"{stem(path)} attempt {index}" if attempts else stem(path)
        yield _session(attempt, name, keep_text)


def _session(data: dict[str, Any], name: str, keep_text: bool) -> RecordedSession | None:
    draft = Draft(name, PLUGIN.name)
    steps, stats = objects(data.get("trajectory")), sub(data, "info", "model_stats")
    calls = [step for step in steps if _written(step)]
    prompts = iter(_prompts(calls, objects(data.get("history"))))
    lane, now_s = draft.lanes[0], 0.0
    model = _model(data)
    said = _task(data) if keep_text else ""
    for step in steps:
        if output := _written(step):
            counts = (text_tokens(next(prompts)), 0, text_tokens(output), 0)
            texts = said, text_in(step.get("response") or step.get("thought")) if keep_text else ""
            lane.events.append(made_call((now_s, 0.0), model, counts, "absent", texts))
            said = ""
        if chars(step.get("action")):
            wait = _wait(draft, step, now_s, keep_text)
            lane.events.append(wait)
            now_s = wait.end_s
    sent = first_tokens(stats, "tokens_sent", most=MAX_TOKENS)
    received = first_tokens(stats, "tokens_received", most=MAX_TOKENS)
    rescale(lane, sent, received)
    _note(draft, data, len(calls), stats)
    return draft.built()


def _task(data: dict[str, Any]) -> str:
    """Return what the model was asked before its first answer."""
    asked = takewhile(lambda entry: entry.get("role") != "assistant", objects(data.get("history")))
    return text_in([entry for entry in asked if entry.get("role") == "user"])


def _written(step: dict[str, Any]) -> int:
    """Return how many characters the model wrote; nothing where the harness ended the run by itself."""
    return chars(step.get("response")) or chars(step.get("action"))


def _note(draft: Draft, data: dict[str, Any], calls: int, stats: dict[str, Any]) -> None:
    known = first_tokens(stats, "tokens_sent", most=MAX_TOKENS)
    draft.odd["tokens estimated from text, scaled to the totals" if known else ESTIMATED] += calls
    draft.odd["call without a time"] += calls
    draft.odd["call without a step of its own"] += max((first_tokens(stats, "api_calls") or 0) - calls, 0)
    first = next((h for h in objects(data.get("history")) if h.get("role") == "system"), None)
    if first is not None:
        draft.system_tokens = text_tokens(chars(first))
        draft.odd["system prompt estimated from text"] += 1


def _model(data: dict[str, Any]) -> str:
    config = data.get("replay_config")
    if isinstance(config, str):
        found = re.search(r'"model"\s*:\s*\{\s*"name"\s*:\s*"([^"]{1,100})"', config)
        return words(found[1] if found else None, "unknown")
    return words(sub(config, "agent", "model").get("name"), "unknown")


def _prompts(calls: list[dict[str, Any]], history: list[dict[str, Any]]) -> list[int]:
    """Return the characters of each call's prompt: as it was sent, else by the history, else by the steps."""
    by_history, so_far = [], 0
    for entry in history:
        if entry.get("role") == "assistant" and not entry.get("is_demo"):
            by_history.append(so_far)
        so_far += chars(entry)
    head = by_history[0] if by_history else so_far
    if len(by_history) < len(calls):
        by_history = []
    found, grown = [], head
    for index, step in enumerate(calls):
        sent = chars(step.get("query") or step.get("messages"))
        found.append(sent or (by_history[index] if by_history else grown))
        grown += chars(step.get("response")) + chars(step.get("observation"))
    return found


def _wait(draft: Draft, step: dict[str, Any], now_s: float, keep_text: bool) -> RecordedWait:
    length_s = number(step.get("execution_time"))
    if length_s is not None and not 0 <= length_s <= LONGEST_S:
        draft.odd["tool of negative time" if length_s < 0 else "tool of absurd time"] += 1
        length_s = None
    timing: Timing = "absent" if length_s is None else "measured"
    first = str(step["action"]).split(None, 1)[:1]
    name = first[0] if first and first[0] in _TOOLS else _SHELL
    texts = [text_in(step.get(key)) for key in ("action", "observation")] if keep_text else []
    return RecordedWait(now_s, length_s or 0.0, "tool", name, 0, timing, *texts)
