"""What counts of an OpenHands event, of V0 or of the V1 SDK, and of the metrics beside the events.

An event says when it was made: an action when the model's answer was there, an observation when the tool
was done. Latencies stand apart, in `metrics`, and are joined on the id of the response; there are calls
that no event carries the id of (an answer that could not be parsed, a condenser), so never on the index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agentsim.importers._texts import text_in, written
from agentsim.importers._trajectory import (
    Usage,
    chars,
    sub,
    usage_of,
    words,
)
from agentsim.importers._values import duration, instant
from agentsim.importers.base import objects

Role = Literal["answer", "result", "user", "condensation", "state", "system", "other"]

_NOT_BY_MODEL = {
    "system", "recall", "condensation_request", "change_agent_state", "null", "start", "pause", "resume",
    "stop", "loop_recovery",
}  # fmt: skip
_NO_RESULT = {"message", "finish", "reject"}
RECALL, HUMAN = "recall", "human"


@dataclass(slots=True)
class Event:
    """What counts of one event; `text` are the characters that it brings into the context.

    `said` is what was said and `arguments` what a tool was given; both only where asked for.
    """

    role: Role
    key: str | None
    at_s: float | None
    name: str = ""
    cause: str | None = None
    tool_call: str | None = None
    response: str | None = None
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    text: int = 0
    delegate: str | None = None
    said: str = ""
    arguments: str = ""


def event_of(data: Mapping[str, Any], keep_text: bool = False) -> Event:
    """Read one event; of one that is not known only the time counts."""
    event = _event_of(data)
    if keep_text:
        event.said, event.arguments = _said(data), _arguments(data)
    return event


def _said(data: Mapping[str, Any]) -> str:
    """Return what an event says: a message, a thought, what a tool gave back."""
    args, observed = sub(data, "args"), data.get("observation")
    response = objects(sub(data, "tool_call_metadata", "model_response").get("choices"))
    if isinstance(observed, str):
        return text_in(data.get("content"))
    places = (
        args.get("content"), [sub(choice, "message") for choice in response], args.get("thought"),
        data.get("llm_message"), observed, data.get("thought"), data.get("error"),
    )  # fmt: skip
    return next((found for place in places if (found := text_in(place))), "")


def _arguments(data: Mapping[str, Any]) -> str:
    args = {key: value for key, value in sub(data, "args").items() if key != "thought"}
    return written(data.get("action") if isinstance(data.get("kind"), str) else args or None)


def _event_of(data: Mapping[str, Any]) -> Event:
    key = _key(data.get("id"))
    at_s = instant(data.get("timestamp"))
    if isinstance(data.get("kind"), str):
        return _sdk_event(data, key, at_s)
    if isinstance(data.get("observation"), str):
        return _observation(data, key, at_s)
    return _action(data, key, at_s)


def _key(value: Any) -> str | None:
    return str(value)[:100] if isinstance(value, str | float) or _is_small(value) else None


def _is_small(value: Any) -> bool:
    return isinstance(value, int) and abs(value) < 1e30  # str() of an int of over 4,300 digits raises


def _observation(data: Mapping[str, Any], key: str | None, at_s: float | None) -> Event:
    kind, meta = str(data["observation"]), sub(data, "tool_call_metadata")
    if kind == "agent_state_changed":
        return Event("state", key, at_s, words(sub(data, "extras").get("agent_state")))
    name = HUMAN if kind == "user_rejected" else words(meta.get("function_name"), words(kind, "tool"))
    return Event(
        "result",
        key,
        at_s,
        name,
        cause=_key(data.get("cause")),
        tool_call=_key(meta.get("tool_call_id")),
        text=chars(data.get("content")),
        delegate=kind if kind == "delegate" else None,
    )


def _action(data: Mapping[str, Any], key: str | None, at_s: float | None) -> Event:
    kind, args = data.get("action"), sub(data, "args")
    text = sum(map(chars, args.values()))
    if data.get("source") == "user" and kind == "message":
        return Event("user", key, at_s, text=text)
    if kind == "condensation":
        return Event("condensation", key, at_s, text=chars(args.get("summary")))
    if kind == "system":
        return Event("system", key, at_s, text=text)
    if not isinstance(kind, str) or kind in _NOT_BY_MODEL or data.get("source") != "agent":
        return Event("other", key, at_s, RECALL if kind == RECALL else "", text=0)
    return _answer(data, key, at_s, kind, text)


def _answer(data: Mapping[str, Any], key: str | None, at_s: float | None, kind: str, text: int) -> Event:
    meta = sub(data, "tool_call_metadata")
    response = sub(meta, "model_response")
    written = sum(chars(sub(choice, "message")) for choice in objects(response.get("choices")))
    return Event(
        "answer",
        key,
        at_s,
        "" if kind in _NO_RESULT else words(meta.get("function_name"), words(kind)),
        tool_call=_key(meta.get("tool_call_id")),
        response=_key(response.get("id") or data.get("response_id")),
        usage=usage_of(sub(response, "usage")),
        model=words(response.get("model")),
        text=written or text,
        delegate=words(sub(data, "args").get("agent"), "sub-agent") if kind == "delegate" else None,
    )


def _sdk_event(data: Mapping[str, Any], key: str | None, at_s: float | None) -> Event:
    kind, name = str(data["kind"]), words(data.get("tool_name"))
    call, response = _key(data.get("tool_call_id")), _key(data.get("llm_response_id"))
    message = chars(sub(data, "llm_message"))
    if kind == "ActionEvent":
        text = sum(chars(data.get(part)) for part in ("thought", "reasoning_content", "tool_call"))
        return Event("answer", key, at_s, name, tool_call=call, response=response, text=text)
    if kind == "MessageEvent":
        role: Role = "answer" if data.get("source") == "agent" else "user"
        return Event(role, key, at_s, response=response, text=message)
    if kind in ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation"):
        if kind == "UserRejectObservation":
            name = "hook" if data.get("rejection_source") == "hook" else HUMAN
        text = chars(sub(data, "observation")) + chars(data.get("error"))
        return Event("result", key, at_s, name or "tool", _key(data.get("action_id")), call, text=text)
    if kind == "SystemPromptEvent":
        return Event("system", key, at_s, text=chars(data.get("system_prompt")))
    if kind == "Condensation":
        return Event("condensation", key, at_s, response=response, text=chars(data.get("summary")))
    if kind == "ConversationStateUpdateEvent" and data.get("key") in ("agent_status", "execution_status"):
        waits = data.get("value") == "waiting_for_confirmation"
        return Event("state", key, at_s, "awaiting_user_confirmation" if waits else "user_confirmed")
    return Event("other", key, at_s)


@dataclass(slots=True)
class Metrics:
    """What stands apart from the events, by response id: the order of the calls, latencies, usage."""

    order: dict[str, None] = field(default_factory=dict)
    latencies: dict[str, float] = field(default_factory=dict)
    usages: dict[str, Usage] = field(default_factory=dict)
    model: str = ""

    def add(self, data: Mapping[str, Any], odd: Counter[str]) -> None:
        for index, item in enumerate(objects(data.get("response_latencies"))):
            latency = duration(item.get("latency"), odd)
            key = _key(item.get("response_id")) or f"latency {index}"
            self.order[key] = None
            if latency:
                self.latencies.setdefault(key, latency)
            self.model = self.model or words(item.get("model"))
        for item in objects(data.get("token_usages")):
            self.usages.setdefault(_key(item.get("response_id")) or "", usage_of(item))


def flat(history: Any) -> list[dict[str, Any]]:
    """Return the events of a history; old ones hold pairs of action and observation."""
    found: list[dict[str, Any]] = []
    for item in history if isinstance(history, Sequence) and not isinstance(history, str) else ():
        found += [item] if isinstance(item, dict) else objects(item)
    return found
