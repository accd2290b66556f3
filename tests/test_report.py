"""The report is one page that says what its inputs say, loads nothing, and lets no name of theirs out."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from conftest import plan_of, workflow
from test_cli import LOG, SUB_AGENTS, data, invoke, printed

from agentsim.errors import InputError
from agentsim.exports._events import tasks_of
from agentsim.report.page import MARK, page
from agentsim.report.read import Inputs, read
from agentsim.report.timeline import MOST_EVENTS, timeline
from agentsim.result import Result
from agentsim.sim.engine import simulate
from agentsim.verbs_report import write_report

HOSTILE = "</script><script>alert(1)</script><!-- \" ' & <img src=http://evil.example/x onerror=alert(1)>"
VOID = {"meta", "link", "input", "br", "img"}


class Page(HTMLParser):
    """What a page holds: data, the texts of its elements, the tags that it opens and does not close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: dict[str, str] = {}
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            kind = self.tags[-1][1].get("id") or self.open[-1]
            self.blocks[kind] = self.blocks.get(kind, "") + data
        else:
            self.words.append(data)

    @property
    def data(self) -> Any:
        return json.loads(self.blocks["data"])

    @property
    def figures(self) -> set[float]:
        """Every number that stands behind a figure of a table."""
        return {float(attrs["value"] or "nan") for tag, attrs in self.tags if tag == "data"}

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@cache
def compared() -> str:
    on = [word for name in ("coding-tool", "8xb200", "lpx-aa") for word in ("--on", name)]
    return json.dumps(data("compare", SUB_AGENTS, *on, "--runs", "2"))


def sensitivity(name: str, **more: Any) -> dict[str, Any]:
    bar = {"name": "tool times", "basis": "", "low": 100.0, "high": 400.0, "problem": ""}
    left = {"name": "chips", "basis": "assumed", "low": None, "high": 250.0, "problem": "does not fit"}
    return {"workflow": name, "base": "8xb200", "answer": 200.0, "unit": "s", "bars": [bar, left], **more}


