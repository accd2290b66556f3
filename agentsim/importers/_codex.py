"""From the rows of a Codex rollout to its calls, tools and turns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agentsim.importers._codex_calls import (
    Done,
    Round,
    broken_off,
    call_of,
    chars_of,
    less,
    tokens_in,
    wall_s,
)
from agentsim.importers._estimate import text_tokens
from agentsim.importers._rows import (
    Lane,
    Row,
    ToolUse,
    compaction_start_s,
    key_of,
    mapping,
    name_of,
    session_of,
    tool_waits,
    waited_for_human,
)
from agentsim.importers._texts import answers_in, json_in, text_in, together, written
from agentsim.importers._values import Odd, duration, number, time_of
from agentsim.recorded import RecordedCompaction, RecordedEvent, RecordedSession, WaitKind

ROOM = 64
"""So many calls are kept until something is made of them."""
BURST_S = 0.5
"""A replayed history is written at once; a model's first own answer takes longer than this."""

_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"})
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
_SAID = frozenset({"reasoning", "web_search_call", "image_generation_call"})
_ECHOES = frozenset({"agent_message", "agent_reasoning", "agent_reasoning_raw_content"})
_COUNTED = (
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
    "total_tokens",
)
_ENDS = frozenset({"task_complete", "turn_complete", "turn_aborted"})
_TIMED = frozenset({"mcp_tool_call_end", "exec_command_end"})
_ASKING = frozenset({"request_user_input"})
_AGENTS = frozenset({"wait", "wait_agent", "spawn_agent", "send_input", "write_stdin"})


