"""What the figures of a report mean, in words: the answer first, then what bounds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentsim.report.read import Inputs
from agentsim.report.shapes import Run, Session, Verdict
from agentsim.units import count_text, duration_text

PARTS = {
    "decode": "decode",
    "prefill": "prefill",
    "queue": "queue",
    "kv_transfer": "KV transfer",
    "compaction": "compaction",
    "tool": "tools",
    "file": "files",
    "network": "network",
}
"""The parts of a task's time as people call them, inference first."""


class Tile(NamedTuple):
    """A figure that stands alone: as text, and what it is."""

    figure: str
    caption: str


class Answer(NamedTuple):
    """The answer of a report: one line, sentences on it, and the figures to remember."""

    headline: str
    sentences: tuple[str, ...]
    tiles: tuple[Tile, ...]


def answer(inputs: Inputs) -> Answer:
    """Return what a report says first."""
    if inputs.verdict is not None:
        return _compared(inputs.runs, inputs.verdict, inputs)
    if len(inputs.runs) > 1:
        return _beside(inputs)
    if inputs.runs:
        return _alone(inputs.runs[0])
    if inputs.sessions is not None:
        return _observed(inputs.sessions.sessions)
    assert inputs.sensitivity is not None
    return Answer(f"What moves the answer on {inputs.sensitivity.base}", (), ())


def missing(inputs: Inputs) -> Iterator[str]:
    """Yield what a report does not hold, and which result would bring it."""
    if inputs.result is None:
        yield "the timeline of a run (give the folder of run --output-dir, or the file of run -o)"
    if inputs.verdict is None and inputs.runs:
        yield "a verdict on a claim (give the JSON of compare)"
    if inputs.sensitivity is None:
        yield "what moves the answer (give the JSON of sensitivity)"


def low(run: Run) -> str:
    """Return what stands before a time of which a part is unknown."""
    return "≥ " if run.lower_bound else ""


def _column(runs: Sequence[Run], deployment: str) -> Run:
    return next((run for run in runs if run.deployment == deployment), runs[-1])


def _compared(runs: Sequence[Run], verdict: Verdict, inputs: Inputs) -> Answer:
    base, best = runs[0], _column(runs, verdict.fastest)
    claim = verdict.claim[:1].upper() + verdict.claim[1:]
    headline = f"“{claim}”? " + ("Yes, for this task." if verdict.holds else "Not for this task.")
    return Answer(headline, tuple(_reasons(base, best, verdict, inputs)), tuple(_tiles(base, best, verdict)))


def _reasons(base: Run, best: Run, verdict: Verdict, inputs: Inputs) -> Iterator[str]:
    most = "at most " if verdict.lower_bound else ""
    ratio = f"{verdict.token_speed_ratio:.3g} times the token speed is " if verdict.token_speed_ratio else ""
    times = f"{_p50(base)} on {base.deployment}, {_p50(best)} on {best.deployment}"
    yield f"{times}: {ratio}{most}{verdict.speedup:.2g} times the task speed."
    limit = f"Inference in no time at all would leave {duration_text(verdict.instant_s)}"
    if verdict.ceiling_speedup is not None:
        limit += f", so that {verdict.ceiling_speedup:.3g} times is the most that any speed can give"
    rest = f"{verdict.non_inference_share:.0%} of the time on {base.deployment} is tools, files and network"
    yield f"{limit}; {rest}."
    if verdict.saturation_tok_s is not None:
        fast = f"{verdict.saturation_tok_s:,.0f} tok/s"
        yield f"Decoding faster than {fast} changes the answer on {best.deployment} by less than 1 %."
    known = inputs.uncertainty
    if known is not None and known.probability is not None:
        share = f"{known.probability:.0%} of {known.samples:,} samples"
        yield f"With the uncertain data drawn from their ranges, the claim holds in {share}."


def _p50(run: Run) -> str:
    least = "at least " if run.lower_bound else ""
    return least + duration_text(run.task_completion_s.p50)


