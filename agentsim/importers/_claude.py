"""From the rows of a Claude Code session to its calls, tools and prompts.

A model call is all rows of one `message.id`: one row a content block, with the usage repeated and in early
rows partial. It begins with the latest row that fed it, found along `parentUuid`, not by place in the file.

Why so: rewinds, copies by resume and parallel results make the order of rows, and even their times,
say less than their links. Rows that a resume stamped anew share one time; such calls have no duration.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentsim.importers._claude_lanes import MAIN, Call, Compacted, LaneLog, Mark, lanes_of
from agentsim.importers._estimate import text_tokens
from agentsim.importers._rows import (
    Row,
    ToolUse,
    key_of,
    mapping,
    name_of,
    session_of,
)
from agentsim.importers._texts import answers_in, text_in, together, written
from agentsim.importers._values import Odd, counted, duration, time_of
from agentsim.importers.base import objects
from agentsim.recorded import RecordedSession

_ASKING = frozenset({"AskUserQuestion", "ExitPlanMode", "EnterPlanMode"})
_AGENTS = frozenset({"Task", "Agent", "Workflow", "TaskOutput", "AgentOutputTool", "Skill"})
_REFUSED = ("The user doesn't want to proceed", "User rejected", "Error: The user doesn't want to proceed")
_ANSWER = re.compile(r'"="([^"]*)"')
_TOLD = "the user said:\n"
_MAX_HOPS = 10_000


class _Node(NamedTuple):
    """A row in the tree of rows. `call` is set for answers; `retry` for an error of the service."""

    parent: int | None
    time_s: float
    lane: str
    call: str | None = None
    answer: bool = False
    retry: bool = False


@dataclass(slots=True)
class _Fed:
    """When a call had all its input; `ready_s` is before a failed attempt and its pause, `start_s` after."""

    ready_s: float | None = None
    start_s: float | None = None

    def at(self, time_s: float, retry: bool = False) -> None:
        if not retry:
            self.ready_s = time_s if self.ready_s is None else max(self.ready_s, time_s)
        self.start_s = time_s if self.start_s is None else max(self.start_s, time_s)


@dataclass(slots=True)
class Session:
    """Takes rows in file order, of the session and then of its sub-agents; `read` gives the session."""

    name: str
    form: str
    place: str
    odd: Odd = field(default_factory=Odd)
    agents: set[str] = field(default_factory=set)
    read_agents: set[str] = field(default_factory=set)
    nodes: dict[int, _Node] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    uses: dict[str, ToolUse] = field(default_factory=dict)
    use_lanes: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    lanes: dict[str, LaneLog] = field(default_factory=dict)
    clock_s: float | None = None
    side: str | None = None
    keep_text: bool = False
    id: str = ""

    def read(self) -> RecordedSession:
        """Return the session. Raises `ImportFormatError` where it holds no call."""
        for lane, log in self.lanes.items():
            log.parent = None if lane == MAIN else self.use_lanes.get(lane, MAIN)
        self.nodes.clear()  # what is not needed any more makes room for the events
        lanes = lanes_of(self.lanes, self.calls, self.uses, self.kinds, self.odd)
        self.calls.clear()
        self.uses.clear()
        return session_of(self.name, self.form, lanes, self.odd, self.place, self.id)

    def take(self, row: Row, agent: str | None = None) -> None:
        """Read one row; `agent` is the sub-agent whose file it is from."""
        kind, uuid = row.get("type"), key_of(row.get("uuid"))
        self.id = self.id or key_of(row.get("sessionId")) or ""
        if kind not in ("assistant", "user", "system") and uuid is None:
            return
        if uuid is not None and hash(uuid) in self.nodes:
            self.odd["row written again"] += 1
            return
        time_s = time_of(row.get("timestamp"), self.odd)
        lane = self._lane(row, agent)
        if kind == "assistant":
            self._answer(row, lane, time_s)
        elif kind == "user":
            self._input(row, lane, time_s)
        elif kind == "system":
            self._system(row, lane, time_s)
        elif time_s is not None:
            self._node(row, lane, time_s)
        self.clock_s = time_s if time_s is not None else self.clock_s

    def _lane(self, row: Row, agent: str | None) -> str:
        """Return the lane of a row: its sub-agent's, named by the row or found along its parents."""
        inside = agent or key_of(row.get("parent_tool_use_id"))
        if inside is None and row.get("isSidechain") is True:
            inside = key_of(row.get("agentId")) or self._side_lane(row)
        lane = inside or MAIN
        self.lanes.setdefault(lane, LaneLog())
        return lane

    def _side_lane(self, row: Row) -> str:
        parent = key_of(row.get("parentUuid"))
        node = self.nodes.get(hash(parent)) if parent else None
        if node is not None and node.lane != MAIN:
            return node.lane
        if parent is None or self.side is None:
            self.side = str(sum(x.isdecimal() for x in self.lanes) + 1)
        return self.side

    def _node(self, row: Row, lane: str, time_s: float, **more: Any) -> None:
        uuid, parent = key_of(row.get("uuid")), key_of(row.get("parentUuid"))
        if uuid:
            self.nodes[hash(uuid)] = _Node(hash(parent) if parent else None, time_s, lane, **more)

    def _mark(self, lane: str, time_s: float, kind: Mark) -> None:
        self.lanes[lane].marks.append((time_s, kind))

    def describe(self, agent: str, meta: Row) -> None:
        """Note what a sub-agent's description says: its type, and the tool call that started it."""
        self.kinds[agent] = name_of(meta.get("agentType"), self.kinds.get(agent, "sub-agent"))[:40]
        lane = self.use_lanes.get(key_of(meta.get("toolUseId")) or "")
        if lane is not None:
            self.use_lanes.setdefault(agent, lane)

    # ---- answers

    def _answer(self, row: Row, lane: str, time_s: float | None) -> None:
        message = mapping(row.get("message"))
        at_s = self._known(time_s)
        if message.get("model") == "<synthetic>" or row.get("isApiErrorMessage") is True:
            self.odd["answer made up by the harness, no model call"] += 1
            self._node(row, lane, at_s, answer=True)
            self._mark(lane, at_s, Mark.AGENT)
            return
        key = key_of(message.get("id")) or key_of(row.get("requestId"))
        if key is None and not mapping(message.get("usage")):
            self.odd["answer without id and usage"] += 1
            self._node(row, lane, at_s, answer=True)
            return
        key = key or key_of(row.get("uuid")) or f"call {len(self.calls)}"
        call = self.calls.get(key)
        if call is not None and call.lane != lane:
            self.odd["answer copied from another agent"] += 1
            self._node(row, lane, at_s, answer=True)
            return
        self._add_row(row, lane, key, message, at_s, time_s is not None)

    def _known(self, time_s: float | None) -> float:
        """Return a row's time, where it has none that of the row before."""
        if time_s is not None:
            return time_s
        self.odd["row without a time"] += 1
        return self.clock_s if self.clock_s is not None else 0.0

    def _add_row(self, row: Row, lane: str, key: str, message: Row, at_s: float, timed: bool) -> None:
        call = self.calls.get(key)
        if call is None:
            fed = self._fed(row, lane, at_s)
            start_s = fed.start_s if fed.start_s is not None else at_s
            ready_s = fed.ready_s if fed.ready_s is not None else start_s
            known = timed and fed.start_s is not None
            if timed and not known:
                self.odd["answer without a known input"] += 1
            call = self.calls[key] = Call(lane, ready_s, start_s, at_s, at_s, known)
            call.said = together(self.lanes[lane].said)
            self.lanes[lane].said.clear()
        elif self._goes_on(row, key):
            call.end_s = max(call.end_s, at_s)
        else:
            self.odd["answer written again"] += 1
        self._node(row, lane, at_s, call=key, answer=True)
        self._usage(call, message)
        for block in objects(message.get("content")):
            self._block(call, block, at_s, timed)

    def _goes_on(self, row: Row, key: str) -> bool:
        """Tell whether a row of a call that is known goes on with it, rather than being a copy of its row."""
        if key_of(row.get("uuid")) is None:
            return True
        parent = key_of(row.get("parentUuid"))
        node = self.nodes.get(hash(parent)) if parent else None
        return any(x.call == key for x in self._up(node))

    def _up(self, node: _Node | None) -> Iterator[_Node]:
        """Yield a row and those it hangs from, up to the nearest answer."""
        for _ in range(_MAX_HOPS):
            if node is None:
                return
            yield node
            if node.answer:
                return
            node = self.nodes.get(node.parent) if node.parent is not None else None

    def _fed(self, row: Row, lane: str, by_s: float) -> _Fed:
        """Return when the call that a row begins had its input, of what was there `by_s`."""
        fed = _Fed()
        parent = key_of(row.get("parentUuid"))
        for node in self._up(self.nodes.get(hash(parent)) if parent else None):
            if node.time_s <= by_s:
                fed.at(node.time_s, node.retry)
            if node.call:
                ends = (self.uses[key].end_s for key in self.calls[node.call].uses)
                for end_s in (x for x in ends if x is not None and x <= by_s):
                    fed.at(end_s)
        last_s = self.lanes[lane].last_input_s
        if fed.start_s is None and last_s is not None and last_s <= by_s:
            fed.at(last_s)
        return fed

    def _usage(self, call: Call, message: Row) -> None:
        """Keep the row's usage where it counts at least as much output as those before."""
        usage = mapping(message.get("usage"))
        output = counted(usage.get("output_tokens"), self.odd)
        if not usage or output < call.output:
            return
        cached = counted(usage.get("cache_read_input_tokens"), self.odd)
        fresh = counted(usage.get("input_tokens"), self.odd)
        fresh += counted(usage.get("cache_creation_input_tokens"), self.odd)
        call.prompt, call.cached, call.output = fresh + cached, cached, output
        call.model = name_of(message.get("model"))

    def _block(self, call: Call, block: Row, at_s: float, timed: bool) -> None:
        kind = block.get("type")
        text = block.get("text") if kind == "text" else None
        if isinstance(text, str):
            call.chars += len(text)
            if self.keep_text and text not in call.texts:
                call.texts = (*call.texts, text)
        if kind == "thinking":
            call.chars += len(_string(block.get("thinking")))
        key = key_of(block.get("id"))
        if kind != "tool_use" or key is None or key in self.uses:
            return
        call.chars += sum(len(_string(value)) for value in mapping(block.get("input")).values())
        name = name_of(block.get("name"))
        long = name in _AGENTS or name.startswith("mcp__")
        self.uses[key] = ToolUse(
            name, at_s, call.start_s, timed=timed, asks_human=name in _ASKING, may_be_long=long
        )
        self.uses[key].text = written(block.get("input")) if self.keep_text else ""
        self.use_lanes[key] = call.lane
        call.uses.append(key)
        self.kinds[key] = name_of(mapping(block.get("input")).get("subagent_type"), "sub-agent")[:40]

    # ---- what comes in

    def _input(self, row: Row, lane: str, time_s: float | None) -> None:
        at_s = self._known(time_s)
        self._node(row, lane, at_s)
        log = self.lanes[lane]
        log.last_input_s = at_s
        content = mapping(row.get("message")).get("content")
        results = [x for x in objects(content) if x.get("type") == "tool_result"]
        for block in results:
            self._result(row, block, lane, at_s, single=len(results) == 1)
        if results:
            self._mark(lane, at_s, Mark.RESULT)
        elif row.get("isCompactSummary") is True:
            self._summary(log, content, at_s)
        elif row.get("isMeta") is not True:
            self._mark(lane, at_s, _said(row, _text_of(content)))
            log.said += [text_in(content)] if self.keep_text else []

    def _result(self, row: Row, block: Row, lane: str, at_s: float, single: bool) -> None:
        key = key_of(block.get("tool_use_id")) or ""
        outcome = row.get("toolUseResult", row.get("tool_use_result")) if single else None
        agent = key_of(mapping(outcome).get("agentId"))
        if agent is not None:
            self.agents.add(agent)
            self.use_lanes.setdefault(agent, lane)
            self.kinds[agent] = self.kinds.get(key, "sub-agent")
        use = self.uses.get(key)
        if use is None or use.end_s is not None:
            self.odd["tool result without its call" if use is None else "tool result written again"] += 1
            return
        use.own_s = self._own_s(mapping(outcome))
        use.end_s = at_s if use.timed else max(at_s, use.start_s + (use.own_s or 0.0))
        use.result_text = text_in(block.get("content")) if self.keep_text else ""
        use.exact = use.own_s is not None and use.name not in _AGENTS
        refused = outcome if isinstance(outcome, str) else _text_of(block.get("content"))
        use.asks_human = use.asks_human or refused.startswith(_REFUSED)
        if self.keep_text and use.asks_human:
            self.lanes[lane].said.append(answers_in(outcome) or _answered(text_in(block.get("content"))))

    def _own_s(self, outcome: Row) -> float | None:
        """Return what a tool's own clock says."""
        for key, per_s in (("totalDurationMs", 1e3), ("durationMs", 1e3), ("durationSeconds", 1.0)):
            if outcome.get(key) is not None:
                return duration(outcome[key], self.odd, per_s)
        return None

    # ---- the harness

    def _system(self, row: Row, lane: str, time_s: float | None) -> None:
        kind = row.get("subtype")
        if time_s is None:
            return
        if kind == "api_error":
            self.odd["failed attempt of a model call"] += 1
            pause_s = duration(row.get("retryInMs"), self.odd, 1e3) or 0.0
            self._node(row, lane, time_s + pause_s, retry=True)
            return
        self._node(row, lane, time_s)
        if kind == "compact_boundary":
            length = mapping(row.get("compactMetadata")).get("durationMs")
            self.lanes[lane].compactions.append(Compacted(time_s, duration(length, self.odd, 1e3)))
            self._mark(lane, time_s, Mark.COMPACT)
        elif kind in ("turn_duration", "stop_hook_summary"):
            self._mark(lane, time_s, Mark.AGENT)

    def _summary(self, log: LaneLog, content: Any, at_s: float) -> None:
        self.odd["tokens of a summary estimated from text"] += 1
        if not log.compactions or log.compactions[-1].tokens:
            log.compactions.append(Compacted(at_s, None))
            log.marks.append((at_s, Mark.COMPACT))
        log.compactions[-1].tokens = text_tokens(len(_text_of(content)))


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _text_of(content: Any) -> str:
    """Return what a message says first."""
    if isinstance(content, str):
        return content
    texts = (block.get("text") for block in objects(content))
    return next((text for text in texts if isinstance(text, str)), "")


def _answered(text: str) -> str:
    """Return a human's own words out of what the harness made of them for the model."""
    _, told, words = text.partition(_TOLD)
    return words.strip() if told else together(_ANSWER.findall(text))


def _said(row: Row, text: str) -> Mark:
    """Tell who speaks in a row of the user's."""
    if text.startswith("[Request interrupted by user"):
        return Mark.INTERRUPT
    told = mapping(row.get("origin")).get("kind") == "task-notification"
    return Mark.NOTICE if told or text.startswith("<task-notification>") else Mark.PROMPT