@cache
def recorded() -> str:
    return printed("observe", LOG, "--format", "json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with every kind of result of one workflow."""
    made = tmp_path_factory.mktemp("results")
    printed("run", SUB_AGENTS, "--on", "8xb200", "--output-dir", str(made / "run"))
    (made / "compare.json").write_text(compared(), "utf-8")
    name = json.loads(compared())["columns"][0]["workflow"]
    (made / "sensitivity.json").write_text(json.dumps(sensitivity(name)), "utf-8")
    (made / "observed.json").write_text(recorded(), "utf-8")
    return made


ALL = ("run", "compare.json", "sensitivity.json")


def made(folder: Path, *names: str) -> Page:
    return Page(page(read([str(folder / name) for name in names])))


def numbers(value: Any) -> set[float]:
    """Return every number inside a value."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return set().union(*map(numbers, parts)) if parts else set()
    return {float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else set()


def test_a_page_is_well_formed_and_carries_its_inputs_unchanged(folder):
    found = made(folder, *ALL)
    assert found.open == []
    comparison = json.loads(compared())
    assert found.data["runs"] == comparison["columns"]
    assert found.data["verdict"] == comparison["verdict"]
    assert found.data["sensitivity"] == json.loads((folder / "sensitivity.json").read_text("utf-8"))


def test_every_turn_of_the_result_is_in_the_data_of_the_charts(folder):
    result = Result.from_json(json.loads((folder / "run" / "result.json").read_text("utf-8")))
    turns = made(folder, *ALL).data["timeline"]["turns"]
    columns = (turns[name] for name in ("index", "start_ns", "decode_ns", "prompt"))
    listed = {index: tuple(rest) for index, *rest in zip(*columns, strict=True)}
    assert listed == {t.index: (t.start_ns, t.decode_ns, t.prompt) for t in result.turns}


def test_the_tables_show_the_figures_of_the_inputs(folder):
    found = made(folder, *ALL)
    for column in json.loads(compared())["columns"]:
        shown = [seconds for seconds in column["breakdown_s"].values() if seconds]
        spread = column["task_completion_s"]
        shown += [spread["avg"], spread["p50"], spread["p95"], column["output_tokens_per_s"]]
        shown += [column["ttft_s"][name] for name in ("p50", "p95", "p99", "max")]
        assert set(shown) <= found.figures
    inputs = [json.loads((folder / name).read_text("utf-8")) for name in ("compare.json", "sensitivity.json")]
    assert found.figures <= numbers(inputs)


def test_the_verdict_stands_first_and_in_words(folder):
    verdict = json.loads(compared())["verdict"]
    text = made(folder, *ALL).text
    answer = "Yes, for this task." if verdict["holds"] else "Not for this task."
    assert 0 < text.index(answer) < text.index("Where the task's time goes")
    assert f"{verdict['speedup']:.2g} times the task speed" in text


def test_every_source_stands_with_its_basis(folder):
    text = made(folder, *ALL).text
    for column in json.loads(compared())["columns"]:
        for datum in column["sources"]["list"]:
            assert " ".join(datum["source"].split()) in text
            assert datum["basis"] in text


def test_warnings_are_shown(folder):
    warnings = [w for column in json.loads(compared())["columns"] for w in column["warnings"]]
    assert warnings
    assert all(warning in made(folder, *ALL).text for warning in warnings)


@pytest.mark.parametrize(
    ("names", "there", "missing"),
    [
        (("run",), "One run, from start to end", "a verdict on a claim"),
        (("compare.json",), "Where the task's time goes", "the timeline of a run"),
        (("run/result.json",), "One run, from start to end", "what moves the answer"),
        (("run/summary.json",), "Latency per turn", "the timeline of a run"),
        (("sensitivity.json",), "What moves the answer", "the timeline of a run"),
        (("observed.json",), "Where the recorded time went", "the timeline of a run"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_what_an_input_lacks_is_left_out_and_said(names, there, missing, folder):
    text = made(folder, *names).text
    assert there in text
    assert missing in text.partition("Not in this report")[2]


def test_the_figures_of_a_result_alone_are_those_of_its_summary(folder):
    alone, summary = made(folder, "run/result.json"), made(folder, "run/summary.json")
    assert alone.data["runs"] == summary.data["runs"]
    assert alone.figures == summary.figures


def test_a_run_that_a_comparison_covers_is_not_shown_twice(folder):
    assert len(made(folder, "run", "compare.json").data["runs"]) == 3
    assert len(made(folder, "compare.json", "run").data["runs"]) == 3


def test_runs_of_one_deployment_are_told_apart(folder, tmp_path):
    summary = json.loads((folder / "run" / "summary.json").read_text("utf-8"))
    paths = []
    for number, change in enumerate(({}, {"seed": 7}, {"overrides": ["deployment.engines.main.chips=4"]})):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(summary | change), "utf-8")
    labels = read([str(path) for path in paths]).labels()
    assert len(set(labels)) == 3
    assert all(label.startswith("8xb200") for label in labels)


# ---- alone and safe


def test_a_page_loads_nothing(folder):
    found = made(folder, *ALL)
    text = page(read([str(folder / name) for name in ALL]))
    script = "".join(value for key, value in found.blocks.items() if key != "data")
    allowed = "http://www.w3.org/2000/svg"
    assert set(re.findall(r"https?://[^\"'\s<>)]+", script)) == {allowed}
    for tag, attributes in found.tags:
        assert tag not in ("img", "iframe", "object", "embed", "base", "form")
        assert not any(key.startswith("on") or key == "style" for key in attributes)
        for key in ("src", "href", "action", "srcset"):
            assert attributes.get(key, "data:,") == "data:,"
    assert "@import" not in text
    assert "url(" not in text


def test_the_policy_of_a_page_allows_its_own_script_and_style_and_nothing_else(folder):
    found = made(folder, *ALL)
    [policy] = [a["content"] for t, a in found.tags if a.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for kind in ("script", "style"):
        digest = b64encode(sha256(found.blocks[kind].encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"
    assert [a.get("type") for t, a in found.tags if t == "script"] == ["application/json", None]


@cache
def hostile_inputs() -> Inputs:
    """Return inputs in which every name is hostile."""
    tool = {"call": {"tool": HOSTILE, "time": "1 s"}}
    turn = {"generate": {"tokens": 10}}
    task = workflow(turn, tool, {"agents": [{"name": HOSTILE, "steps": [turn, tool]}]}, turn, name=HOSTILE)
    result = replace(
        simulate(plan_of(task), 0), deployment=HOSTILE, title=HOSTILE, warnings={HOSTILE: 0},
        overrides=(HOSTILE,),
    )  # fmt: skip
    result = replace(result, sources=tuple(s._replace(name=HOSTILE, text=HOSTILE) for s in result.sources))
    with TemporaryDirectory() as place:
        path, other = Path(place) / f"{HOSTILE.replace('/', '')}.json", Path(place) / "s.json"
        path.write_text(json.dumps(result.to_json()), "utf-8")
        other.write_text(json.dumps(sensitivity(HOSTILE, base=HOSTILE, other=HOSTILE)), "utf-8")
        return read([str(path), str(other)])


def test_hostile_names_stay_text():
    found = Page(page(hostile_inputs()))
    assert found.open == []
    assert [tag for tag, _ in found.tags].count("script") == 2
    assert "img" not in [tag for tag, _ in found.tags]
    assert not any(key.startswith("on") for _, attributes in found.tags for key in attributes)
    assert set("<>&") & set(found.blocks["data"]) == set()
    assert HOSTILE in found.data["timeline"]["names"]
    assert " ".join(HOSTILE.split()) in found.text


def test_the_same_inputs_give_the_same_bytes(folder, tmp_path):
    paths = [tmp_path / name for name in ("a.html", "b.html")]
    for path in paths:
        printed("report", *[str(folder / name) for name in ALL], "-o", str(path))
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].read_text("utf-8").startswith(MARK)


def test_a_report_says_what_it_wrote_and_what_is_not_in_it(folder, tmp_path):
    path = tmp_path / "r.html"
    command = "report", str(folder / "compare.json"), "-o", str(path)
    found, said = data(*command), "".join(printed(*command).split())
    assert found["path"] == str(path)
    assert found["size_bytes"] == path.stat().st_size
    assert any("the timeline of a run" in line for line in found["missing"])
    assert said.startswith(f"{path}:")
    assert "Notinit:thetimelineofarun" in said


# ---- long runs


def test_a_long_run_is_thinned_to_its_longest_events_and_says_so():
    turn = {"generate": {"tokens": {"uniform": [10, 400]}}}
    steps = {"repeat": {"times": MOST_EVENTS, "steps": [turn, {"call": {"tool": "t", "time": "1 s"}}]}}
    result = simulate(plan_of(workflow(steps)), 0)
    charts = timeline(result)
    drawn = [e - s for s, e in zip(charts["events"]["start_ns"], charts["events"]["end_ns"], strict=True)]
    every = [e.end_ns - e.start_ns for lane in tasks_of(result)[0].lanes for e in lane.events]
    assert sorted(drawn) == sorted(every)[-MOST_EVENTS:]
    [note] = charts["notes"]
    assert f"{MOST_EVENTS:,} longest of {len(every):,}" in note
    assert len(json.dumps(charts)) < 1_500_000


def test_of_several_tasks_the_first_is_drawn_and_it_is_said():
    plan = plan_of(workflow({"generate": {"tokens": 50}}))
    charts = timeline(simulate(plan, 0, arrivals_s=(0.0, 1.0)))
    assert charts["notes"] == ["Of 2 tasks the first is drawn."]
    assert len(charts["turns"]["index"]) == 1


def test_a_report_of_two_hundred_turns_is_of_modest_size(tmp_path):
    source = str(Path(SUB_AGENTS).with_name("coding-agent.yaml"))
    printed("run", source, "-o", str(tmp_path / "result.json"))
    assert write_report([str(tmp_path / "result.json")], str(tmp_path / "r.html")).size_bytes < 200_000


# ---- bad input


def bad(content: str | bytes, folder: Path) -> str:
    path = folder / "in.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as problem:
        read([str(path)])
    assert str(problem.value).startswith(str(path))
    assert "\n" not in str(problem.value)
    return str(problem.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        (b"\xff\xfe\x00", "not text"),
        ("[" * 100_000, "nested too deep"),
        ('{"a": NaN}', "not JSON: NaN is not a number"),
        ('{"a": 1}', "JSON, but not a result"),
        ("5", "JSON, but not a result"),
        ("[]", "sessions"),
        ("[1]", "sessions.0"),
        ('{"schema": "agentsim.result/1"}', "workflow: field required"),
        ('{"columns": [], "verdict": {}}', "columns"),
        ('{"bars": 1, "answer": "x"}', "workflow"),
    ],
)
def test_what_is_no_result_is_refused_in_one_line(content, said, tmp_path):
    assert said in bad(content, tmp_path)


def changes() -> list[tuple[str, Any]]:
    return [
        ("task_completion_s.avg", -1.0), ("task_completion_s.avg", "5"), ("task_completion_s", None),
        ("breakdown_s.tool", 1e300), ("breakdown_s", []), ("workflow", 5), ("runs", 0), ("warnings", "x"),
        ("sources.list", [{}]), ("workflow", "x" * 30_000), ("lower_bound", "no"), ("ttft_s", 3),
    ]  # fmt: skip


@pytest.mark.parametrize(("place", "value"), changes())
def test_a_summary_with_a_wrong_value_is_refused_where_it_is(place, value, folder, tmp_path):
    summary = json.loads((folder / "run" / "summary.json").read_text("utf-8"))
    holder = summary
    *path, last = place.split(".")
    for key in path:
        holder = holder[key]
    holder[last] = value
    assert place.split(".")[0] in bad(json.dumps(summary), tmp_path)


@pytest.mark.parametrize("field", ["tasks", "turns", "spans", "sources", "ttft_ns", "seed"])
@pytest.mark.parametrize("value", [None, "x", [1], [{}], -(10**400)])
def test_a_result_with_wrong_values_is_refused_or_shown(field, value, folder, tmp_path):
    data = json.loads((folder / "run" / "result.json").read_text("utf-8")) | {field: value}
    path = tmp_path / "in.json"
    path.write_text(json.dumps(data), "utf-8")
    code, _, err = invoke("report", str(path), "-o", str(tmp_path / "r.html"))
    assert code in (0, 2)
    assert code == 0 or (err.startswith(str(path)) and err.count("\n") == 1)


def test_results_of_different_workflows_are_refused(folder):
    with pytest.raises(InputError, match="a report tells of one task"):
        read([str(folder / "run"), str(folder / "observed.json")])


def test_two_comparisons_are_refused(folder):
    with pytest.raises(InputError, match="a second file of comparisons"):
        read([str(folder / "compare.json")] * 2)


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"holds no summary\.json"):
        read([str(tmp_path)])


def test_a_file_of_over_the_limit_is_refused(tmp_path):
    with open(tmp_path / "huge.json", "wb") as file:
        file.truncate(300 * 2**20)
    with pytest.raises(InputError, match="over 256 MiB"):
        read([str(tmp_path / "huge.json")])
