"""What the attributes of a span say, in the vocabularies that instrumentations use.

OpenTelemetry GenAI (new and old names), OpenInference, OpenLLMetry (traceloop) and the Vercel AI SDK.

Why so: whether a prompt's count includes what was cached differs between instrumentations of one name;
a total decides it where there is one, and more cached than prompt tokens cannot be included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from agentsim.importers._json_values import text
from agentsim.importers._values import seconds, tokens

Kind = Literal["model", "tool", "agent", "other"]
Attributes = Mapping[str, Any]

MAX_DEPTH = 12
NO_TOOLS: frozenset[str] = frozenset()

_OPERATIONS: Mapping[str, Kind] = {
    "chat": "model",
    "completion": "model",
    "text_completion": "model",
    "generate_content": "model",
    "execute_tool": "tool",
    "invoke_agent": "agent",
}
_KINDS: Mapping[str, Kind] = {"llm": "model", "tool": "tool", "agent": "agent"}
_KIND_KEYS = ("openinference.span.kind", "traceloop.span.kind", "langsmith.span.kind")
_PROMPT = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "llm.token_count.prompt",
    "llm.usage.prompt_tokens",
    "ai.usage.inputTokens",
    "ai.usage.promptTokens",
)
_OUTPUT = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
    "llm.usage.completion_tokens",
    "ai.usage.outputTokens",
    "ai.usage.completionTokens",
)
_CACHE_READ = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.input_tokens.cached",
    "gen_ai.usage.details.cache_read_tokens",
    "llm.token_count.prompt_details.cache_read",
    "llm.usage.cache_read_input_tokens",
    "ai.usage.cachedInputTokens",
)
_CACHE_WRITE = (
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.details.cache_write_tokens",
    "llm.token_count.prompt_details.cache_write",
    "llm.usage.cache_creation_input_tokens",
)
_REASONING = (
    "gen_ai.usage.reasoning.output_tokens",
    "gen_ai.usage.reasoning_tokens",
    "gen_ai.usage.output_tokens.reasoning",
    "gen_ai.usage.details.reasoning_tokens",
    "llm.token_count.completion_details.reasoning",
    "llm.usage.reasoning_tokens",
    "ai.usage.reasoningTokens",
)
_TOTAL = (
    "gen_ai.usage.total_tokens",
    "llm.token_count.total",
    "llm.usage.total_tokens",
    "ai.usage.totalTokens",
)
_MODEL = (
    "gen_ai.response.model",
    "ai.response.model",
    "llm.response.model",
    "llm.model_name",
    "gen_ai.request.model",
    "llm.request.model",
    "ai.model.id",
)
_TOOL_NAME = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name")
_AGENT_NAME = ("gen_ai.agent.name", "agent.name", "agent_name", "graph.node.id", "traceloop.entity.name")
_SESSION = ("gen_ai.conversation.id", "session.id", "langfuse.session.id", "ai.telemetry.metadata.sessionId")
_RESPONSE = ("gen_ai.response.id", "ai.response.id")
_TTFT_S = ("gen_ai.response.time_to_first_chunk", "gen_ai.server.time_to_first_token")
_TTFT_MS = ("ai.response.msToFirstChunk", "ai.stream.msToFirstChunk")


class Usage(NamedTuple):
    """Tokens of a call. `prompt` includes `cached`, `output` includes `thinking`; `added`: it did not."""

    prompt: int
    cached: int
    output: int
    thinking: int
    added: bool = False


def flat(attributes: Any) -> dict[str, Any]:
    """Return attributes, nested or not, by dotted name; lists are left out."""
    if isinstance(attributes, dict) and not any(isinstance(value, dict) for value in attributes.values()):
        return {key: value for key, value in attributes.items() if key and not isinstance(value, list)}
    found: dict[str, Any] = {}
    stack: list[tuple[str, Any, int]] = [("", attributes, 0)]
    while stack:
        prefix, value, depth = stack.pop()
        if isinstance(value, dict):
            if depth < MAX_DEPTH:
                stack += [(f"{prefix}.{key}" if prefix else key, v, depth + 1) for key, v in value.items()]
        elif prefix and not isinstance(value, list):
            found[prefix] = value
    return found


def kind_of(attributes: Attributes) -> Kind:
    """Return what a span did, `other` where its attributes do not say it."""
    for key in _KIND_KEYS:
        if key in attributes and (kind := _KINDS.get(text(attributes[key]).lower())):
            return kind
    if kind := _OPERATIONS.get(text(attributes.get("gen_ai.operation.name")).lower()):
        return kind
    if text(attributes.get("llm.request.type")) in ("chat", "completion"):
        return "model"
    return _kind_by_sdk(text(attributes.get("ai.operationId")), attributes)


def _kind_by_sdk(operation: str, attributes: Attributes) -> Kind:
    if operation == "ai.toolCall":
        return "tool"
    if operation.startswith(("ai.generate", "ai.stream")):
        return "model"
    if operation or "gen_ai.operation.name" in attributes:
        return "other"
    if "gen_ai.tool.name" in attributes or "tool.name" in attributes:
        return "tool"
    if _first(attributes, _PROMPT) is not None and _text(attributes, _MODEL):
        return "model"
    return "agent" if "gen_ai.agent.name" in attributes else "other"


def usage_of(attributes: Attributes) -> Usage | None:
    """Return the tokens of a call, None where neither prompt nor output is given."""
    prompt, output = _first(attributes, _PROMPT), _first(attributes, _OUTPUT)
    if prompt is None and output is None:
        return None
    read, write = _first(attributes, _CACHE_READ) or 0, _first(attributes, _CACHE_WRITE) or 0
    thinking, total = _first(attributes, _REASONING) or 0, _first(attributes, _TOTAL)
    return settled(prompt or 0, output or 0, read, write, thinking, total)


def settled(
    prompt: int, output: int, read: int, write: int, thinking: int, total: int | None, apart: bool = False
) -> Usage:
    """Return tokens with cache and thinking included, whether they were or not.

    `apart` tells what holds where neither a total nor a contradiction decides.
    """
    cache = read + write
    prompts = (prompt + cache, prompt) if apart or cache > prompt else (prompt, prompt + cache)
    outputs = (output + thinking, output) if apart or thinking > output else (output, output + thinking)
    fitting = [(p, o) for o in outputs for p in prompts if p + o == total and p >= cache and o >= thinking]
    whole, said = fitting[0] if fitting else (prompts[0], outputs[0])
    return Usage(whole, min(read, whole), said, min(thinking, said), added=whole != prompt)


def model_of(attributes: Attributes) -> str:
    """Return the model that answered, else the one asked for, else nothing."""
    return _text(attributes, _MODEL)


def label_of(kind: Kind, attributes: Attributes, name: str) -> str:
    """Return the tool's or the agent's name, else the span's without what says only its kind."""
    keys = _TOOL_NAME if kind == "tool" else _AGENT_NAME if kind == "agent" else ()
    label = _text(attributes, keys) or name
    for prefix in ("execute_tool ", "running tool: ", "invoke_agent "):
        label = label.removeprefix(prefix)
    return label or kind


