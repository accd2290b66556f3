"""Mooncake serving traces: prefixes from block hashes, sessions of one row or of many, nothing timed."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importer_checks import (
    DATA,
    LOGS,
    calls_in,
    check_damaged,
    damaged_or_wrong,
    needs_logs,
    recognised,
    sessions_in,
    waits_of,
)
from span_checks import one_in, tokens_of

from agentsim.errors import ImportFormatError
from agentsim.importers import _blocks, agentic_mooncake, base, mooncake
from agentsim.importers._block_numbers import numbers_in
from agentsim.importers._blocks import SeenBlocks, TextBlocks
from agentsim.importers.base import importer_of
from agentsim.importers.mooncake import PLUGIN

FILES = [DATA / "mooncake_plain.jsonl", DATA / "mooncake_plus.jsonl"]


def row(**more: Any) -> str:
    return json.dumps({"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]} | more)


def test_a_row_without_a_session_is_a_session_of_one_call() -> None:
    sessions = sessions_in(PLUGIN, FILES[0])
    assert [session.name for session in sessions] == ["row 1", "row 2", "row 3", "row 4"]
    assert [calls_in(session) for session in sessions] == [[(0, 0, "absent")]] * 4


def test_cached_are_the_leading_blocks_that_any_row_above_has_used() -> None:
    tokens = [tokens_of(session)[0][:2] for session in sessions_in(PLUGIN, FILES[0])]
    assert tokens == [(1100, 0), (1500, 1024), (600, 600), (100, 100)]


def test_rows_of_a_session_are_its_turns_in_their_time() -> None:
    first, second = sessions_in(PLUGIN, FILES[1])
    assert calls_in(first) == [(0, 0, "absent"), (4, 0, "absent")]
    assert waits_of(first) == [("tool", "tools and waits", 0, 4)]
    assert first.odd == {"answers not timed": 2, "rows without a timestamp": 1}
    assert [call.model for call in first.calls] == ["m-1", "m-1"]
    assert calls_in(second) == [(0, 6, "inferred"), (8, 0, "absent"), (10.5, 0, "absent")]


def test_a_pause_of_which_nothing_is_told_holds_the_answer_and_is_no_tool() -> None:
    _, second = sessions_in(PLUGIN, FILES[1])
    assert waits_of(second) == [
        ("tool", "tools and waits", 6, 2),
        ("harness", "answer not timed, and wait", 8, 2.5),
    ]


BLOCKS = {
    "as many as the prompt fills": (600, [1, 2], 600, {}),
    "exactly full": (1024, [1, 2], 1024, {}),
    "one token more than they hold": (1025, [1, 2], 1024, {"hash_ids do not fit input_length": 1}),
    "one block too many": (512, [1, 2], 512, {"hash_ids do not fit input_length": 1}),
    "far too many, of smaller blocks": (64, [1, 2, 3, 4], 32, {"hash_ids do not fit input_length": 1}),
    "none": (600, [], 0, {}),
    "text": (600, ["1", "2"], 600, {}),
    "no hashes at all": (600, [1, None], 0, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_must_be_those_that_the_prompt_fills(name: str, tmp_path: Path) -> None:
    prompt, hashes, cached, odd = BLOCKS[name]
    path = tmp_path / "log.jsonl"
    path.write_text(row() + "\n" + row(input_length=prompt, hash_ids=hashes) + "\n")
    _, session = sessions_in(PLUGIN, path)
    assert tokens_of(session) == [(prompt, cached, 5, 0)]
    assert session.odd == odd


ROWS = {
    "a truncated last row": (f"{row()}\n{row()}\n{row()[:30]}", 2),
    "half a row, then the same row": (f"{row()[:30]}\n{row()}\n{row()}\n", 2),
    "a row with negative lengths": (f"{row()}\n{row(input_length=-1)}\n{row()}\n", 2),
    "a row that is no object": (f"{row()}\n7\n{row()}\n", 2),
    "lengths as text": (f"{row(input_length='600')}\n", 1),
    "lengths as floats": (f"{row(input_length=600.0)}\n", 1),
    "a byte order mark": (f"\ufeff{row()}\n", 1),
    "a separator of lines in a text": (row(text_input="a\u2028b\x85c") + "\n", 1),
    "a list of rows": (f"[{row()},\n{row()}]", 2),
    "no timestamp": ('{"input_length": 4, "output_length": 2}\n', 1),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_odd_rows_are_left_out_and_the_others_read(name: str, tmp_path: Path) -> None:
    text, count = ROWS[name]
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    assert len(sessions_in(PLUGIN, path)) == count


def test_what_is_left_out_is_counted_with_the_next_session(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f"{row()}\n{{broken\n{row(output_length=None)}\n{row()}\n{row()}\n")
    assert [dict(session.odd) for session in sessions_in(PLUGIN, path)] == [
        {}, {"damaged rows left out": 1, "rows without usable lengths left out": 1}, {},
    ]  # fmt: skip


def test_turns_out_of_order_are_sorted_and_counted(tmp_path: Path) -> None:
    rows = [row(session_id="s", timestamp=at) for at in (3000, 1000, 2000)]
    session = one_in(PLUGIN, "\n".join(rows), tmp_path)
    assert [start for start, *_ in calls_in(session)] == [0, 1, 2]
    assert session.odd == {"answers not timed": 3, "rows out of order": 2}


def test_a_prompt_given_as_text_is_estimated_and_says_so(tmp_path: Path) -> None:
    text = json.dumps({"session_id": "s", "text_input": "x" * 401, "output_length": 5})
    session = one_in(PLUGIN, text, tmp_path)
    assert tokens_of(session) == [(101, 0, 5, 0)]
    assert session.odd["tokens estimated from text"] == 1


def test_blocks_not_met_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_blocks, "GENERATION", 10)
    seen = TextBlocks()
    for first in range(0, 100, 5):
        assert seen.leading(", ".join(["kept", *map(str, range(first, first + 5))])) == int(first > 0)
        assert len(seen.young) + len(seen.old) < 40
    assert seen.leading("0") == 0


def test_rows_without_sessions_are_read_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"{row(timestamp=at)}\n" for at in range(20_000)))
    tracemalloc.start()
    assert sum(1 for _ in PLUGIN.sessions(str(path))) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * 2**20


@pytest.mark.parametrize("text", ['{"input_length": 3}', "{}", '{"input_length": 3, "out', "[]", "7"])
def test_a_file_without_a_row_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match=r"log\.jsonl:1: "):
        one_in(PLUGIN, text, tmp_path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_format_is_known_by_its_content(path: Path) -> None:
    assert importer_of(str(path)).name == "mooncake"


@needs_logs
def test_of_the_shared_logs_only_its_own_are_taken() -> None:
    assert set(recognised(PLUGIN)) == {f"mooncake/{file.name}" for file in (LOGS / "mooncake").iterdir()}


@needs_logs
def test_every_row_of_a_shared_trace_is_read_and_its_blocks_fit() -> None:
    path = LOGS / "mooncake" / "synthetic_trace.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    sessions = list(PLUGIN.sessions(str(path)))
    tokens = [tokens_of(session)[0] for session in sessions]
    assert [(prompt, output) for prompt, _, output, _ in tokens] == [
        (r["input_length"], r["output_length"]) for r in rows
    ]
    assert not any(session.odd for session in sessions)
    seen: set[int] = set()
    for r, (_, cached, *_) in zip(rows, tokens, strict=True):
        known = next((i for i, h in enumerate(r["hash_ids"]) if h not in seen), len(r["hash_ids"]))
        seen.update(r["hash_ids"])
        assert cached == min(known * 512, r["input_length"])


@settings(max_examples=150)
@given(data=st.data(), path=st.sampled_from(FILES))
def test_damaged_files_are_read_or_refused(
    data: st.DataObject, path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzz.jsonl"
    check_damaged(PLUGIN, file, damaged_or_wrong(data, path.read_bytes()))


def _blocks_seen(rows: list[list[int]], most: int) -> list[int]:
    """Return the leading blocks seen before of each row, in the plainest way: two sets, block by block."""
    young: set[int] = set()
    old: set[int] = set()
    found = []
    for row in rows:
        found.append(next((i for i, block in enumerate(row) if block not in young | old), len(row)))
        young |= set(row) if old else set(row[found[-1] :])
        if len(young) > most:
            old, young = young, set()
    return found


@pytest.mark.parametrize("most", [60, 10**6])
@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")], ids=["spaced", "compact"])
@pytest.mark.parametrize("lengths", [(1, 30), (100, 600)], ids=["short", "long"])
def test_what_is_cached_is_what_looking_at_every_block_gives(
    lengths: tuple[int, int],
    separators: tuple[str, str],
    most: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_blocks, "GENERATION", most)
    monkeypatch.setattr(_blocks, "KEPT_CHARS", 40_000)
    draw = Random(1)
    rows = [[draw.randrange(9), *range(10, 10 + draw.randint(*lengths))] for _ in range(20)]
    for _ in range(180):
        before = draw.choice(rows)[: draw.randint(1, lengths[1])]
        rows.append([*before, *(draw.randrange(10**6) for _ in range(draw.randint(0, 9)))])
    log = tmp_path / "trace.jsonl"
    row = {"timestamp": 5, "input_length": 0, "output_length": 7, "hash_ids": []}
    made = [row | {"input_length": 512 * len(blocks), "hash_ids": blocks} for blocks in rows]
    log.write_text("".join(json.dumps(one, separators=separators) + "\n" for one in made))
    cached = [next(session.calls).cached_tokens for session in PLUGIN.sessions(str(log))]
    assert cached == [512 * count for count in _blocks_seen(rows, most)]


def _branching(draw: Random, count: int, lengths: tuple[int, int], ids: int) -> Iterator[str]:
    """Yield rows that go on with rows before, and some that hold any ids in any order, twice as well."""
    rows, fresh = [[0]], 0
    for _ in range(count):
        before = draw.choice(rows[-50:])
        size = draw.randint(*lengths)
        row = [*before[: draw.randrange(len(before) + 1)], *range(fresh, fresh + size)]
        fresh += size
        if draw.random() < 0.2:
            row = draw.choices(range(fresh), k=size)
        rows.append(row)
        yield ", ".join(str(block + ids) for block in row)


@pytest.mark.parametrize("ids", [0, 2**27 - 2000, 2**61], ids=["small", "too large on the way", "large"])
@pytest.mark.parametrize("most", [17, 60, 10**6])
@pytest.mark.parametrize("lengths", [(1, 5), (30, 90)], ids=["short", "long"])
def test_batches_of_rows_give_what_row_after_row_gives(
    lengths: tuple[int, int], most: int, ids: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where one hash has several before it, over more generations than an array can count."""
    monkeypatch.setattr(_blocks, "GENERATION", most)
    draw, plain, batched, found = Random(2), TextBlocks(), SeenBlocks(), list[int]()
    rows = list(_branching(draw, 4000, lengths, ids))
    while len(found) < len(rows):
        size = draw.choice([1, 2, 30, 300])
        batch = rows[len(found) : len(found) + size]
        found += batched.leading_each(batch) if size > 1 else [batched.leading(batch[0])]
    assert found == [plain.leading(row) for row in rows]
    assert sum(found) > 1000