@dataclass(slots=True)
class Session:
    """Takes rows in file order; `read` gives the session."""

    name: str
    form: str
    place: str
    odd: Odd = field(default_factory=Odd)
    done: list[Done] = field(default_factory=list)
    uses: dict[str, ToolUse] = field(default_factory=dict)
    owns: dict[str, float] = field(default_factory=dict)
    others: list[RecordedEvent] = field(default_factory=list)
    ttft_s: dict[int, float] = field(default_factory=dict)
    open: Round | None = None
    input_s: float | None = None
    input_since: bool = True
    free_s: float | None = None
    clock_s: float | None = None
    idle: bool = False
    begun: bool = False
    total: dict[str, float] | None = None
    model: str | None = None
    turn: int = 0
    chars: int = 0
    approval: WaitKind = "human"
    born_s: float | None = None
    forked: bool = False
    bursting: bool = True
    metas: int = 0
    events: list[RecordedEvent] = field(default_factory=list)
    told: bool = False
    counted: int = -1
    room: int = ROOM
    keep_text: bool = False
    said: str = ""

    # ---- rows

    def take(self, row: Row) -> None:
        """Read one row of any generation."""
        payload = row.get("payload")
        kind = key_of(row.get("type"))
        if not isinstance(payload, dict):
            if kind in _CALLS | _RESULTS | _SAID | {"message"}:
                self._item(row, None)
            elif "instructions" in row and kind is None:
                self.name = name_of(row.get("id"), self.name)
            return
        at_s = time_of(row.get("timestamp"), self.odd)
        if at_s is not None and self._replays(at_s, kind, payload):
            return
        if kind == "session_meta":
            self._meta(payload)
        elif kind == "turn_context":
            self._context(payload)
        elif kind == "response_item":
            self._item(payload, at_s)
        elif kind == "event_msg":
            self._event(payload, at_s)
        elif kind == "compacted":
            self._compacted(payload, at_s)
        self.clock_s = at_s if at_s is not None else self.clock_s

    def _replays(self, at_s: float, kind: object, payload: Row) -> bool:
        """Tell whether a row is a parent's with its old time; and end the burst at the first pause."""
        if self.clock_s is not None and abs(at_s - self.clock_s) > BURST_S and self.bursting:
            self._end_burst()
        if not self.forked or self.born_s is None or kind == "session_meta" or at_s >= self.born_s - 1:
            return False
        if payload.get("type") == "token_count" and self._changes(mapping(payload.get("info"))):
            self.odd["call replayed from the parent session"] += 1
        return True

    def _end_burst(self) -> None:
        """Leave out the calls that a fork wrote at once at its start: they are its parent's."""
        self.bursting = False
        if self.forked or self.metas > 1:
            self.odd["call replayed from the parent session"] += len(self.done)
            self.done.clear()
            self.others.clear()
            self.uses.clear()
            self.open, self.free_s, self.turn, self.input_since = None, None, 0, True

    def _meta(self, meta: Row) -> None:
        self.metas += 1
        if self.metas > 1:
            return
        self.name = name_of(meta.get("id"), self.name)
        self.born_s = time_of(meta.get("timestamp"), self.odd)
        spawned = mapping(mapping(meta.get("source")).get("subagent"))
        self.forked = any(key_of(meta.get(key)) for key in ("forked_from_id", "parent_thread_id"))
        self.forked = self.forked or bool(spawned)
        if spawned:
            self.odd["sub-agent of another session, in a file of its own"] += 1

    def _context(self, context: Row) -> None:
        self.model = key_of(context.get("model")) or self.model
        never = context.get("approval_policy") == "never"
        self.approval = "harness" if never else "human"

    # ---- items

    def _item(self, item: Row, at_s: float | None) -> None:
        kind = key_of(item.get("type"))
        if kind in _CALLS:
            self._output(at_s, chars_of(item, "arguments", "input", "action"))
            self._tool(item, at_s)
        elif kind in _RESULTS:
            self._result(item, at_s)
        elif kind in _SAID or (kind == "message" and item.get("role") == "assistant"):
            self._output(at_s, chars_of(item, "content", "summary"))
            if self.keep_text and kind == "message" and (self.open or self.done):
                round_ = self.open or self.done[-1].round
                round_.text = together([round_.text, text_in(item.get("content"))])
        elif kind == "message":
            self._begin(at_s)
            self._input(at_s, chars_of(item, "content"))
            if self.keep_text and item.get("role") == "user":
                self.said = together([self.said, text_in(item.get("content"))])

    def _known(self, at_s: float | None) -> float:
        if at_s is not None:
            return at_s
        self.odd["row without a time"] += 1
        return self.clock_s if self.clock_s is not None else 0.0

    def _input(self, at_s: float | None, chars: int) -> None:
        self.chars += chars
        self.input_since = True
        if at_s is not None:
            self.input_s = at_s if self.input_s is None else max(self.input_s, at_s)

    def _output(self, at_s: float | None, chars: int) -> None:
        """Add a row to the call that is going on, or begin one."""
        known_s = self._known(at_s)
        if self.open is not None and self.input_since and self._is_over(self.open):
            self._close(None, known_s)
        if self.open is None and not self.input_since and self.done:
            self.chars += chars  # a row written behind its token_count
            return
        if self.open is None:
            self.open = Round(self._ready_s() if at_s is not None else None, known_s, known_s)
            self.open.said, self.said = self.said, ""
            self.input_since = False
        self.open.end_s = max(self.open.end_s, known_s)
        self.open.chars += chars
        self.idle = self.begun = False

    def _ready_s(self) -> float | None:
        """Return when the next call had its input: not before the one before it ended."""
        before_s = self.done[-1].round.end_s if self.done else None
        if self.input_s is None or before_s is None:
            return self.input_s
        return max(self.input_s, before_s)

    def _is_over(self, round_: Round) -> bool:
        """Tell whether a call ended without its usage, now that more was put in and out.

        What is put in while a call without tools goes on waits for the next, unless no usage will end it.
        """
        return self._answered(round_) and bool(round_.uses or (self.done and self.total is None))

    def _answered(self, round_: Round) -> bool:
        return all(self.uses[key].end_s is not None for key in round_.uses)

    def _tool(self, item: Row, at_s: float | None) -> None:
        key = key_of(item.get("call_id")) or key_of(item.get("id"))
        if key is None or key in self.uses:
            return
        late = self.open is None
        round_ = self.open or self.done[-1].round
        start_s = round_.end_s if late else self._known(at_s)
        name = name_of(item.get("name"), str(item.get("type")).removesuffix("_call"))
        earliest_s = round_.first_s if round_.start_s is None else round_.start_s
        self.uses[key] = ToolUse(
            name,
            start_s,
            earliest_s,
            timed=at_s is not None,
            asks_human=name in _ASKING,
            may_be_long=name in _AGENTS,
        )
        if self.keep_text:
            self.uses[key].text = together(written(item.get(k)) for k in ("arguments", "input", "action"))
        round_.uses.append(key)

    def _result(self, item: Row, at_s: float | None) -> None:
        key = key_of(item.get("call_id")) or ""
        use = self.uses.get(key)
        if use is None or use.end_s is not None:
            self.odd["tool result without its call" if use is None else "tool result written again"] += 1
        else:
            own_s = self.owns.pop(key, None)
            use.own_s = own_s if own_s is not None else wall_s(item.get("output"))
            if self.keep_text:
                self._keep_result(use, item.get("output"))
            use.end_s = self._known(at_s)
            if not use.timed:
                use.end_s = self.clock_s = max(use.end_s, use.start_s + (use.own_s or 0.0))
        self._input(at_s, chars_of(item, "output", "tools"))

    def _keep_result(self, use: ToolUse, output: Any) -> None:
        use.result_text = text_in(output)
        if use.asks_human:
            self.said = together([self.said, answers_in(json_in(output))])

    # ---- events

    def _event(self, event: Row, at_s: float | None) -> None:
        kind = key_of(event.get("type"))
        if kind == "token_count":
            self._count(mapping(event.get("info")), at_s)
        elif kind == "turn.completed" and isinstance(event.get("usage"), dict):
            self._count({"total_token_usage": event["usage"]}, at_s)
        elif kind in _ECHOES:
            self._output(at_s, 0)
        elif kind == "task_started":
            self._begin(at_s)
        elif kind == "user_message":
            self._begin(at_s)
            self._input(at_s, 0)
        elif kind in _ENDS:
            self._end(event, at_s)
        elif kind in _TIMED:
            self.owns[key_of(event.get("call_id")) or ""] = self._length_s(event.get("duration"))

    def _length_s(self, length: Any) -> float:
        parts = mapping(length)
        seconds = duration(parts.get("secs"), self.odd) or 0.0
        return seconds + (duration(parts.get("nanos"), self.odd, 1e9) or 0.0)

    def _begin(self, at_s: float | None) -> None:
        """Begin a turn, and end the wait for it, unless one is going on."""
        if self.begun or (self.turn and not self.idle and not self._rests()):
            return
        self.begun = True
        self.turn += 1
        self.idle = False
        if at_s is not None:
            self.others += waited_for_human(self.free_s, at_s)

    def _rests(self) -> bool:
        """Tell whether the agent has answered and waits for nothing, though no row says that it is done."""
        rests = self.open is None and not self.input_since and bool(self.done)
        return rests and self._answered(self.done[-1].round)

    def _end(self, event: Row, at_s: float | None) -> None:
        if self.open is not None:
            self._close(None, self._known(at_s))
        ttft_s = duration(event.get("time_to_first_token_ms"), self.odd, 1e3)
        if ttft_s is not None:
            self.ttft_s[self.turn] = ttft_s
        if event.get("type") == "turn_aborted":
            self.odd["turn broken off by the user"] += 1
        self.begun = False
        self.idle, self.free_s = True, at_s if at_s is not None else self.free_s

    def _changes(self, info: Row) -> bool:
        """Tell whether the total usage is another than before, and keep it."""
        told = info.get("total_token_usage")
        if not isinstance(told, dict):
            return False
        total = {key: number(told.get(key)) or 0.0 for key in _COUNTED}
        changed = total != self.total and (self.total is not None or any(total.values()))
        self.total = total
        return changed

    def _count(self, info: Row, at_s: float | None) -> None:
        before = self.total or {}
        if not self._changes(info):
            self.odd["usage told again"] += "total_token_usage" in info
            return
        usage = info.get("last_token_usage")
        self._close(usage if isinstance(usage, dict) else less(self.total or {}, before), at_s)

    def _close(self, usage: Row | None, at_s: float | None) -> None:
        """End the call that is going on, or note one that put nothing out."""
        timed = at_s is not None
        known_s = at_s if at_s is not None else self.clock_s or 0.0
        if self.open is None:
            start_s = self.input_s if self.input_since else self.clock_s
            self.open, self.input_since = Round(start_s, known_s, known_s), False
            timed = timed and start_s is not None
        elif usage is not None and not self.open.uses and not self.input_since:
            self.open.end_s = max(self.open.end_s, known_s)  # its tools may be written only later
        first = self.counted != self.turn and (usage is not None or not self.told)
        self.counted = self.turn if first else self.counted
        self.told = self.told or usage is not None
        tokens = None if usage is None else tokens_in(usage, self.odd)
        self.done.append(Done(self.open, tokens, self.model, self.chars, self.turn, first, timed))
        self.chars += self.open.chars
        self.open = None
        self.free_s = known_s if timed else self.free_s
        self._settle()

    def _compacted(self, row: Row, at_s: float | None) -> None:
        if at_s is None:
            return
        self.odd["tokens of a summary estimated from text"] += 1
        tokens = text_tokens(chars_of(row, "message"))
        start_s = compaction_start_s(self.free_s if self.idle else self.input_s, at_s)
        self.others.append(RecordedCompaction(start_s, at_s - start_s, tokens))
        self._input(at_s, 0)
        self.free_s = at_s

    # ---- the session

    def read(self) -> RecordedSession:
        """Return the session. Raises `ImportFormatError` where it holds no call."""
        if self.open is not None:
            self._close(None, self.clock_s)
        self._settle(last=True)
        lane = Lane("main", None, self.events + self.others)
        return session_of(self.name, self.form, [lane], self.odd, self.place)

    def _settle(self, last: bool = False) -> None:
        """Make events of the calls that nothing more can be said of, so that a long log takes little room."""
        if not last and (len(self.done) < self.room or self.bursting or not self.told):
            return
        kept = [] if last else [x for x in self.done[:-1] if self._waits(x)] + self.done[-1:]
        keep = set(map(id, kept))
        for done in self.done:
            if id(done) not in keep:
                self.events += self._events(done)
        self.done, self.room = kept, 2 * len(kept) + ROOM

    def _waits(self, done: Done) -> bool:
        """Tell whether a call's model, first token or results may still come."""
        unnamed = done.model is None and self.model is None
        return unnamed or (done.first and done.turn == self.turn) or not self._answered(done.round)

    def _events(self, done: Done) -> list[RecordedEvent]:
        events: list[RecordedEvent] = []
        if self.told and done.usage is None:
            self.odd["answer without usage"] += 1
            events += broken_off(done)
        else:
            ttft_s = self.ttft_s.get(done.turn) if done.first else None
            events.append(call_of(done, ttft_s, self.model, self.odd))
        uses = [self.uses.pop(key) for key in done.round.uses]
        return events + tool_waits(uses, self.odd, self.approval)
