"""The data of the charts: the first task of a result as columns of numbers, times in nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentsim.exports._events import Event, tasks_of, tracks_of
from agentsim.report.words import PARTS
from agentsim.result import Result, Turn
from agentsim.units import duration_text, to_s

MOST_EVENTS = 4000
"""More make a page that browsers scroll badly: the longest are kept, and the page says what is not drawn."""
KINDS = ("model", "tool", "file", "human", "idle")
TURN_FIELDS = (
    "index", "start_ns", "network_ns", "queue_ns", "prefill_ns", "transfer_ns", "decode_ns", "prompt",
    "cached", "output", "thinking", "context_after", "compaction",
)  # fmt: skip

_PIECES = {
    "decode": "decode_ns",
    "prefill": "prefill_ns",
    "queue": "queue_ns",
    "kv_transfer": "transfer_ns",
    "network": "network_ns",
}
Placed = tuple[int, int, Event]
"""The lane of an event, its track there, and the event."""


def timeline(result: Result) -> dict[str, Any]:
    """Return lanes, events and turns of the first task, and in `notes` what of the run is not there.

    `events` holds a column a field; `turn` is a place in the columns of `turns`, -1 for what is no call.
    """
    tasks = tasks_of(result)
    task = tasks[0]
    placed = [
        (number, track, event)
        for number, lane in enumerate(task.lanes)
        for track, events in enumerate(tracks_of(lane))
        for event in events
        if event.kind != "idle"
    ]
    notes = [f"Of {len(tasks):,} tasks the first is drawn."] if len(tasks) > 1 else []
    placed, thinned = _longest(placed)
    placed.sort(key=lambda item: (item[2].start_ns, item[0], item[1]))
    return {
        "deployment": result.deployment,
        "seed": result.seed,
        "start_ns": task.start_ns,
        "end_ns": task.end_ns,
        "lanes": [{"name": lane.label, "depth": lane.name.count("/")} for lane in task.lanes],
        **_columns(placed),
        "notes": notes + thinned,
    }


def _longest(placed: list[Placed]) -> tuple[list[Placed], list[str]]:
    if len(placed) <= MOST_EVENTS:
        return placed, []
    ordered = sorted(placed, key=lambda item: item[2].start_ns - item[2].end_ns)
    kept, left = ordered[:MOST_EVENTS], ordered[MOST_EVENTS:]
    total, lost = (sum(e.end_ns - e.start_ns for _, _, e in some) for some in (ordered, left))
    longest = duration_text(to_s(left[0][2].end_ns - left[0][2].start_ns))
    share = lost / total if total else 0.0
    note = (
        f"The {MOST_EVENTS:,} longest of {len(placed):,} calls and waits are drawn; what is left out is at "
        f"most {longest} long each and {share:.1%} of all their time."
    )
    return kept, [note]


def _columns(placed: list[Placed]) -> dict[str, Any]:
    turns: list[Turn] = [event.turn for _, _, event in placed if event.turn is not None]
    places = {turn.index: place for place, turn in enumerate(turns)}
    names = {name: place for place, name in enumerate(dict.fromkeys(e.name for _, _, e in placed))}
    events = {
        "lane": [lane for lane, _, _ in placed],
        "track": [track for _, track, _ in placed],
        "kind": [KINDS.index(event.kind) for _, _, event in placed],
        "name": [names[event.name] for _, _, event in placed],
        "start_ns": [event.start_ns for _, _, event in placed],
        "end_ns": [event.end_ns for _, _, event in placed],
        "turn": [-1 if e.turn is None else places[e.turn.index] for _, _, e in placed],
        "critical": [int(_is_critical(event)) for _, _, event in placed],
    }
    columns = {name: [int(getattr(turn, name)) for turn in turns] for name in TURN_FIELDS}
    return {"kinds": KINDS, "names": list(names), "events": events, "turns": columns}


def parts_drawn(charts: Mapping[str, Any]) -> list[str]:
    """Return the parts of a task's time that the charts show, in the order of `PARTS`, waits for you last."""
    turns, kinds = charts["turns"], {KINDS[kind] for kind in charts["events"]["kind"]}
    found = {part for part, name in _PIECES.items() if any(turns[name])}
    found |= kinds | ({"compaction"} if any(turns["compaction"]) else set())
    return [part for part in (*PARTS, "human") if part in found]


def _is_critical(event: Event) -> bool:
    return any(piece.critical for piece in event.pieces)
