"""What the agents of one task share: servers, tools, seed, and the totals they count up."""

from __future__ import annotations

from array import array

from agentsim.plan import Plan
from agentsim.result import TaskOutcome, percentile
from agentsim.sim.clock import Clock
from agentsim.sim.path import CriticalPath
from agentsim.sim.recorder import Recorder
from agentsim.sim.request import Answer, Server
from agentsim.sim.tools import ToolBench


class Session:
    """What the agents of one task share. `prefix` sets its lanes apart from those of other tasks."""

    def __init__(
        self,
        env: Clock,
        plan: Plan,
        server: Server,
        bench: ToolBench,
        recorder: Recorder,
        seed: int,
        index: int,
        prefix: str,
    ) -> None:
        self.env, self.plan, self.server = env, plan, server
        self.bench, self.recorder = bench, recorder
        self.seed, self.index, self.prefix = seed, index, prefix
        self.model_calls = self.tool_calls = self.failed_calls = 0
        self.prompt_tokens = self.cached_tokens = self.output_tokens = 0
        self.peak_context = self.decode_ns = 0
        self.first_context: int | None = None
        self._ttfts_ns = array("d")

    def outcome(self, start_ns: int, path: CriticalPath) -> TaskOutcome:
        """Return what the task came to. Precondition: its main agent, whose path this is, ends now."""
        return TaskOutcome(
            start_ns=start_ns,
            end_ns=self.env.now,
            parts_ns=tuple(path.parts),
            model_calls=self.model_calls,
            tool_calls=self.tool_calls,
            failed_calls=self.failed_calls,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.output_tokens,
            peak_context=self.peak_context,
            first_context=self.first_context or 0,
            critical_output=path.output_tokens,
            critical_decode_ns=path.decode_ns,
            slot_wait_ns=path.slot_wait_ns,
            decode_ns=self.decode_ns,
            ttft_p95_ns=percentile(sorted(self._ttfts_ns), 0.95) if self._ttfts_ns else 0.0,
        )

    def count_call(self, answer: Answer, round_trip_ns: int, compaction: bool) -> None:
        """Enter a finished call in the task's totals; a compaction's latency is nobody's wait for a token."""
        self.recorder.calls_finished += 1
        self.prompt_tokens += answer.prompt
        self.cached_tokens += answer.cached
        self.output_tokens += answer.output
        self.decode_ns += answer.decode_ns
        if self.first_context is None:
            self.first_context = answer.prompt
        if compaction:
            return
        ttft = round_trip_ns + answer.queue_ns + answer.prefill_ns + answer.transfer_ns
        self._ttfts_ns.append(ttft)
        if not self.recorder.full:
            self.recorder.latency(ttft, answer.decode_ns, answer.output)
