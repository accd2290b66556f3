"""What was said in a span, in the vocabularies that instrumentations use; read only where it is asked for.

A model call's span holds its whole prompt; what is kept of it is what a user said last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from agentsim.importers._json_values import json_value
from agentsim.importers._span_attributes import Kind
from agentsim.importers._texts import text_in, written
from agentsim.importers.base import objects

Texts = tuple[str, str]
"""What a model or a tool was given, and what it gave."""

_PROMPTS = ("gen_ai.input.messages", "ai.prompt.messages", "llm.input_messages", "ai.prompt", "input.value")
_ANSWERS = ("gen_ai.output.messages", "ai.response.text", "llm.output_messages", "output.value")
_ARGUMENTS = (
    "gen_ai.tool.call.arguments", "ai.toolCall.args", "tool.parameters", "traceloop.entity.input",
    "input.value",
)  # fmt: skip
_RESULTS = ("gen_ai.tool.call.result", "ai.toolCall.result", "traceloop.entity.output", "output.value")
_INDEXED = {
    "given": re.compile(r"(?:gen_ai\.prompt|llm\.input_messages)\.(\d{1,6})\.(?:message\.)?(role|content)"),
    "gave": re.compile(
        r"(?:gen_ai\.completion|llm\.output_messages)\.(\d{1,6})\.(?:message\.)?(role|content)"
    ),
}


def texts_of(kind: Kind, attributes: Mapping[str, Any], events: Any = None) -> Texts:
    """Return what a span was given and what it gave, by its attributes, nested or flat, and its events."""
    if kind == "tool":
        return written(_first(attributes, _ARGUMENTS)), written(_first(attributes, _RESULTS))
    if kind != "model":
        return "", ""
    prompt = _indexed(attributes, "given") or _first(attributes, _PROMPTS) or _told(events, "user")
    answer = _indexed(attributes, "gave") or _first(attributes, _ANSWERS) or _told(events, "choice")
    return last_said(prompt), text_in(_messages(answer))


def last_said(prompt: Any) -> str:
    """Return what a user said last in the messages of a prompt, or the prompt where it is one text."""
    messages = _messages(prompt)
    if isinstance(messages, str):
        return messages
    users = (m for m in reversed(messages) if m.get("role") in ("user", "human"))
    return next((found for m in users if (found := text_in(m))), "")


def _messages(value: Any) -> Any:
    """Return the messages in a value, however they are wrapped, or the text that it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            value = json_value(value)
        except ValueError:
            return value
    if isinstance(value, dict):
        value = value.get("messages", value.get("choices", [value]))
    return [_unwrapped(item) for item in objects(value)] if isinstance(value, list) else value or ""


def _unwrapped(item: dict[str, Any]) -> dict[str, Any]:
    inner = item.get("message")
    plain = {key.removeprefix("message."): value for key, value in item.items()}
    return inner if isinstance(inner, dict) else plain


def _first(attributes: Mapping[str, Any], keys: Iterable[str]) -> Any:
    return next((found for key in keys if (found := _at(attributes, key))), None)


def _at(attributes: Any, dotted: str) -> Any:
    if dotted in attributes:
        return attributes[dotted]
    for part in dotted.split("."):
        attributes = attributes.get(part) if isinstance(attributes, dict) else None
    return attributes


def _indexed(attributes: Mapping[str, Any], which: str) -> list[dict[str, Any]]:
    """Return messages that stand under numbered names."""
    found: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        if match := _INDEXED[which].fullmatch(key):
            found.setdefault(int(match[1]), {})[match[2]] = value
    return [found[index] for index in sorted(found)]


def _told(events: Any, end: str) -> list[dict[str, Any]]:
    """Return the messages that a span's events hold, of the names that end so."""
    named = [e for e in objects(events) if str(e.get("name")).endswith((f".{end}.message", f".{end}"))]
    return [{"role": "user", "content": written(_plain(e.get("attributes")))} for e in named]


def _plain(attributes: Any) -> Any:
    """Return what an event's attributes say, OTLP's list of keys and values or a mapping."""
    pairs = {str(a.get("key")): value_of(a.get("value")) for a in objects(attributes)}
    given = attributes if isinstance(attributes, dict) else pairs
    keys = ("gen_ai.event.content", "content", "gen_ai.prompt", "gen_ai.completion", "message")
    return next((given[key] for key in keys if given.get(key)), "")


def value_of(typed: Any, depth: int = 0) -> Any:
    """Return what a typed value of OTLP holds, lists and mappings as well."""
    if not isinstance(typed, dict) or depth > 12:
        return None
    for key, value in typed.items():
        name = key.replace("_", "").lower()
        inside = objects(value.get("values")) if isinstance(value, dict) else []
        if name == "arrayvalue":
            return [value_of(item, depth + 1) for item in inside]
        if name == "kvlistvalue":
            return {str(item.get("key")): value_of(item.get("value"), depth + 1) for item in inside}
        return value
    return None
