"""An agent at work: walks the operations of its task, one after another.

Every stretch of its time is entered in its critical path at the moment it ends; a law checks that the
path's parts sum to the elapsed time, so nothing an agent does can go unaccounted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from math import exp
from typing import Any

from simpy import Event, Process

from agentsim.errors import InfeasibleError, WorkflowError
from agentsim.plan import Plan
from agentsim.result import RETRY_PAUSE, SLOT_WAIT, Part, Turn
from agentsim.seeds import Stream, normal, stream
from agentsim.sim.path import CriticalPath
from agentsim.sim.request import Answer, Prefix, Work
from agentsim.sim.session import Session
from agentsim.sim.tools import Attempts, draw_call, draw_files
from agentsim.units import to_ns
from agentsim.workflow import graph

Steps = Generator[Event, Any, None]
Recorded = tuple[int | None, int | None]
"""Recorded time of a call and to its first token (ns), where it is a recorded one."""
MAX_TURNS = 1_000_000


class Agent:
    """One agent with its context. `cached` tokens of it have gone to the server before, and are unchanged.

    Agents of one `role` have the same system prompt; `shared` are its tokens, 0 where it is not known.
    """

    __slots__ = (
        "_streams",
        "background",
        "cached",
        "causes",
        "context",
        "counted",
        "end_ns",
        "env",
        "lane",
        "last_call_ns",
        "path",
        "role",
        "session",
        "shared",
        "start_ns",
        "starts",
        "system_tokens",
    )

    def __init__(self, session: Session, lane: str, system_tokens: int) -> None:
        self.session, self.env, self.lane = session, session.env, lane
        self.system_tokens = self.context = self.shared = system_tokens
        self.role = lane
        self.cached = 0
        self.counted = 0
        self.start_ns = self.end_ns = self.last_call_ns = session.env.now
        self.path = CriticalPath(session.recorder.full)
        self.causes: tuple[int, ...] = ()
        self.background: dict[str, list[_Running]] = {}
        self.starts: dict[str, int] = {}
        self._streams: dict[str, Stream] = {}

    def run(self, body: Sequence[graph.Operation]) -> Steps:
        """Do the whole body, then wait for background sub-agents that nobody has joined."""
        yield from self._body(body)
        yield from self._join(graph.Join(tuple(self.background)))
        self.end_ns = self.env.now

    def _body(self, body: Sequence[graph.Operation]) -> Steps:
        for operation in body:
            instant = _INSTANT.get(type(operation))
            if instant is not None:
                instant(self, operation)
            else:
                yield from _TIMED[type(operation)](self, operation)

    def _stream(self, cause: str) -> Stream:
        found = self._streams.get(cause)
        if found is None:
            found = self._streams[cause] = stream(self.session.seed, self.session.index, self.lane, cause)
        return found

    def _spend(self, part: Part, name: str, start: int, turn: int | None = None) -> None:
        """Enter the time from `start` until now in the critical path."""
        self._account(part, name, start, self.env.now, turn)

    def _account(self, part: Part, name: str, start: int, end: int, turn: int | None) -> None:
        if end == start:
            return
        self.path.parts[part] += end - start
        recorder = self.session.recorder
        if recorder.full:
            lane = self.session.prefix + self.lane
            span = recorder.span(part, name, lane, start, end, self.causes, turn)
            self.causes = (span,)
            self.path.spans.append(span)  # type: ignore[union-attr]

    def _grow(self, tokens: int) -> None:
        self.context += tokens

    # model calls

    def _user(self, message: graph.UserMessage) -> None:
        self._grow(int(message.tokens(self._stream(message.cause))))

    def _generate(self, call: graph.ModelCall) -> Steps:
        draws = self._stream(call.cause)
        output, thinking = int(call.tokens(draws)), int(call.thinking_tokens(draws))
        if call.prompt_tokens is not None:
            self.context, self.shared = call.prompt_tokens, 0
            seen = self.cached if call.cached_tokens is None else call.cached_tokens
            self.cached = min(seen, call.prompt_tokens)
        elif self._is_nearly_full(output + thinking):
            yield from self._compact(self.session.plan.task.summary_tokens)
        recorded = _ns(call.recorded_s), _ns(call.recorded_ttft_s)
        yield from self._call_model(output, thinking, False, recorded)
        self._keep_output(output, thinking)

    def _is_nearly_full(self, output: int) -> bool:
        share, limit = self.session.plan.task.compaction_at, self.session.plan.limit_tokens
        return share is not None and limit is not None and self.context + output >= share * limit

    def _keep_output(self, output: int, thinking: int) -> None:
        """Add what was written to the context; behind dropped thinking its place in the cache is lost."""
        prompt = self.context
        self.context = self.counted = prompt + output
        self.cached = prompt if thinking else self.context
        self.session.peak_context = max(self.session.peak_context, self.context)

    def _summarise(self, step: graph.Summarise) -> Steps:
        summary = int(step.summary_tokens(self._stream(step.cause)))
        yield from self._compact(summary, (_ns(step.recorded_s), None))

    def _compact(self, summary_tokens: int, recorded: Recorded = (None, None)) -> Steps:
        """Have the model summarise the context; only the system prompt's prefix survives in the cache."""
        self._cut_to(summary_tokens)
        yield from self._call_model(summary_tokens, 0, True, recorded)
        self.cached = min(self.system_tokens, self.context)
        self.context = self.counted = self.system_tokens + summary_tokens
        self.session.peak_context = max(self.session.peak_context, self.context)

    def _cut_to(self, output: int) -> None:
        """Drop the oldest results where not even the summary's own prompt would fit, as harnesses do."""
        limit = self.session.plan.limit_tokens
        if limit is not None and self.context + output > limit > output:
            self.context = limit - output
            self.cached = min(self.cached, self.system_tokens)
            self.session.recorder.contexts_cut += 1

    def _call_model(self, output: int, thinking: int, compaction: bool, recorded: Recorded) -> Steps:
        session, start = self.session, self.env.now
        before, added = self.counted, self.context - self.counted
        total = output + thinking
        self._check_limits(total)
        turn = session.model_calls
        session.model_calls += 1
        session.peak_context = max(session.peak_context, self.context)
        session.recorder.calls_started += 1
        round_trip = to_ns(session.plan.task.round_trip_s(self._stream("network")))
        if round_trip:
            yield self.env.timeout(round_trip)
        request = session.server.submit(self._work(total, recorded))
        yield request.done
        self._account_call(request, start, round_trip, turn, compaction)
        self.path.output_tokens += total
        self.last_call_ns = self.env.now
        session.count_call(request, round_trip, compaction)
        if session.recorder.full:
            after = self.system_tokens + output if compaction else self.context + output
            session.recorder.turns.append(
                Turn(
                    index=turn,
                    lane=session.prefix + self.lane,
                    start_ns=start,
                    network_ns=round_trip,
                    queue_ns=request.queue_ns,
                    prefill_ns=request.prefill_ns,
                    transfer_ns=request.transfer_ns,
                    decode_ns=request.decode_ns,
                    prompt=self.context,
                    cached=request.cached,
                    output=total,
                    thinking=thinking,
                    context_before=before,
                    added=added,
                    context_after=after,
                    compaction=compaction,
                )
            )

    def _work(self, output: int, recorded: Recorded) -> Work:
        prefix, spread = self._prefix(), self.session.plan.pace_sigma
        pace = exp(spread * normal(self._stream("acceptance"))) if spread else 1.0
        return Work(self.context, prefix, output, pace, *recorded)

    def _prefix(self) -> Prefix:
        lane = self.session.prefix + self.lane
        return Prefix(self.cached, self.last_call_ns, lane, self.shared, self.role)

    def _check_limits(self, output: int) -> None:
        session, plan = self.session, self.session.plan
        if session.model_calls >= MAX_TURNS:
            raise WorkflowError(f"the task passes {MAX_TURNS:,} model calls; it was stopped there")
        limit = plan.limit_tokens
        if limit is not None and self.context + output > limit:
            raise InfeasibleError(
                f"turn {session.model_calls + 1} ({self.lane}) needs a context of "
                f"{self.context + output:,} tokens; {_who(plan)} takes {limit:,}: add compaction to the "
                "workflow's context, or shorten what it reads"
            )

    def _account_call(self, answer: Answer, start: int, trip: int, turn: int, compaction: bool) -> None:
        """Enter a call's stretches; a compaction's are its own, but for the way to the model."""
        self._account(Part.NETWORK, "network", start, start + trip, turn)
        start += trip
        for part, name, length in answer.stretches():
            self._account(Part.COMPACTION if compaction else part, name, start, start + length, turn)
            start += length
        self.path.decode_ns += answer.decode_ns

    # tools and files

    def _tool(self, call: graph.ToolCall) -> Steps:
        self.session.tool_calls += 1
        attempts = draw_call(call, self._stream(call.cause))
        yield from self._attempt(call, attempts)
        self.session.failed_calls += attempts.failed
        self._grow(attempts.result_tokens)

    def _attempt(self, call: graph.ToolCall, attempts: Attempts) -> Steps:
        slots = self.session.bench.slots(call)
        for index, time in enumerate(attempts.times_ns):
            start = self.env.now
            if slots is None:
                yield self.env.timeout(time)
            else:
                with slots.request() as place:
                    yield place
                    self._spend(Part.TOOL, call.name + SLOT_WAIT, start)
                    self.path.slot_wait_ns += self.env.now - start
                    self.session.bench.note_use(call.name)
                    start = self.env.now
                    yield self.env.timeout(time)
            self._spend(Part.TOOL, call.name, start)
            if index < len(attempts.pauses_ns):
                start = self.env.now
                yield self.env.timeout(attempts.pauses_ns[index])
                self._spend(Part.TOOL, call.name + RETRY_PAUSE, start)

    def _files(self, access: graph.FileAccess) -> Steps:
        start = self.env.now
        time, tokens = draw_files(access, self._stream(access.cause))
        yield self.env.timeout(time)
        self._spend(Part.FILE, access.name, start)
        self._grow(tokens)

    def _parallel(self, parallel: graph.Parallel) -> Steps:
        running = [self._branch(operation) for operation in parallel.branches]
        yield from self._wait_for(running)
        self._grow(sum(each.agent.context for each in running))

    def _branch(self, operation: graph.ToolCall | graph.FileAccess) -> _Running:
        """Start a stand-in for one branch: it draws from this agent's streams, its context starts empty."""
        branch = Agent(self.session, self.lane, 0)
        branch._streams = self._streams
        branch.causes = self.causes
        return _Running(branch, self.env.process(branch.run((operation,))))

    # waits and sub-agents

    def _human(self, wait: graph.HumanWait) -> Steps:
        start = self.env.now
        yield self.env.timeout(to_ns(wait.time_s(self._stream(wait.cause))))
        self._spend(Part.HUMAN, "human", start)

    def _loop(self, loop: graph.Loop) -> Steps:
        for _ in range(int(loop.times(self._stream(loop.cause)))):
            yield from self._body(loop.body)

    def _fan_out(self, fan_out: graph.FanOut) -> Steps:
        started = [self._start(sub) for sub in fan_out.agents]
        foreground = [r for r, sub in zip(started, fan_out.agents, strict=True) if not sub.background]
        for running, sub in zip(started, fan_out.agents, strict=True):
            if sub.background:
                running.spawned = self.path.copy()
                self.background.setdefault(sub.name, []).append(running)
        if foreground:
            yield from self._wait_for(foreground)
            self._grow(sum(running.report_tokens for running in foreground))

    def _start(self, sub: graph.SubAgent) -> _Running:
        number = self.starts[sub.name] = self.starts.get(sub.name, 0) + 1
        child = Agent(self.session, f"{self.lane}/{_lane_name(sub.name, number)}", self.system_tokens)
        if sub.inherits:
            child.context, child.cached, child.counted = self.context, self.cached, self.context
            child.last_call_ns, child.shared = self.last_call_ns, self.shared
        else:
            child.system_tokens = child.context = child.shared = sub.system_tokens
        child.role = self.role if sub.inherits else f"{self.role}/{_lane_name(sub.name, 1)}"
        child.causes = self.causes
        draws = child._stream(sub.cause)
        child._grow(int(sub.task_tokens(draws)))
        report = int(sub.report_tokens(draws))
        return _Running(child, self.env.process(child.run(sub.body)), report)

    def _wait_for(self, running: list[_Running]) -> Steps:
        """Wait until all have ended; the last one to end is the critical one."""
        for each in running:
            if each.process.is_alive:
                yield each.process
        if running:
            last = max((each.agent for each in running), key=lambda agent: agent.end_ns)
            self.path.extend(last.path)
            self.causes = last.causes

    def _join(self, join: graph.Join) -> Steps:
        for name in join.names:
            for running in self.background.pop(name, ()):
                if running.process.is_alive:
                    yield running.process
                    assert running.spawned is not None
                    self.path = running.spawned
                    self.path.extend(running.agent.path)
                    self.causes = running.agent.causes
                self._grow(running.report_tokens)


