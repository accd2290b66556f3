"""Langfuse trace exports: a trace with its observations, one over the whole file or one a line.

Why so: `latency` is in s in most exports and in ms in some, so lengths come from the times alone.
What wraps a model call is often a GENERATION as well, with tokens counted again; the innermost counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentsim.importers._json_values import json_value, json_values, text
from agentsim.importers._span_attributes import (
    NO_TOOLS,
    Kind,
    Usage,
    asked_of,
    flat,
    kind_of,
    label_of,
    model_of,
    response_of,
    settled,
    usage_of,
)
from agentsim.importers._span_texts import texts_of
from agentsim.importers._span_trees import S, Span
from agentsim.importers._spans import recorded_sessions
from agentsim.importers._values import instant_ns, tokens
from agentsim.recorded import RecordedSession

_TYPES: Mapping[str, Kind] = {"GENERATION": "model", "TOOL": "tool", "AGENT": "agent"}
_NO_WAIT = frozenset(("EVENT", "EMBEDDING", "EVALUATOR", "GUARDRAIL"))
_READ = (
    "input_cached_tokens",
    "input_cache_read",
    "input_cached",
    "cache_read_input_tokens",
    "input_cache_read_tokens",
    "prompt_details.cache_read",
    "prompt_tokens_details.cached_tokens",
)
_WRITE = (
    "input_cache_creation",
    "cache_creation_input_tokens",
    "input_cache_creation_tokens",
    "prompt_details.cache_write",
)
_REASONING = (
    "output_reasoning",
    "output_reasoning_tokens",
    "completion_details.reasoning",
    "completion_tokens_details.reasoning_tokens",
)
_INCLUDED = ("prompt_details.", "prompt_tokens_details.", "completion_details.", "completion_tokens_details.")


@dataclass(frozen=True)
class Langfuse:
    """The importer of this format."""

    name: str = "langfuse"

    def recognises(self, path: str, head: bytes) -> bool:  # noqa: ARG002  (content decides, not the name)
        """Tell it by the observations' link to their parent, or by a trace beside its observations."""
        begins = head.lstrip()[:1] in (b"{", b"[")
        beside = b'"trace"' in head and b'"observations"' in head and b'"projectId"' in head
        return begins and (beside or b'"parentObservationId"' in head)

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield the sessions: the traces of one `sessionId`, or each trace that has none."""
        return _sessions(path, keep_text=False)

    def sessions_with_text(self, path: str) -> Iterator[RecordedSession]:
        """Yield them with what was said."""
        return _sessions(path, keep_text=True)


PLUGIN = Langfuse()


def _sessions(path: str, keep_text: bool) -> Iterator[RecordedSession]:
    odd: Counter[str] = Counter()
    spans = (span for _, value in json_values(path, odd) for span in _spans(value, keep_text))
    yield from recorded_sessions(spans, PLUGIN.name, path, odd)


def _spans(value: Any, keep_text: bool) -> Iterator[Span]:
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, dict):
            continue
        inside = item.get("observations")
        if isinstance(inside, list):
            trace = item.get("trace") if isinstance(item.get("trace"), dict) else item
            about = trace if isinstance(trace, dict) else {}
            yield from (_span(o, about, keep_text) for o in inside if isinstance(o, dict))
        elif "startTime" in item:
            yield _span(item, {}, keep_text)


def _span(data: dict[str, Any], trace: Mapping[str, Any], keep_text: bool) -> Span:
    attributes = _attributes(data.get("metadata"))
    kind = _TYPES.get(text(data.get("type"))) or _kind(text(data.get("type")), attributes)
    start_ns, first = instant_ns(data.get("startTime")), instant_ns(data.get("completionStartTime"))
    values = {"input.value": data.get("input"), "output.value": data.get("output")}
    texts = texts_of(kind, values) if keep_text else ("", "")
    return Span(
        trace=text(data.get("traceId")) or text(trace.get("id")),
        id=text(data.get("id")),
        parent=text(data.get("parentObservationId")),
        kind=kind,
        name=label_of(kind, attributes, text(data.get("name"))),
        start_ns=start_ns,
        end_ns=instant_ns(data.get("endTime")),
        model=text(data.get("model")) or model_of(attributes),
        usage=_usage(data) or usage_of(attributes),
        ttft_s=(first - start_ns) / S if first and start_ns else None,
        failed=data.get("level") == "ERROR",
        response=response_of(attributes),
        session=text(trace.get("sessionId")) or text(data.get("sessionId")),
        asked=_asked(data.get("toolCallNames")) or asked_of(attributes),
        given=texts[0],
        gave=texts[1],
    )


def _kind(type_: str, attributes: Mapping[str, Any]) -> Kind:
    """Return what an observation that is no GENERATION did; older exports know spans only."""
    kind = kind_of(attributes) if type_ not in _NO_WAIT else "other"
    return kind if kind != "model" else "other"


def _attributes(metadata: Any) -> dict[str, Any]:
    """Return the span attributes that an OpenTelemetry ingestion left in the metadata."""
    if isinstance(metadata, str) and metadata[:1] == "{" and '"attributes"' in metadata:
        try:
            metadata = json_value(metadata)
        except ValueError:
            return {}
    return flat(metadata.get("attributes")) if isinstance(metadata, dict) else {}


def _asked(names: Any) -> frozenset[str]:
    return frozenset(filter(None, map(text, names))) if isinstance(names, list) and names else NO_TOOLS


def _usage(data: Mapping[str, Any]) -> Usage | None:
    """Return the tokens of a generation: by kind where they are, else as input, output and total.

    Langfuse counts what has a kind of its own, such as `input_cached_tokens`, apart from `input`.
    """
    counts = data.get("usageDetails")
    counts = flat(counts) if isinstance(counts, dict) and counts else _old_counts(data)
    given = {key: found for key, value in counts.items() if (found := tokens(value)) is not None}
    if not any(given.get(key) for key in ("input", "output", "total")):
        return None
    names = [next((key for key in keys if given.get(key)), "") for keys in (_READ, _WRITE, _REASONING)]
    read, write, thinking = (given.get(name, 0) for name in names)
    apart = not any(name.startswith(_INCLUDED) for name in names)
    total = given.get("total")
    return settled(given.get("input", 0), given.get("output", 0), read, write, thinking, total, apart)


def _old_counts(data: Mapping[str, Any]) -> dict[str, Any]:
    usage = data.get("usage")
    if isinstance(usage, dict):
        return {key: usage.get(key) for key in ("input", "output", "total")}
    names = (("input", "promptTokens"), ("output", "completionTokens"), ("total", "totalTokens"))
    return {short: data.get(long) for short, long in names}
