"""Inputs of the issue log that belong to the walk of a folder or to no single format, by their number."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from importer_checks import DATA

from agentsim.errors import ImportFormatError
from agentsim.importers import _rows
from agentsim.importers._folder import Walk, sessions_below
from agentsim.importers._observe import Observation, observe
from agentsim.importers.base import open_sessions

COPY = "a session that another file holds, too"


def observed(path: Path) -> tuple[list[Observation], dict[str, list[str]]]:
    walk = Walk()
    return [observe(session) for session in sessions_below(str(path), walk)], walk.passed_over


def written(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_16_without_the_harness_own_turn_times_a_lunch_is_no_work(tmp_path: Path) -> None:
    """The VS Code extension writes no `turn_duration`: 78 h were reported where 30 min were worked."""
    rows = [json.loads(row) for row in (DATA / "claude_code_14_idle.jsonl").read_text().splitlines()]
    assert all(row.get("subtype") != "turn_duration" for row in rows)
    [[seen], _] = observed(written(tmp_path / "s.jsonl", *rows))
    assert (seen.split.elapsed_s, seen.task_s, seen.split.human_s) == (3004, 16, 2988)


@pytest.mark.parametrize("name", ["claude_code_plain", "codex_plain", "pi_plain"])
def test_22_a_huge_row_is_left_out_and_the_rest_of_the_log_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One session's log had a row over the longest string of the runtime that read it, and gave nothing."""
    monkeypatch.setattr(_rows, "MAX_ROW_BYTES", 2**20)
    lines = (DATA / f"{name}.jsonl").read_bytes().splitlines(keepends=True)
    huge = json.dumps({"type": "user", "message": {"content": "x" * 5 * 2**20}}).encode() + b"\n"
    file = tmp_path / f"{name}.jsonl"
    file.write_bytes(b"".join([*lines[:2], huge, *lines[2:], huge[:-1]]))
    [[seen], _] = observed(file)
    [[plain], _] = observed(DATA / f"{name}.jsonl")
    assert seen.split.odd == {**plain.split.odd, "row of over 1 MiB": 2}
    assert (seen.model_calls, seen.task_s) == (plain.model_calls, plain.task_s)


def test_31_a_session_in_the_archive_as_well_counts_once(tmp_path: Path) -> None:
    log = (DATA / "codex_plain.jsonl").read_bytes()
    for folder in ("sessions/2026/03/02", "archived_sessions"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "rollout-2026-03-02T10-00-00-c-1.jsonl").write_bytes(log)
    sessions, passed_over = observed(tmp_path)
    assert [seen.session for seen in sessions] == ["c-1"]
    assert [Path(place).parent.name for place in passed_over[COPY]] == ["02"]


def test_31_an_archived_session_that_went_on_elsewhere_counts_once(tmp_path: Path) -> None:
    """Its id tells, not its rows: one of the two files is behind."""
    name = "0f2d6a10-0000-4000-8000-00000000000a.jsonl"
    rows = (DATA / "claude_code_plain.jsonl").read_bytes().splitlines(keepends=True)
    for folder, kept in (("a", rows), ("b", rows[:3])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(b"".join(kept))
    sessions, passed_over = observed(tmp_path)
    assert [seen.model_calls for seen in sessions] == [2]
    assert len(passed_over[COPY]) == 1


@pytest.mark.parametrize("name", ["0f2d6a10-0000-4000-8000-00000000000a.jsonl", "of today.jsonl"])
def test_31_a_packed_copy_under_another_name_counts_once(name: str, tmp_path: Path) -> None:
    rows = (DATA / "claude_code_plain.jsonl").read_bytes()
    (tmp_path / name).write_bytes(rows)
    (tmp_path / "saved.jsonl.gz").write_bytes(gzip.compress(rows))
    sessions, passed_over = observed(tmp_path)
    assert [seen.model_calls for seen in sessions] == [2]
    assert [Path(place).name for place in passed_over[COPY]] == ["saved.jsonl.gz"]


def test_31_a_session_that_was_resumed_in_another_file_is_no_copy(tmp_path: Path) -> None:
    rows = (DATA / "claude_code_plain.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "before.jsonl").write_bytes(b"".join(rows[:3]))
    (tmp_path / "resumed.jsonl").write_bytes(b"".join(rows))
    sessions, passed_over = observed(tmp_path)
    assert len(sessions) == 2
    assert passed_over == {}


def test_27_two_runs_of_one_benchmark_task_are_two_sessions(tmp_path: Path) -> None:
    """Too coarse a key drops what is real: both runs bear the name of the task."""
    for run, output in (("one", 40), ("two", 41)):
        request = {"request_id": "task-7", "input_length": 600, "output_length": output, "timestamp": 0}
        written(tmp_path / run / "trace.jsonl", request)
    sessions, passed_over = observed(tmp_path)
    assert [seen.output_tokens for seen in sessions] == [40, 41]
    assert passed_over == {}


def test_packed_with_zstd_is_said_where_nothing_unpacks_it(tmp_path: Path) -> None:
    """Newer rollouts are `.jsonl.zst`; what reads them is in Python 3.14, and a package before."""
    file = tmp_path / "rollout.jsonl.zst"
    file.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(40))
    with (
        patch.dict(sys.modules, {"zstandard": None, "compression.zstd": None}),
        pytest.raises(ImportFormatError, match=r"rollout\.jsonl\.zst:1: packed with zstd; 'pip install"),
    ):
        open_sessions(str(file))


def test_a_rollout_packed_with_zstd_is_read_and_counts_once(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    plain = DATA / "codex_plain.jsonl"
    packed = zstandard.ZstdCompressor().compress(plain.read_bytes())
    (tmp_path / "codex_plain.jsonl.zst").write_bytes(packed)
    [[alone], _] = observed(tmp_path)
    (tmp_path / "codex_plain.jsonl").write_bytes(plain.read_bytes())
    [[seen], passed_over] = observed(tmp_path)
    assert seen == alone
    assert list(passed_over) == ["a session that another file holds, too"]
    (tmp_path / "codex_plain.jsonl.zst").write_bytes(packed[: len(packed) // 2] + b"x" * 20)
    assert len(observed(tmp_path)[0]) == 1


def test_44_sub_agents_have_their_share_of_the_input_and_a_cache_of_their_own() -> None:
    [[seen], _] = observed(DATA / "claude_code_08_sub_agent.jsonl")
    main, agent = (910 + 950, 0 + 900), (405 + 465, 0 + 400)
    assert (seen.prompt_tokens, seen.cached_tokens) == (main[0] + agent[0], main[1] + agent[1])
    assert seen.model_calls == 4
    assert seen.sub_agents == 1


def test_37_what_the_harness_sleeps_between_tools_is_neither_tool_nor_model(tmp_path: Path) -> None:
    """pi runs tools one after another; here it takes each result 1 s after the tool had ended."""
    from span_checks import CALL, LATER, ROOT, span
    from test_import_openinference import render

    tools = [span("t", "tool", 4, 4.5, name="grep"), span("u", "tool", 5.5, 6, name="grep")]
    late = LATER | {"start": 7, "end": 10}
    (tmp_path / "trace.json").write_text(render([ROOT, CALL, *tools, late]))
    [[seen], _] = observed(tmp_path / "trace.json")
    assert (seen.model_s, seen.tool_s) == pytest.approx((7, 1))
    assert seen.split.residual_s == pytest.approx(2)
    assert seen.split.human_s == 0
