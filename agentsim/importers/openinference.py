"""OpenInference spans: Phoenix exports and span dumps, attributes flat or nested, in a list or one a line.

A span is known by its id and its times, wherever it stands in the file; GenAI and AI SDK attributes
are read as well. Traces of one `session.id` are one session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentsim.importers._json_values import json_value, json_values, text
from agentsim.importers._span_attributes import (
    MAX_DEPTH,
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
from agentsim.importers._span_texts import texts_of
from agentsim.importers._span_trees import S, Span
from agentsim.importers._spans import recorded_sessions
from agentsim.importers._values import instant_ns
from agentsim.recorded import RecordedSession

_ALL_OF = (
    (b'"spanContext"', b'"attributes"', b'"startTime"'),
    (b'"context"', b'"trace_id"', b'"span_id"', b'"start_time"'),
    (b'"context.trace_id"', b'"start_time"'),
)
_SPEAKS = (b"openinference", b'"span_kind"', b'"llm', b'"ai.', b'"gen_ai', b'"attributes.')
_OTHERS = (b'"resourceSpans"', b'"resource_spans"', b'"observations"', b'"parentObservationId"')
_IDS = ("spanContext.spanId", "context.span_id", "span_id", "spanId")
_TRACES = ("spanContext.traceId", "context.trace_id", "trace_id", "traceId")
_PARENTS = ("parent_id", "parentId", "parentSpanId", "parentSpanContext.spanId")
_STARTS, _ENDS = ("start_time", "startTime"), ("end_time", "endTime")


@dataclass(frozen=True)
class OpenInference:
    """The importer of this format."""

    name: str = "openinference"

    def recognises(self, path: str, head: bytes) -> bool:  # noqa: ARG002  (content decides, not the name)
        """Tell it by a span's keys, beside attributes of a vocabulary that is read here."""
        begins = head.lstrip()[:1] in (b"{", b"[") and not any(mark in head for mark in _OTHERS)
        shaped = any(all(mark in head for mark in marks) for marks in _ALL_OF)
        return begins and shaped and any(mark in head for mark in _SPEAKS)

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield the sessions; all spans are read first, for traces stand mixed in a file."""
        return _sessions(path, keep_text=False)

    def sessions_with_text(self, path: str) -> Iterator[RecordedSession]:
        """Yield them with what was said."""
        return _sessions(path, keep_text=True)


PLUGIN = OpenInference()


def _sessions(path: str, keep_text: bool) -> Iterator[RecordedSession]:
    odd: Counter[str] = Counter()
    spans = (span for _, value in json_values(path, odd) for span in _spans(value, keep_text))
    yield from recorded_sessions(spans, PLUGIN.name, path, odd)


def _spans(value: Any, keep_text: bool, depth: int = 0) -> Iterator[Span]:
    """Yield the spans in a JSON value: itself, or those in the lists and objects inside."""
    if isinstance(value, dict) and _is_span(value):
        yield _span(value, keep_text)
    elif depth < MAX_DEPTH and isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _spans(inner, keep_text, depth + 1)


def _is_span(data: Mapping[str, Any]) -> bool:
    return any(k in data for k in _STARTS) and any(k.partition(".")[0] in data or k in data for k in _IDS)


def _span(data: dict[str, Any], keep_text: bool) -> Span:
    attributes, about = _attributes(data), flat({k: v for k, v in data.items() if k in _PLACES})
    about |= {key: data[key] for key in (*_IDS, *_TRACES) if key in data}
    kind = kind_of(attributes)
    start_ns, end_ns = (instant_ns(_any(data, keys)) for keys in (_STARTS, _ENDS))
    first = _first_token_ns(data.get("events"))
    texts = texts_of(kind, _raw_attributes(data), data.get("events")) if keep_text else ("", "")
    late_s = (first - start_ns) / S if first and start_ns else None
    return Span(
        trace=text(_any(about, _TRACES)),
        id=text(_any(about, _IDS)),
        parent=text(_any({**data, **about}, _PARENTS)),
        kind=kind,
        name=label_of(kind, attributes, text(data.get("name"))),
        start_ns=start_ns,
        end_ns=end_ns,
        model=model_of(attributes),
        usage=usage_of(attributes),
        ttft_s=late_s if late_s is not None else ttft_of(attributes),
        failed=_failed(data),
        response=response_of(attributes),
        session=session_of(attributes),
        asked=asked_of(attributes),
        given=texts[0],
        gave=texts[1],
    )


_PLACES = frozenset(("context", "spanContext", "parentSpanContext"))


def _attributes(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a span's attributes by dotted name, with its kind among them where it stands beside them."""
    found = flat(_raw_attributes(data))
    if kind := text(data.get("span_kind")):
        found.setdefault("openinference.span.kind", kind)
    return found


def _raw_attributes(data: Mapping[str, Any]) -> dict[str, Any]:
    given = data.get("attributes")
    if isinstance(given, str):
        try:
            given = json_value(given)
        except ValueError:
            given = None
    start = "attributes."
    beside = {key.removeprefix(start): value for key, value in data.items() if key.startswith(start)}
    return {**(given if isinstance(given, dict) else {}), **beside}


def _any(data: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((data[key] for key in keys if data.get(key) is not None), None)


def _failed(data: Mapping[str, Any]) -> bool:
    status = data.get("status")
    code = status.get("code", status.get("status_code")) if isinstance(status, dict) else None
    return (code if code is not None else data.get("status_code")) in (2, "ERROR", "error")


def _first_token_ns(events: Any) -> int | None:
    """Return when the first token came, where an event of the span says so."""
    for event in events if isinstance(events, list) else ():
        name = text(event.get("name")) if isinstance(event, dict) else ""
        if name in ("First Token Stream Event", "ai.stream.firstChunk"):
            return instant_ns(_any(event, ("timestamp", "time")))
    return None
