"""One row a model call, times in seconds."""

from __future__ import annotations

from collections.abc import Iterator

from agentsim.exports.base import Export, csv_line
from agentsim.result import Result, Turn
from agentsim.units import to_s

_COLUMNS = (
    "turn", "lane", "start_s", "end_s", "network_s", "queue_s", "prefill_s", "kv_transfer_s", "decode_s",
    "ttft_s", "itl_s", "prompt_tokens", "cached_tokens", "output_tokens", "thinking_tokens",
    "context_after", "compaction",
)  # fmt: skip


def render(result: Result) -> Iterator[str]:
    """Yield the lines of `turns.csv`."""
    yield csv_line(_COLUMNS)
    for turn in result.turns:
        yield csv_line(_row(turn))


def _row(turn: Turn) -> tuple[object, ...]:
    parts = (turn.network_ns, turn.queue_ns, turn.prefill_ns, turn.transfer_ns, turn.decode_ns)
    times = (turn.start_ns, turn.end_ns, *parts)
    itl = "" if turn.itl_ns is None else to_s(turn.itl_ns)
    counts = (turn.prompt, turn.cached, turn.output, turn.thinking, turn.context_after)
    return (
        turn.index, turn.lane, *map(to_s, times), to_s(turn.ttft_ns), itl, *counts,
        int(turn.compaction),
    )  # fmt: skip


PLUGIN = Export("turns.csv", csv_line(_COLUMNS), render, in_folder=True)
