"""OpenTelemetry GenAI spans as OTLP/JSON: one export over the whole file, or one export a line.

Traces of one `gen_ai.conversation.id` are one session. Other spans are read for who started whom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentsim.importers._json_values import json_values, plain_text, text
from agentsim.importers._span_attributes import (
    asked_of,
    flat,
    kind_of,
    label_of,
    model_of,
    response_of,
    session_of,
    ttft_of,
    usage_of,
)
from agentsim.importers._span_texts import texts_of, value_of
from agentsim.importers._span_trees import Span
from agentsim.importers._spans import recorded_sessions
from agentsim.importers._values import instant_ns
from agentsim.recorded import RecordedSession

_MARKS = (b'"resourceSpans"', b'"resource_spans"')
_SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans")
_VALUE_KEYS = (
    "stringValue",
    "string_value",
    "intValue",
    "int_value",
    "doubleValue",
    "double_value",
    "boolValue",
    "bool_value",
)


@dataclass(frozen=True)
class Otel:
    """The importer of this format."""

    name: str = "otel"

    def recognises(self, path: str, head: bytes) -> bool:  # noqa: ARG002  (content decides, not the name)
        """Tell it by the key around exported spans."""
        return head.lstrip()[:1] in (b"{", b"[") and any(mark in head for mark in _MARKS)

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield the sessions; all spans are read first, for traces stand mixed in a file."""
        odd: Counter[str] = Counter()
        yield from recorded_sessions(_spans(path, odd, False), self.name, path, odd)

    def sessions_with_text(self, path: str) -> Iterator[RecordedSession]:
        """Yield them with what was said."""
        odd: Counter[str] = Counter()
        yield from recorded_sessions(_spans(path, odd, True), self.name, path, odd)


PLUGIN = Otel()


def _spans(path: str, odd: Counter[str], keep_text: bool) -> Iterator[Span]:
    for _, value in json_values(path, odd):
        for export in _dicts([value]) if isinstance(value, dict) else _dicts(value):
            for resource in _dicts(_any(export, "resourceSpans", "resource_spans")):
                for scope in _dicts(_any(resource, *_SCOPES)):
                    yield from (_span(data, keep_text) for data in _dicts(scope.get("spans")))


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())


def _any(data: Mapping[str, Any], *keys: str) -> Any:
    for key in keys:
        if key in data:
            return data[key]
    return None


def _span(data: dict[str, Any], keep_text: bool) -> Span:
    attributes = flat(_attributes(data.get("attributes")))
    kind = kind_of(attributes)
    status = data.get("status")
    code = status.get("code") if isinstance(status, dict) else None
    texts = texts_of(kind, _all_attributes(data), data.get("events")) if keep_text else ("", "")
    return Span(
        trace=text(_any(data, "traceId", "trace_id")),
        id=plain_text(_any(data, "spanId", "span_id")),
        parent=text(_any(data, "parentSpanId", "parent_span_id")),
        kind=kind,
        name=label_of(kind, attributes, text(data.get("name"))),
        start_ns=instant_ns(_any(data, "startTimeUnixNano", "start_time_unix_nano")),
        end_ns=instant_ns(_any(data, "endTimeUnixNano", "end_time_unix_nano")),
        model=model_of(attributes),
        usage=usage_of(attributes),
        ttft_s=ttft_of(attributes),
        failed=code in (2, "2", "STATUS_CODE_ERROR"),
        response=response_of(attributes),
        session=session_of(attributes),
        asked=asked_of(attributes),
        given=texts[0],
        gave=texts[1],
    )


def _all_attributes(data: dict[str, Any]) -> dict[str, Any]:
    """Return attributes with lists and mappings among them, for the texts of messages."""
    given = data.get("attributes")
    if isinstance(given, dict):
        return given
    return {text(item.get("key")): value_of(item.get("value")) for item in _dicts(given)}


def _attributes(value: Any) -> dict[str, Any]:
    """Return OTLP's list of keys and typed values as a plain mapping; texts of messages stay out."""
    if isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for item in _dicts(value):
        key, typed = text(item.get("key")), item.get("value")
        if key and isinstance(typed, dict):
            found[key] = _any(typed, *_VALUE_KEYS)
    return found
