"""What several runs of one plan came to: the figures that tables and JSON show.

Times are seconds. Parts are means over runs and sum to the mean task completion time.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from agentsim.result import INFERENCE, Part, Result, Source, Spread
from agentsim.units import to_s

SCHEMA = "agentsim.run/1"
_S_PER_NS = to_s(1.0)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Means over runs; `prompt` includes `cached`."""

    prompt: float
    cached: float
    output: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The runs of one workflow on one deployment, and the first run whole."""

    first: Result
    runs: int
    completion_s: Spread
    parts_s: dict[Part, float]
    decode_parts_s: dict[str, float]
    tokens: Tokens
    peak_context: int
    model_calls: float
    tool_calls: float
    critical_output: float
    critical_decode_s: float
    slot_wait_s: float
    output_tokens_per_s: float | None
    ttft_s: Spread | None
    itl_s: Spread | None
    cost_usd: float | None
    warnings: tuple[str, ...]

    @property
    def human_s(self) -> float:
        return self.parts_s[Part.HUMAN]

    @property
    def inference_share(self) -> float:
        """Share of the task completion time that faster inference could shorten."""
        total = self.completion_s.avg
        return sum(self.parts_s[part] for part in INFERENCE) / total if total else 0.0

    @property
    def is_lower_bound(self) -> bool:
        """Tell whether a part of the inference time is unknown and counts as zero."""
        return self.first.lower_bound

    def to_json(self) -> dict[str, Any]:
        """Return the object that `run --format json` prints."""
        first = self.first
        return {
            "schema": SCHEMA,
            "workflow": first.workflow,
            "deployment": first.deployment,
            "title": first.title,
            "origin": first.origin,
            "overrides": list(first.overrides),
            "runs": self.runs,
            "seed": first.seed,
            "task_completion_s": asdict(self.completion_s),
            "trajectory_e2e_latency_ms": asdict(self.completion_s.scaled(1e3)),
            "breakdown_s": {p.key: self.parts_s[p] for p in Part if p is not Part.HUMAN},
            "decode_parts_s": self.decode_parts_s,
            "tool_slot_wait_s": self.slot_wait_s,
            "human_wait_s": self.human_s,
            "inference_share": self.inference_share,
            "tokens": asdict(self.tokens),
            "peak_context_tokens": self.peak_context,
            "model_calls": self.model_calls,
            "tool_calls": self.tool_calls,
            "output_tokens_per_s": self.output_tokens_per_s,
            "ttft_s": asdict(self.ttft_s) if self.ttft_s else None,
            "itl_s": asdict(self.itl_s) if self.itl_s else None,
            "cost_usd": self.cost_usd,
            "sources": sources_json(first.sources),
            "lower_bound": self.is_lower_bound,
            "warnings": list(self.warnings),
        }


def sources_json(sources: Iterable[Source]) -> dict[str, Any]:
    """Return counts by basis and the list, strongest basis first."""
    listed = [{"name": s.name, "basis": s.basis, "source": s.text} for s in sources]
    return {"counts": dict(Counter(entry["basis"] for entry in listed)), "list": listed}


class SummaryBuilder:
    """Takes results one by one and keeps only what the summary needs, beside the first."""

    def __init__(self) -> None:
        self._first: Result | None = None
        self._runs = 0
        self._completion_s: list[float] = []
        self._parts_ns = [0] * len(Part)
        self._decode_parts: dict[str, float] = {}
        self._totals: Counter[str] = Counter()
        self._peak = 0
        self._ttft_ns = array("d")
        self._itl_ns = array("d")
        self._cost: list[float | None] = []
        self._warnings: Counter[str] = Counter()

    def add(self, result: Result) -> None:
        """Take one more run of the same plan."""
        self._first = self._first or result
        self._runs += 1
        self._completion_s += result.completion_s()
        self._cost.append(result.cost_usd)
        self._warnings.update(result.warnings)
        for name, seconds in result.decode_parts.items():
            summed = self._decode_parts.get(name, 0.0) + seconds * len(result.tasks)
            self._decode_parts[name] = summed
        for task in result.tasks:
            self._peak = max(self._peak, task.peak_context)
            self._parts_ns = [a + b for a, b in zip(self._parts_ns, task.parts_ns, strict=True)]
            self._totals.update({name: getattr(task, name) for name in _SUMMED})
        self._ttft_ns.extend(t.ttft_ns for t in result.turns if not t.compaction)
        self._itl_ns.extend(t.itl_ns for t in result.turns if t.itl_ns is not None and not t.compaction)

    def _only(self, spread: Spread | None) -> Spread | None:
        """Spreads of several runs cannot be joined; without turns, one run's is all there is."""
        return spread if self._runs == 1 else None

    def build(self) -> Summary:
        """Return the summary. Precondition: at least one run was added."""
        assert self._first is not None, "no run was added"
        tasks, totals, completion = len(self._completion_s), self._totals, Spread.of(self._completion_s)
        assert completion is not None
        decode_s = to_s(totals["decode_ns"])
        return Summary(
            first=self._first,
            runs=self._runs,
            completion_s=completion,
            parts_s={part: to_s(self._parts_ns[part]) / tasks for part in Part},
            decode_parts_s={name: seconds / tasks for name, seconds in self._decode_parts.items()},
            tokens=Tokens(*(totals[f"{name}_tokens"] / tasks for name in ("prompt", "cached", "output"))),
            peak_context=self._peak,
            model_calls=totals["model_calls"] / tasks,
            tool_calls=totals["tool_calls"] / tasks,
            critical_output=totals["critical_output"] / tasks,
            critical_decode_s=to_s(totals["critical_decode_ns"]) / tasks,
            slot_wait_s=to_s(totals["slot_wait_ns"]) / tasks,
            output_tokens_per_s=totals["output_tokens"] / decode_s if decode_s else None,
            ttft_s=self._ttft_s(),
            itl_s=_seconds(Spread.of(self._itl_ns) or self._only(self._first.itl_ns)),
            cost_usd=_mean(self._cost),
            warnings=tuple(_warning(text, n, self._runs) for text, n in self._warnings.items()),
        )

    def _ttft_s(self) -> Spread | None:
        """Return the times to the first token; None where all were recorded without one."""
        assert self._first is not None
        found = _seconds(Spread.of(self._ttft_ns) or self._only(self._first.ttft_ns))
        return found if found is None or found.max or self._first.lower_bound else None


_SUMMED = (
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "model_calls",
    "tool_calls",
    "critical_output",
    "critical_decode_ns",
    "slot_wait_ns",
    "decode_ns",
)


def summarise(results: Iterable[Result]) -> Summary:
    """Return the summary of one or more runs of the same plan."""
    builder = SummaryBuilder()
    for result in results:
        builder.add(result)
    return builder.build()


def _seconds(spread: Spread | None) -> Spread | None:
    return spread.scaled(_S_PER_NS) if spread else None


def _mean(costs: list[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) / len(known) if len(known) == len(costs) and known else None


def _warning(text: str, count: int, runs: int) -> str:
    """Say how often a warning came up that is counted."""
    return f"{count:,} {text}" + (f" ({runs} runs together)" if runs > 1 else "") if count else text
