"""From a recorded session to an ordinary workflow file, and to the split of its observed time.

A lane is cut into gaps, each from one model call to the next. What happened in a gap, waits and
sub-agents, becomes steps in order of time; its context growth goes to what explains it.

Why so: a wait that a sub-agent fills is the sub-agent's, for it shrinks when the sub-agent gets faster;
only what is left of it stays a wait.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agentsim.importers._beside import side_by_side
from agentsim.importers._steps import RecordedAgent, RecordedStep, lines_of
from agentsim.recorded import RecordedCall, RecordedCompaction, RecordedLane, RecordedSession, RecordedWait
from agentsim.units import MAX_SECONDS

CLOCK_STEP_S = 1.0
"""Some logs count whole seconds: a sub-agent that ends by less than this after the next call was awaited."""

MARK = "# A recorded session as a workflow"
IDLE = "harness"
_UNREADABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_PLAIN = re.compile(r"[A-Za-z]([\w ./-]{0,198}\w)?", re.ASCII)

Children = Mapping[str, Sequence[RecordedLane]]


def workflow_document(session: RecordedSession) -> str:
    """Return a session as the text of a workflow file, with exact tokens and recorded waits.

    The main lane comes first in `session.lanes`; a lane whose parent is unknown counts as its child.
    """
    system, steps = steps_of(session)
    lines = [
        *_header(session),
        f"name: {_quoted(session.name)}",
        f"source: {_quoted(f'{session.format} log')}",
        f"context: {{system_tokens: {system}}}",
        "steps:",
        *lines_of(steps, 2),
    ]
    return "\n".join(lines) + "\n"


def steps_of(session: RecordedSession) -> tuple[int, list[RecordedStep]]:
    """Return the tokens of the system prompt, and the steps that a session is written as."""
    session = side_by_side(session, CLOCK_STEP_S)
    main, first = session.lanes[0], next(session.lanes[0].calls, None)
    system = min(session.system_tokens, first.prompt_tokens) if first else session.system_tokens
    said = first.prompt_tokens - system if first else 0
    start_s = min((lane.start_s for lane in session.lanes if lane.events), default=0.0)
    return system, _with_first_prompt(_LaneSteps(children_of(session), main, start_s).build(), said)


def _with_first_prompt(steps: list[RecordedStep], tokens: int) -> list[RecordedStep]:
    """Return steps whose first call has the prompt that a user began with; its text may stand there."""
    opening = next((step for step in steps if step.kind in ("user", "generate")), None)
    if opening is not None and opening.kind == "user":
        opening.fields["tokens"] = str(tokens)
        return [opening, *(step for step in steps if step is not opening)]
    return [RecordedStep("user", {"tokens": str(tokens)}), *steps] if tokens else steps


def _header(session: RecordedSession) -> Iterator[str]:
    calls = list(session.calls)
    yield f"{MARK}: recorded tokens, waits to the millisecond."
    counts = f"{len(calls)} model calls, {len(session.lanes) - 1} sub-agents"
    yield f"# From a {_printable(session.format)} log, session {_printable(session.name)}: {counts}."
    if untimed := sum(call.timing == "absent" for call in calls):
        yield f"# {untimed} calls have no recorded duration: the wait after such a call holds its answer too."
    if session.odd:
        listed = "; ".join(f"{what}: {count}" for what, count in sorted(session.odd.items()))
        yield f"# Odd in the record: {_printable(listed)}."


def children_of(session: RecordedSession) -> Children:
    """Return the lanes that each lane started, in order of start."""
    names = {lane.name for lane in session.lanes}
    children: dict[str, list[RecordedLane]] = defaultdict(list)
    for lane in sorted(session.lanes[1:], key=lambda lane: lane.start_s):
        parent = lane.parent if lane.parent in names else None
        children[parent or session.lanes[0].name].append(lane)
    return children


def _quoted(text: str) -> str:
    """Return text as YAML: plain where it cannot be read as anything else."""
    if _PLAIN.fullmatch(text) and text.lower() not in ("null", "true", "false"):
        return text
    return '"' + _printable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text_of(text: str) -> str:
    """Return text of any length as YAML in double quotes; what no file may hold becomes U+FFFD."""
    sound = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    written = json.dumps(sound, ensure_ascii=False)
    return _UNREADABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def _printable(text: str) -> str:
    """Return at most 200 characters of text, with a question mark for those YAML does not allow."""
    return "".join(c if c.isprintable() else "?" for c in text[:200])


def _times(start_s: float, end_s: float) -> Iterator[str]:
    """Yield the time between two instants, each rounded to ms so that sums do not drift.

    What is longer than a workflow's durations may be, as between two broken clocks, is several waits.
    """
    left_s = max(round(end_s, 3) - round(start_s, 3), 0.0)
    while left_s > MAX_SECONDS:
        yield _seconds(MAX_SECONDS)
        left_s -= MAX_SECONDS
    yield _seconds(left_s)


def _seconds(length_s: float) -> str:
    """Return a duration as the file writes it, to the millisecond."""
    return f"{length_s:.3f}".rstrip("0").rstrip(".") + " s"


@dataclass(slots=True)
class _Gap:
    before: RecordedCall | None
    after: RecordedCall | None = None
    waits: list[RecordedWait] = field(default_factory=list)
    compactions: list[RecordedCompaction] = field(default_factory=list)
    children: list[RecordedLane] = field(default_factory=list)

    @property
    def growth_tokens(self) -> int:
        """What joined the context beside the visible output of the call before."""
        if self.before is None or self.after is None:
            return 0
        kept = self.before.prompt_tokens + self.before.output_tokens - self.before.thinking_tokens
        return max(self.after.prompt_tokens - kept, 0)


@dataclass(frozen=True, slots=True)
class _Piece:
    """The part of a wait that no awaited sub-agent fills."""

    start_s: float
    end_s: float
    wait: RecordedWait


@dataclass(slots=True)
class _Group:
    """Sub-agents side by side. `awaited_s` is the end of those that the parent waited for."""

    start_s: float
    awaited_s: float
    end_s: float
    foreground: list[RecordedLane]
    background: list[RecordedLane]


def gaps_of(lane: RecordedLane, children: Children) -> list[_Gap]:
    """Return the stretches between the model calls of a lane, with what the record has in each."""
    gaps = [_Gap(None)]
    for event in lane.events:
        if isinstance(event, RecordedCall):
            gaps[-1].after = event
            gaps.append(_Gap(event))
        elif isinstance(event, RecordedWait):
            gaps[-1].waits.append(event)
        else:
            gaps[-1].compactions.append(event)
    starts = [call.start_s for call in lane.calls]
    for child in children.get(lane.name, ()):
        gaps[_gap_of(child, gaps, starts)].children.append(child)
    return gaps


def _gap_of(child: RecordedLane, gaps: Sequence[_Gap], starts: Sequence[float]) -> int:
    """Return the gap that a sub-agent starts in; one that starts during a call is started before it."""
    index = bisect_right(starts, child.start_s)
    during = gaps[index].before
    return index - 1 if during is not None and child.start_s < during.end_s - CLOCK_STEP_S else index


def _end_s(lane: RecordedLane, children: Children) -> float:
    return max([lane.end_s, *(_end_s(child, children) for child in children.get(lane.name, ()))])


def groups_of(gap: _Gap, children: Children) -> list[_Group]:
    """Return the sub-agents that start in a gap; those whose times overlap share a group."""
    groups: list[_Group] = []
    until_s = gap.after.start_s if gap.after else math.inf
    for child in gap.children:
        end_s = _end_s(child, children)
        last = groups[-1] if groups else None
        start_s = min(child.start_s, until_s)
        if last is None or start_s > (last.awaited_s if last.foreground else last.end_s):
            groups.append(_Group(start_s, start_s, start_s, [], []))
        group = groups[-1]
        group.end_s = max(group.end_s, end_s)
        if end_s > until_s + CLOCK_STEP_S or child.start_s > until_s:
            group.background.append(child)
        else:
            group.foreground.append(child)
            group.awaited_s = max(group.awaited_s, end_s)
    return groups


def _outside(wait: RecordedWait, groups: Sequence[_Group]) -> Iterator[_Piece]:
    """Yield what is left of a wait outside the time of awaited sub-agents."""
    start_s = wait.start_s
    for group in groups:
        if group.awaited_s <= start_s or group.start_s >= wait.end_s:
            continue
        if group.start_s > start_s:
            yield _Piece(start_s, group.start_s, wait)
        start_s = group.awaited_s
    if start_s < wait.end_s or start_s == wait.start_s:
        yield _Piece(start_s, wait.end_s, wait)


def stretches_of(waits: Sequence[RecordedWait], groups: Sequence[_Group]) -> list[list[_Piece]]:
    """Return the pieces of waits; those whose times overlap share a list."""
    stretches: list[list[_Piece]] = []
    end_s = -math.inf
    for piece in sorted((p for w in waits for p in _outside(w, groups)), key=lambda p: p.start_s):
        if piece.start_s >= end_s:
            stretches.append([])
        stretches[-1].append(piece)
        end_s = max(end_s, piece.end_s)
    return stretches


def call_step(call: RecordedCall) -> RecordedStep:
    """Return a model call as a step."""
    fields = {"tokens": str(call.output_tokens - call.thinking_tokens)}
    if call.thinking_tokens:
        fields["thinking_tokens"] = str(call.thinking_tokens)
    fields |= {"prompt_tokens": str(call.prompt_tokens), "cached_tokens": str(call.cached_tokens)}
    fields["model"] = _quoted(call.model)
    if call.timing != "absent":
        fields["time"] = _seconds(call.duration_s)
    if call.ttft_s is not None:
        fields["ttft"] = _seconds(call.ttft_s)
    if call.text:
        fields["text"] = _text_of(call.text)
    return RecordedStep("generate", fields)


class _LaneSteps:
    """Writes one lane as steps. `now_s` is where in the record the steps so far have come to."""

    def __init__(self, children: Children, lane: RecordedLane, start_s: float) -> None:
        self.children, self.lane, self.now_s = children, lane, start_s
        self.steps: list[RecordedStep] = []
        self.running: dict[str, float] = {}

    def build(self) -> list[RecordedStep]:
        for gap in gaps_of(self.lane, self.children):
            if gap.before is not None:
                self._generate(gap.before)
            self._gap(gap)
        self._join(list(self.running))
        return self.steps

    def _generate(self, call: RecordedCall) -> None:
        self.steps.append(call_step(call))
        self.now_s = max(self.now_s, call.end_s)

    def _gap(self, gap: _Gap) -> None:
        first, groups = len(self.steps), groups_of(gap, self.children)
        items: list[tuple[float, _Group | RecordedCompaction | list[_Piece]]] = []
        items += [(g.start_s, g) for g in groups] + [(c.start_s, c) for c in gap.compactions]
        items += [(s[0].start_s, s) for s in stretches_of(gap.waits, groups)]
        for start_s, item in sorted(items, key=lambda pair: pair[0]):
            self._idle(start_s)
            if isinstance(item, _Group):
                self._agents(item)
            elif isinstance(item, RecordedCompaction):
                self._compaction(item)
            else:
                self._waits(item)
        if gap.after is not None:
            self._idle(gap.after.start_s)
        if gap.after is not None and gap.after.said:
            self.steps.append(RecordedStep("user", {"tokens": "0", "text": _text_of(gap.after.said)}))
        if gap.growth_tokens:
            self._grow(first, gap.growth_tokens)

    def _compaction(self, compaction: RecordedCompaction) -> None:
        fields = {"summary_tokens": str(compaction.summary_tokens)}
        self.steps.append(RecordedStep("compact", fields | {"time": _seconds(compaction.duration_s)}))
        self.now_s = max(self.now_s, compaction.end_s)

    def _idle(self, until_s: float) -> None:
        """Let the time pass that nothing in the record fills."""
        if until_s > self.now_s + 1e-3:
            self.steps += [
                RecordedStep("call", {"tool": IDLE, "time": t}) for t in _times(self.now_s, until_s)
            ]
            self.now_s = until_s

    def _agents(self, group: _Group) -> None:
        self.now_s = max(self.now_s, group.start_s)
        lanes = sorted(group.foreground + group.background, key=lambda lane: lane.start_s)
        self.steps.append(
            RecordedStep("agents", agents=[self._sub_agent(x, x in group.background) for x in lanes])
        )
        self.now_s = max(self.now_s, group.awaited_s)

    def _sub_agent(self, lane: RecordedLane, background: bool) -> RecordedAgent:
        """Return a sub-agent; how its first prompt divides into system and task is not recorded."""
        tokens = next((str(call.prompt_tokens) for call in lane.calls), "0")
        head = {"name": _quoted(lane.name), "context": "fresh", "system_tokens": "0", "task_tokens": tokens}
        if background:
            head["background"] = "true"
            self.running[lane.name] = _end_s(lane, self.children)
        return RecordedAgent(head, _LaneSteps(self.children, lane, self.now_s).build())

    def _waits(self, stretch: list[_Piece]) -> None:
        """Write waits that overlap: side by side, or one after another where a human is among them."""
        parallel = len(stretch) > 1 and all(piece.wait.kind != "human" for piece in stretch)
        for pieces in [stretch] if parallel else [[piece] for piece in stretch]:
            if not parallel:
                self._join([name for name, end_s in self.running.items() if _ends_with(pieces[0], end_s)])
            since_s = max(self.now_s, stretch[0].start_s)
            steps = [step for piece in pieces for step in _wait(piece, since_s)]
            self.steps += [RecordedStep("parallel", branches=steps)] if parallel else steps
            self.now_s = max([self.now_s, *(piece.end_s for piece in pieces)])

    def _join(self, names: list[str]) -> None:
        """Wait for background sub-agents; the record's time is then that of the last one's end."""
        if names:
            quoted = [_quoted(name) for name in names]
            self.steps.append(RecordedStep("join", text=f"[{', '.join(quoted)}]", names=quoted))
            self.now_s = max(self.now_s, *(self.running.pop(name) for name in names))

    def _grow(self, first: int, tokens: int) -> None:
        """Lay what joined the context to the tools, else the sub-agents, else the user since `first`."""
        since = self.steps[first:]
        steps = [inner for step in since for inner in (step, *step.branches)]
        tools = [step for step in steps if step.fields.get("tool", IDLE) != IDLE]
        agents = [a for step in since for a in step.agents if "background" not in a.head]
        if tools:
            tools[-1].fields["result_tokens"] = str(tokens)
        elif agents:
            agents[-1].head["report_tokens"] = str(tokens)
        elif since and since[-1].kind == "user":
            since[-1].fields["tokens"] = str(tokens)
        else:
            self.steps.append(RecordedStep("user", {"tokens": str(tokens)}))


def _wait(piece: _Piece, start_s: float) -> Iterator[RecordedStep]:
    name, wait = _quoted(piece.wait.name), piece.wait
    told = {"text": wait.text, "result_text": wait.result_text} if piece.start_s == wait.start_s else {}
    texts = {key: _text_of(text) for key, text in told.items() if text}
    for time in _times(start_s, piece.end_s):
        if piece.wait.kind == "human":
            yield RecordedStep("think", text=time)
        else:
            yield RecordedStep("call", {"tool": name, "time": time} | texts)
            texts = {}


def _ends_with(piece: _Piece, end_s: float) -> bool:
    """Tell whether a wait ended because a background sub-agent did."""
    return piece.wait.kind != "human" and piece.start_s < end_s <= piece.end_s <= end_s + CLOCK_STEP_S