class _Running:
    """A sub-agent or branch under way; `spawned` is the starter's path at its start."""

    __slots__ = ("agent", "process", "report_tokens", "spawned")

    def __init__(self, agent: Agent, process: Process, report_tokens: int = 0) -> None:
        self.agent, self.process, self.report_tokens = agent, process, report_tokens
        self.spawned: CriticalPath | None = None


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else to_ns(seconds)


def _lane_name(name: str, number: int) -> str:
    """Return a name that no sibling has: `a`, `a#2`, `a#3`; what separates lanes is escaped in names."""
    escaped = name.replace("%", "%25").replace("/", "%2F").replace("#", "%23")
    return escaped if number == 1 else f"{escaped}#{number}"


_INSTANT: dict[type, Callable[[Agent, Any], None]] = {graph.UserMessage: Agent._user}
_TIMED: dict[type, Callable[[Agent, Any], Steps]] = {
    graph.ModelCall: Agent._generate,
    graph.ToolCall: Agent._tool,
    graph.FileAccess: Agent._files,
    graph.Parallel: Agent._parallel,
    graph.Loop: Agent._loop,
    graph.FanOut: Agent._fan_out,
    graph.Join: Agent._join,
    graph.HumanWait: Agent._human,
    graph.Summarise: Agent._summarise,
}


def _who(plan: Plan) -> str:
    """Return who sets the limit of a context: the workflow, where its own is the smaller."""
    own = plan.task.limit_tokens is not None and plan.task.limit_tokens == plan.limit_tokens
    return "the workflow's limit_tokens" if own else plan.title