def session_of(attributes: Attributes) -> str:
    """Return the conversation that a span belongs to, nothing where it is not told."""
    return _text(attributes, _SESSION)


def response_of(attributes: Attributes) -> str:
    """Return the provider's name for the answer, nothing where it is not told."""
    return _text(attributes, _RESPONSE)


def ttft_of(attributes: Attributes) -> float | None:
    """Return the time to the first token in s, None where it is not told."""
    for keys, per_s in ((_TTFT_S, 1.0), (_TTFT_MS, 1000.0)):
        for key in keys:
            if key in attributes and (found := seconds(attributes[key], per_s)) is not None:
                return found
    return None


def asked_of(attributes: Attributes) -> frozenset[str]:
    """Return the names of the tools that an answer asks for, as OpenInference writes them."""
    end = ".tool_call.function.name"
    names = [text(v) for k, v in attributes.items() if k.endswith(end) and "output_messages" in k]
    return frozenset(names) if names else NO_TOOLS


def _first(attributes: Attributes, keys: Iterable[str]) -> int | None:
    for key in keys:
        if key in attributes and (found := tokens(attributes[key])) is not None:
            return found
    return None


def _text(attributes: Attributes, keys: Iterable[str]) -> str:
    for key in keys:
        if key in attributes and (found := text(attributes[key])):
            return found
    return ""
