"""A run written for other tools says the same when agentsim reads it back, and is sound in itself."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import endpoint, plan_of, workflow
from hypothesis import given, settings
from hypothesis import strategies as st
from importer_checks import DATA, check_damaged, damaged_or_wrong, sessions_in, told

from agentsim import plugins
from agentsim.errors import InputError
from agentsim.exports.agentic_mooncake import BLOCK_TOKENS
from agentsim.importers._observe import Observation, observe
from agentsim.importers.base import importer_of
from agentsim.result import Part, Result
from agentsim.sim.engine import simulate
from agentsim.units import to_s
from agentsim.verbs import plans

WORKFLOWS = sorted((Path(__file__).parents[1] / "workflows").glob("*.yaml"))
EXACT = ("csv", "otel", "perfetto")
READ_BACK = (*EXACT, "agentic_mooncake")
HOSTILE = "</script><img src=x>\"'`,\n\u2028${}/#%"


@cache
def run_of(path: Path) -> Result:
    return simulate(plans(str(path), ["coding-tool"], [])[0], 3)


def text_of(result: Result, export: str) -> str:
    return "".join(plugins.load("exports", export).render(result))


def read_back(result: Result, export: str, folder: Path) -> list[Observation]:
    path = folder / plugins.load("exports", export).file_name
    path.write_bytes(text_of(result, export).encode())
    importer = importer_of(str(path))
    assert importer.name == export
    return [observe(session) for session in sessions_in(importer, path)]


def busy_ns(result: Result, model: bool) -> int:
    """Return the time in which a model was at work, or tools and files and no model."""
    edges: list[tuple[int, int, bool]] = []
    for turn in result.turns:
        edges += [(turn.start_ns, 1, True), (turn.end_ns, -1, True)]
    for span in result.spans:
        if span.turn is None and span.part in (Part.TOOL, Part.FILE):
            edges += [(span.start_ns, 1, False), (span.end_ns, -1, False)]
    total, going, before = 0, {True: 0, False: 0}, 0
    for at, change, kind in sorted(edges):
        counts = going[True] > 0 if model else going[False] > 0 and not going[True]
        total += (at - before) * counts
        going[kind] += change
        before = at
    return total


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
@pytest.mark.parametrize("export", EXACT)
def test_a_run_read_back_has_the_same_totals(export, path, tmp_path):
    result = run_of(path)
    [seen] = read_back(result, export, tmp_path)
    task = result.task
    assert seen.task_s == pytest.approx(to_s(task.completion_ns), abs=1e-6)
    assert seen.split.human_s == pytest.approx(to_s(task.human_ns), abs=1e-6)
    assert seen.model_calls == task.model_calls
    tokens = task.prompt_tokens, task.cached_tokens, task.output_tokens
    assert (seen.prompt_tokens, seen.cached_tokens, seen.output_tokens) == tokens
    assert seen.model_s == pytest.approx(to_s(busy_ns(result, model=True)), abs=1e-6)
    assert seen.tool_s == pytest.approx(to_s(busy_ns(result, model=False)), abs=1e-6)
    assert not seen.split.odd


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_an_agentic_mooncake_trace_read_back_has_the_same_calls(path, tmp_path):
    result = run_of(path)
    [seen] = read_back(result, "agentic_mooncake", tmp_path)
    task = result.task
    counts = seen.model_calls, seen.prompt_tokens, seen.output_tokens
    assert counts == (task.model_calls, task.prompt_tokens, task.output_tokens)
    assert seen.model_s == pytest.approx(to_s(busy_ns(result, model=True)), abs=1e-6)
    last_ns = max(turn.end_ns for turn in result.turns) - min(span.start_ns for span in result.spans)
    assert seen.split.elapsed_s <= to_s(last_ns) + 1e-6
    assert not seen.split.odd


@pytest.mark.parametrize("export", EXACT)
def test_lanes_parallel_tools_and_human_waits_survive(export, tmp_path):
    result = simulate(plan_of(sub_agents()), 0)
    path = tmp_path / plugins.load("exports", export).file_name
    path.write_text(text_of(result, export), "utf-8")
    [session] = sessions_in(importer_of(str(path)), path)
    assert [lane.parent for lane in session.lanes] == [None, "main", "main"]
    main, one, other = (told(lane) for lane in session.lanes)
    assert [line.split()[1] for line in main] == ["call", "tool", "tool", "human", "call"]
    assert len([line for line in main if line.startswith("0.1+")]) == 2
    assert [line.split()[1] for line in one] == [line.split()[1] for line in other] == ["call", "tool"]


def sub_agents(name: str = "helper") -> Any:
    slow = {"call": {"tool": "slow", "time": "2 s"}}
    turn = {"generate": {"tokens": 10}}
    return workflow(
        {"user": {"tokens": 100}},
        turn,
        {"parallel": [slow, {"call": {"tool": "quick", "time": "1 s"}}]},
        {"agents": [{"name": name, "steps": [turn, slow]}, {"name": "other", "steps": [turn, slow]}]},
        {"think": {"time": "5 s"}},
        turn,
    )


def test_a_retried_call_that_waited_for_a_slot_is_one_call(tmp_path):
    flaky = {
        "time": "1 s",
        "slots": 1,
        "failure": {"probability": 1.0, "retries": 2, "backoff": {"initial": "2 s"}},
    }
    parallel = {"parallel": [{"call": "test"}, {"call": "test"}]}
    task = workflow(
        {"generate": {"tokens": 10}}, parallel, {"generate": {"tokens": 10}}, tools={"test": flaky}
    )
    result = simulate(plan_of(task), 0)
    assert len(result.spans) > 10
    for export in EXACT:
        [seen] = read_back(result, export, tmp_path)
        assert seen.tool_calls == result.task.tool_calls == 2


@pytest.mark.parametrize("export", READ_BACK)
def test_each_of_several_tasks_is_a_session(export, tmp_path):
    plan = plan_of(workflow({"generate": {"tokens": 50}}, {"call": {"tool": "t", "time": "1 s"}},
                            {"generate": {"tokens": 50}}))  # fmt: skip
    result = simulate(plan, 0, arrivals_s=(0.0, 0.3, 5.0))
    seen = read_back(result, export, tmp_path)
    assert [(one.model_calls, one.tool_calls) for one in seen] == [(2, 1)] * 3
    elapsed = sorted(to_s(task.end_ns - task.start_ns) for task in result.tasks)
    assert sorted(one.split.elapsed_s for one in seen) == pytest.approx(elapsed)


@pytest.mark.parametrize("export", plugins.built_in_names("exports"))
def test_an_export_begins_with_its_mark_and_is_the_same_each_time(export):
    plugin, result = plugins.load("exports", export), run_of(WORKFLOWS[1])
    assert text_of(result, export).startswith(plugin.mark)
    assert text_of(result, export) == text_of(result, export)


@pytest.mark.parametrize("export", EXACT)
def test_names_of_any_kind_survive(export, tmp_path):
    name = HOSTILE.replace("\n", " ").replace("\u2028", " ")
    result = simulate(plan_of(sub_agents(name)), 0)
    [seen] = read_back(replace(result, workflow=HOSTILE, deployment=HOSTILE), export, tmp_path)
    assert seen.sub_agents == 2


def test_a_result_read_back_is_equal():
    for path in WORKFLOWS:
        assert Result.from_json(json.loads(text_of(run_of(path), "result"))) == run_of(path)


@pytest.mark.parametrize("export", READ_BACK)
def test_a_run_of_which_nothing_was_kept_cannot_be_exported(export):
    bare = replace(run_of(WORKFLOWS[0]), turns=(), spans=())
    with pytest.raises(InputError, match="kept no spans and no turns"):
        text_of(bare, export)


# ---- each format is sound in itself


def test_slices_of_a_perfetto_track_nest():
    for path in WORKFLOWS:
        trace = json.loads(text_of(run_of(path), "perfetto"))["traceEvents"]
        named = {event["tid"] for event in trace if event["name"] == "thread_name"}
        tracks: dict[int, list[tuple[int, int]]] = {}
        for event in (event for event in trace if event["ph"] == "X"):
            start = round(event["ts"] * 1000)
            tracks.setdefault(event["tid"], []).append((start, -(start + round(event["dur"] * 1000))))
        assert tracks.keys() == named
        for slices in tracks.values():
            open_ends: list[int] = []
            for start, end in sorted(slices):
                while open_ends and open_ends[-1] <= start:
                    open_ends.pop()
                assert not open_ends or -end <= open_ends[-1]
                open_ends.append(-end)


def test_otlp_spans_have_ids_of_their_own_and_lie_within_their_parents():
    for path in WORKFLOWS:
        export = json.loads(text_of(run_of(path), "otel"))
        spans = export["resourceSpans"][0]["scopeSpans"][0]["spans"]
        by_id = {span["spanId"]: span for span in spans}
        assert len(by_id) == len(spans)
        assert [span["name"] for span in spans if not span["parentSpanId"]] == ["invoke_agent main"]
        for span in spans:
            around = by_id.get(span["parentSpanId"], span)
            assert int(around["startTimeUnixNano"]) <= int(span["startTimeUnixNano"])
            assert int(span["endTimeUnixNano"]) <= int(around["endTimeUnixNano"])
            assert len(span["traceId"]) == 2 * len(span["spanId"]) == 32


def mooncake_rows(result: Result) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    header, *rows = map(json.loads, text_of(result, "agentic_mooncake").splitlines())
    return header, rows


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_mooncake_request_starts_when_what_it_waits_for_allows_it(path):
    """Others run the rows without their timestamps: times follow from the links and the answers' lengths."""
    _, rows = mooncake_rows(run_of(path))
    ends: dict[str, float] = {}
    for row in rows:
        links = [ends[link["request_id"]] + link["delay_ms"] for link in row["dependencies"]]
        start = max([row["not_before_ms"], *links])
        assert start == pytest.approx(row["timestamp"], abs=1e-3)
        ends[row["request_id"]] = start + row["recorded_api_time_ms"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_mooncake_blocks_fill_the_prompt_and_repeat_what_is_the_same(path):
    header, rows = mooncake_rows(run_of(path))
    assert header["block_size"] == BLOCK_TOKENS
    before: dict[str, list[int]] = {}
    for row in rows:
        blocks = row["hash_ids"]
        assert len(blocks) == -(-row["input_length"] // BLOCK_TOKENS)
        assert len(set(blocks)) == len(blocks)
        last = before.get(row["session_id"], [])
        same = next((i for i, (a, b) in enumerate(zip(last, blocks, strict=False)) if a != b), len(last))
        assert not set(blocks[same:]) & set(last)
        before[row["session_id"]] = blocks


def test_a_prompt_that_grew_keeps_all_whole_blocks_of_the_one_before():
    task = workflow({"user": {"tokens": 1000}}, {"generate": {"tokens": 10}}, {"user": {"tokens": 500}},
                    {"generate": {"tokens": 10}})  # fmt: skip
    _, rows = mooncake_rows(simulate(plan_of(task, endpoint()), 0))
    first, second = (row["hash_ids"] for row in rows)
    whole = rows[0]["input_length"] // BLOCK_TOKENS
    assert first[:whole] == second[:whole]
    assert first[whole:] != second[whole : len(first)]


def test_behind_a_compaction_only_the_system_prompt_is_the_same():
    system = 10 * BLOCK_TOKENS
    context = {
        "system_tokens": system,
        "limit_tokens": 6000,
        "compaction": {"at": 0.9, "summary_tokens": 2000},
    }
    steps = [{"repeat": {"times": 9, "steps": [{"user": {"tokens": 800}}, {"generate": {"tokens": 100}}]}}]
    result = simulate(plan_of(workflow(*steps, context=context)), 0)
    place = next(index for index, turn in enumerate(result.turns) if turn.compaction)
    before, after = (mooncake_rows(result)[1][i]["hash_ids"] for i in (place, place + 1))
    assert before[:10] == after[:10]
    assert not set(before[10:]) & set(after[10:])


# ---- damaged files of the formats that only agentsim writes


@cache
def small(export: str) -> bytes:
    return text_of(simulate(plan_of(sub_agents()), 0), export).encode()


@pytest.mark.parametrize("export", ["csv", "perfetto"])
@settings(max_examples=80)
@given(data=st.data())
def test_a_damaged_file_ends_in_sound_sessions_or_one_line(export, tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damaged") / "file"
    content = small(export)
    made = damaged_or_wrong(data, content) if export == "perfetto" else damaged_rows(data, content)
    check_damaged(plugins.load("importers", export), path, made)


def damaged_rows(data: st.DataObject, content: bytes) -> bytes:
    """Return rows with cells replaced by what does not belong there."""
    rows = [line.split(",") for line in content.decode().splitlines()]
    for _ in range(data.draw(st.integers(0, 4))):
        row = data.draw(st.sampled_from(rows[1:]))
        column = data.draw(st.integers(0, len(row) - 1))
        row[column] = data.draw(
            st.sampled_from(["", "x", "-1", "1e400", "nan", '"', "main/a/b", "1e9", "human"])
        )
    return "\n".join(map(",".join, rows)).encode()


def test_no_other_log_is_taken_for_one_of_these():
    for path in sorted(DATA.iterdir()):
        if path.is_file():
            head = path.read_bytes()[:65536]
            for export in ("csv", "perfetto"):
                assert not plugins.load("importers", export).recognises(str(path), head)