def _tiles(base: Run, best: Run, verdict: Verdict) -> Iterator[Tile]:
    yield Tile(f"{low(base)}{duration_text(base.task_completion_s.p50)}", f"task time on {base.deployment}")
    if best is not base:
        yield Tile(f"{low(best)}{duration_text(best.task_completion_s.p50)}", f"on {best.deployment}")
        yield Tile(f"{'≤ ' if verdict.lower_bound else ''}{verdict.speedup:.2g}x", "the task speed")
    if verdict.token_speed_ratio is not None:
        yield Tile(f"{verdict.token_speed_ratio:.3g}x", "the token speed")


def _beside(inputs: Inputs) -> Answer:
    named = list(zip(inputs.labels(), inputs.runs, strict=True))
    ordered = sorted(named, key=lambda pair: pair[1].task_completion_s.p50)
    (best, fast), (worst, slow) = ordered[0], ordered[-1]
    factor = slow.task_completion_s.p50 / (fast.task_completion_s.p50 or 1.0)
    times = f"{factor:.2g} times as fast as {worst} ({_p50(slow)}). Medians; seeds may differ between files."
    tiles = [Tile(f"{low(run)}{duration_text(run.task_completion_s.p50)}", label) for label, run in ordered]
    return Answer(f"{best} is fastest: {_p50(fast)}", (times,), tuple(tiles[:4]))


def _alone(run: Run) -> Answer:
    total = run.task_completion_s.avg
    at_least = "at least " if run.lower_bound else ""
    mean = f"mean of {run.runs:,} runs, " if run.runs > 1 else ""
    parts = sorted(run.breakdown_s.items(), key=lambda item: -item[1])[:3]
    shares = [f"{PARTS.get(p, p)} {s / (total or 1.0):.0%}" for p, s in parts if s]
    sentences = [f"{mean}{', '.join(shares)} of it.".capitalize()] if shares else []
    rest = duration_text(total * (1 - run.inference_share))
    sentences.append(f"Inference is {run.inference_share:.0%} of the task; without it {rest} would be left.")
    if run.human_wait_s:
        sentences.append(f"Waits for you, {duration_text(run.human_wait_s)}, are not counted.")
    headline = f"{at_least}{duration_text(total)} on {run.deployment}"
    return Answer(headline[:1].upper() + headline[1:], tuple(sentences), tuple(_facts(run)))


def _facts(run: Run) -> Iterator[Tile]:
    yield Tile(f"{run.model_calls:,.0f}", f"model calls, {run.tool_calls:,.0f} tool calls")
    yield Tile(
        count_text(run.tokens.output), f"tokens written, context up to {count_text(run.peak_context_tokens)}"
    )
    if run.ttft_s is not None:
        yield Tile(low(run) + duration_text(run.ttft_s.p50), "time to first token, median")
    if run.cost_usd is not None:
        yield Tile(f"{run.cost_usd:.2f} USD", "a task")
    elif run.output_tokens_per_s is not None:
        yield Tile(f"{run.output_tokens_per_s:,.0f} tok/s", "while decoding")


def _observed(sessions: Sequence[Session]) -> Answer:
    task, model = sum(s.task_s for s in sessions), sum(s.model_s for s in sessions)
    tools, human = sum(s.tool_s for s in sessions), sum(s.human_s for s in sessions)
    several = "" if len(sessions) == 1 else f" in {len(sessions):,} sessions"
    share = f"The model {model / (task or 1.0):.0%}, tools {tools / (task or 1.0):.0%} of it."
    waits = f"Waits for you, {duration_text(human)}, are not counted." if human else ""
    cached = sum(s.tokens.cached for s in sessions) / (sum(s.tokens.prompt for s in sessions) or 1.0)
    tiles = (
        Tile(f"{sum(s.model_calls for s in sessions):,.0f}", "model calls"),
        Tile(f"{sum(s.tool_calls for s in sessions):,.0f}", "tool calls"),
        Tile(f"{cached:.0%}", "of prompt tokens cached"),
    )
    return Answer(f"{duration_text(task)} of agent work{several}", tuple(filter(None, (share, waits))), tiles)