@pytest.mark.parametrize("listed", ["07", "1 2", "1,, 2", "-1", "x", "1, , 2", "1,2", "9" * 30, "", "1, "])
def test_hashes_that_json_would_write_otherwise_are_no_numbers(listed: str) -> None:
    assert numbers_in([listed]) is None


LINES = st.sampled_from(
    [row(), row(hash_ids=[1, 3]), row(hash_ids=[2**70]), row(hash_ids=[]), row(session_id="s"), "", "{", "7",
     row().replace(", ", ","), row().replace("1, 2", "1,  2"), row().replace("1, 2", "01, 2"),
     row().replace("1, 2", "1,, 2"), row(input_length=5), row(model="é"), row() + " ", row() + "\r", "[]",
     row().replace("1, 2", "1, , 2"), row().replace("1, 2", "1,2"), row() + row(), row()[:-1]]
)  # fmt: skip


@settings(max_examples=150)
@given(lines=st.lists(LINES, min_size=1, max_size=30), ends=st.sampled_from(["", "\n", "\n\n"]))
def test_rows_read_in_bulk_are_those_read_one_by_one(
    lines: list[str], ends: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "bulk.jsonl"
    file.write_text("\n".join(lines) + ends, "utf-8", newline="")
    found = []
    for size in (64, 400, 10**6, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(base, "_BLOCK_BYTES", size)
            found.append(_read(file))
    assert found[:-1] == found[-1:] * 3


def _read(file: Path) -> Any:
    try:
        return list(PLUGIN.sessions(str(file)))
    except ImportFormatError as bad:
        return str(bad)


@pytest.mark.parametrize("waiting", [1, 500, 10**6])
@pytest.mark.parametrize("kinds", ["session", "mixed", "agentic"])
def test_rows_looked_up_together_have_cached_what_they_would_have_alone(
    kinds: str, waiting: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row is told by its output, and its blocks are looked up in the order of rows, whatever its kind."""
    monkeypatch.setattr(mooncake, "_WAITING_CHARS", waiting)
    monkeypatch.setattr(agentic_mooncake, "_CHARS", waiting)
    draw, size = Random(3), 64 if kinds == "agentic" else 512
    rows = [[int(block) for block in row.split(", ")] for row in _branching(draw, 600, (1, 40), 0)]
    text = ""
    for index, blocks in enumerate(rows):
        agent = {"session_id": f"s{draw.randrange(9)}"}
        more = {"session": agent, "agentic": {"request_id": f"r{index}", "wait_for": []} | agent}.get(kinds)
        more = draw.choice([{}, {"model": "m"}, agent]) if more is None else more
        lengths = {"input_length": size * len(blocks), "output_length": index, "hash_ids": blocks}
        text += json.dumps({"timestamp": index, **lengths, **more}) + "\n"
    (tmp_path / "log.jsonl").write_text(text)
    importer = agentic_mooncake.PLUGIN if kinds == "agentic" else PLUGIN
    calls = [call for session in importer.sessions(str(tmp_path / "log.jsonl")) for call in session.calls]
    cached = [call.cached_tokens for call in sorted(calls, key=lambda call: call.output_tokens)]
    assert cached == [size * count for count in _blocks_seen(rows, 10**6)]
