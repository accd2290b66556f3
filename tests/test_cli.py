"""The command line works as it is printed: every verb, every format, every file that it writes."""

from __future__ import annotations

import csv
import gc
import gzip
import io
import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from typer.main import get_command

from agentsim import cli, yaml_file
from agentsim.specs import catalog

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / "workflows").glob("*.yaml"))
SWEEPS = sorted((ROOT / "workflows" / "sweeps").glob("*.yaml"))
DEPLOYMENTS = catalog.names("deployments")
ENDPOINTS = catalog.names("endpoints")
SHORT = str(ROOT / "workflows" / "ci-fix.yaml")
SUB_AGENTS = str(ROOT / "workflows" / "code-review.yaml")
LOG = str(ROOT / "tests" / "data" / "weka_plain.json")
SPREAD = {"avg", "min", "max", "p99", "p95", "p90", "p75", "p50", "std"}
PARTS = {"queue", "prefill", "decode", "kv_transfer", "tool", "file", "network", "compaction"}
RUNS = (
    "model,gpu,engine,isl,osl,batch_size,tp,moe_tp,moe_ep,attention_dp,concurrency,precision,ttft_ms,tpot_ms\n"
    "Llama-3.3-70B,h200_sxm,trtllm,1024,128,4,4,1,1,1,4,fp8,120,11\n"
    "Llama-3.3-70B,h200_sxm,trtllm,1024,128,8,4,1,1,1,8,fp8,160,12\n"
    "Llama-3.3-70B,h200_sxm,trtllm,1024,128,2,4,1,1,1,2,fp8,110,10.5\n"
)
RUN_KEYS = {
    "schema", "workflow", "deployment", "runs", "seed", "task_completion_s", "trajectory_e2e_latency_ms",
    "breakdown_s", "human_wait_s", "tokens", "peak_context_tokens", "model_calls", "output_tokens_per_s",
    "ttft_s", "itl_s", "sources",
}  # fmt: skip
VERDICT_KEYS = {
    "claim", "holds", "speedup", "token_speed_ratio", "ceiling_speedup", "non_inference_share",
    "saturation_tok_s",
}  # fmt: skip


class Terminal(io.StringIO):
    """A stdout that says that a person is reading."""

    def isatty(self) -> bool:
        return True


def invoke(*arguments: str, stdout: io.StringIO | None = None) -> tuple[int, str, str]:
    """Run the command line in this process; return exit code, stdout and stderr."""
    out, err, thresholds = stdout or io.StringIO(), io.StringIO(), gc.get_threshold()
    with (
        patch.object(sys, "argv", ["agentsim", *arguments]),
        patch.dict(os.environ),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as stop,
    ):
        cli.main()
    gc.set_threshold(*thresholds)
    assert isinstance(stop.value.code, int)
    return stop.value.code, out.getvalue(), err.getvalue()


def printed(*arguments: str) -> str:
    """Return what a command prints that must succeed in silence."""
    code, out, err = invoke(*arguments)
    assert (code, err) == (0, "")
    return out


def data(*arguments: str) -> Any:
    """Return the JSON that a command prints."""
    return json.loads(printed(*arguments, "--format", "json"))


def spawned(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "agentsim", *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", **environment}
    return subprocess.run(command, env=env, capture_output=True, encoding="utf-8", check=False)


@cache
def short_run() -> Any:
    return data("run", SHORT, "--on", "8xb200", "--runs", "3", "--seed", "5")


@cache
def comparison() -> Any:
    return data("compare", SHORT, "--on", "coding-tool", "--on", "8xb200", "--runs", "2")


def sessions_file(path: Path) -> None:
    """Write enough made-up recorded sessions to fit an endpoint on."""
    lines = []
    for session in range(4):
        requests, clock, prompt = [], 0, 4000
        for call in range(20):
            fresh, output = 300 + 977 * ((call * 7 + session) % 9), 40 + 137 * ((call * 5 + session) % 11)
            seconds = 1.5 + fresh * 3e-5 + prompt * 1e-5 + output / 60
            request = {
                "t_s": clock,
                "agent": "main",
                "type": "n",
                "model": "claude-made-1-20250101",
                "input_tokens": prompt + fresh,
                "cached_tokens": prompt,
                "output_tokens": output,
                "api_s": seconds,
                "think_s": 2.0,
                "ttft_s": None,
            }
            requests.append(request)
            clock, prompt = clock + round(seconds) + 2, prompt + fresh
        line = {"id": f"s{session}", "system_tokens": 10, "tool_tokens": 20, "requests": requests}
        lines.append(json.dumps(line))
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(lines))


def commands(group=None):
    """Return every command of the command line, those of groups included."""
    group = group or get_command(cli.app)
    found = []
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        found += commands(command) if hasattr(command, "list_commands") else [command]
    return found


def examples() -> list[str]:
    """Return the example of every command's help."""
    lines = [line.strip() for command in commands() for line in command.help.splitlines()]
    return [line for line in lines if line.startswith("agentsim ")]


def what_examples_need(example: str, folder: Path) -> None:
    """Put the files into a folder that an example names."""
    (folder / "workflows").symlink_to(ROOT / "workflows")
    (folder / "session.json").write_text(Path(LOG).read_text("utf-8"), "utf-8")
    sessions_file(folder / "sessions.jsonl.gz")
    (folder / "runs.csv").write_text(RUNS, "utf-8")
    if example.startswith("agentsim report"):
        (folder / "compare.json").write_text(json.dumps(comparison()), "utf-8")
        written(folder / "results", workflow=SHORT)


OPTIONS = {
    line.strip(): {option for parameter in command.params for option in parameter.opts}
    for command in commands()
    for line in command.help.splitlines()
}
"""The options of the command that each example is of."""


@pytest.mark.parametrize("example", examples())
def test_the_example_in_a_commands_help_runs(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    what_examples_need(example, tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    command, _, into_file = example.partition(" > ")
    screen = printed(*shlex.split(command)[1:])
    assert screen
    assert "\x1b" not in screen
    one_a_file = command.startswith("agentsim validate")  # lines for other programs, as a compiler's
    assert into_file or one_a_file or max(map(len, screen.splitlines())) <= 80


def test_every_command_has_an_example():
    assert [c.name for c in commands() if "\n\nagentsim " not in c.help] == []


def test_every_command_prints_json_where_asked():
    """The schema is JSON always."""
    without = [c.name for c in commands() if not any("--format" in p.opts for p in c.params)]
    assert without == ["schema"]


@pytest.mark.parametrize("example", examples())
def test_the_example_in_a_commands_help_prints_json_too(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    what_examples_need(example, tmp_path)
    words = shlex.split(example.partition(" > ")[0])[1:]
    fewer = [] if "--runs" not in OPTIONS[example] else ["--runs", "1"]
    assert json.loads(printed(*words, *fewer, *([] if words == ["schema"] else ["--format", "json"])))


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_a_shipped_sweep_says_how_it_is_run_and_every_point_has_a_result(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert f"agentsim sweep workflows/sweeps/{path.name} -o {path.stem}.csv" in path.read_text("utf-8")
    assert "a valid sweep" in printed("validate", str(path))
    assert data("sweep", str(path))["statuses"].keys() == {"ok"}


def test_a_run_prints_every_documented_key():
    run = short_run()
    assert run.keys() >= RUN_KEYS
    assert run["breakdown_s"].keys() == PARTS
    assert run["tokens"].keys() >= {"prompt", "cached", "output"}
    for key in ("task_completion_s", "trajectory_e2e_latency_ms", "ttft_s", "itl_s"):
        assert run[key].keys() == SPREAD
    assert (run["deployment"], run["runs"], run["seed"]) == ("8xb200", 3, 5)


def test_the_breakdown_sums_to_the_mean_task_time():
    run = short_run()
    assert sum(run["breakdown_s"].values()) == pytest.approx(run["task_completion_s"]["avg"], rel=1e-9)


def test_latency_in_milliseconds_is_the_task_time():
    run = short_run()
    seconds = {key: value / 1e3 for key, value in run["trajectory_e2e_latency_ms"].items()}
    assert seconds == pytest.approx(run["task_completion_s"])


def test_percentiles_rise():
    spread = short_run()["task_completion_s"]
    order = [spread[key] for key in ("min", "p50", "p75", "p90", "p95", "p99", "max")]
    assert order == sorted(order)


def test_sources_are_counted_by_basis():
    sources = short_run()["sources"]
    assert sum(sources["counts"].values()) == len(sources["list"]) > 0
    for entry in sources["list"]:
        assert entry.keys() >= {"name", "basis", "source"}
        assert entry["source"]


def test_a_comparison_has_a_column_for_each_deployment_and_a_verdict():
    found = comparison()
    assert [column["deployment"] for column in found["columns"]] == ["coding-tool", "8xb200"]
    assert all(column.keys() >= RUN_KEYS for column in found["columns"])
    assert found["verdict"].keys() >= VERDICT_KEYS


def test_the_verdict_follows_from_the_columns():
    found = comparison()
    verdict, (base, other) = found["verdict"], found["columns"]
    times = [column["task_completion_s"]["p50"] for column in (base, other)]
    speeds = [column["output_tokens_per_s"] for column in (base, other)]
    assert verdict["speedup"] == pytest.approx(times[0] / times[1])
    assert verdict["token_speed_ratio"] == pytest.approx(speeds[1] / speeds[0])
    assert verdict["ceiling_speedup"] >= verdict["speedup"]
    assert 0 <= verdict["non_inference_share"] <= 1


def test_a_list_names_every_spec_of_every_kind():
    found = data("list")
    assert {kind: [name for name, _ in entries] for kind, entries in found.items()} == {
        kind: catalog.names(kind) for kind in catalog.KINDS
    }
    assert all(title for entries in found.values() for _, title in entries)


@pytest.mark.parametrize("kind", catalog.KINDS)
def test_a_list_of_one_kind_holds_that_kind_only(kind):
    assert list(data("list", kind)) == [kind]


@pytest.mark.parametrize("name", ["8xb200", "lpx-aa", "b200", "gemma-4-31b", "trtllm-b200"])
def test_show_gives_value_basis_and_source_of_each_datum(name):
    sheets = data("show", name)
    assert sheets[0]["name"] == name
    rows = [row for sheet in sheets for row in sheet["data"]]
    assert rows
    assert all(row["basis"] and row["origins"] for row in rows)
    assert all(row["value"] is not None or row["basis"] == "unknown" for row in rows)


def test_validate_says_what_each_file_is():
    deployment = str(ROOT / "agentsim" / "specs" / "deployments" / "8xb200.yaml")
    service = str(ROOT / "agentsim" / "specs" / "endpoints" / "lpx-aa.yaml")
    said = printed("validate", *map(str, WORKFLOWS), deployment, service).splitlines()
    assert len(said) == len(WORKFLOWS) + 2
    assert all("a valid workflow" in line for line in said[:-2])
    assert said[-2:] == [f"{deployment}: a valid deployment", f"{service}: a valid endpoint"]


def test_validate_goes_on_behind_a_file_that_is_wrong(tmp_path):
    missing = str(tmp_path / "no.yaml")
    code, out, err = invoke("validate", missing, SHORT)
    assert code == 2
    assert out.startswith(f"{SHORT}: a valid workflow")
    assert err.splitlines() == [f"{missing}: no such file"]


def test_the_starter_is_written_and_runs(tmp_path):
    path = str(tmp_path / "task.yaml")
    next_command = printed("init", path).partition("Next: ")[2].strip()
    assert printed(*shlex.split(next_command)[1:])
    assert [p.name for p in tmp_path.iterdir()] == ["task.yaml"]


def test_the_format_of_a_log_may_be_named_by_format_too():
    assert printed("import", LOG, "--format", "weka") == printed("import", LOG, "--from", "weka")
    assert data("observe", LOG, "--format", "weka") == data("observe", LOG)
    code, out, err = invoke("observe", LOG, "--format", "wekka")
    assert (code, out) == (2, "")
    assert "did you mean 'weka'?" in err
    assert "Of the output: table, json. Of logs: " in err


def test_an_import_tells_the_observed_time_and_writes_a_workflow_that_runs(tmp_path):
    path = str(tmp_path / "session.yaml")
    found = data("import", LOG, "-o", path)
    assert found.keys() >= {"session", "format", "observed", "model_calls", "tokens", "written"}
    assert (found["format"], found["written"]) == ("weka", path)
    run = data("run", path, "--on", "endpoint-100")
    assert run["model_calls"] == found["model_calls"]
    assert run["tokens"]["output"] == found["tokens"]["output"]


@pytest.mark.parametrize(
    ("output", "profile"),
    [
        ("fitted/", "fitted/claude-made-1.yaml"),
        pytest.param("made.yaml", "made.yaml"),
    ],
    ids=["folder", "file"],
)
def test_a_calibration_writes_a_profile_that_serves_and_can_be_checked(
    output, profile, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    log = "sessions.jsonl.gz"
    sessions_file(tmp_path / log)
    report = data("calibrate", "endpoint", log, "-o", output, "--source", "made up for a test")
    assert list(report["models"]) == ["claude-made-1-20250101"]
    assert data("calibrate", "endpoint", log, "--check", profile)["models"]
    assert data("run", SHORT, "--on", profile)["deployment"] == "claude-made-1"
    assert "valid endpoint" in printed("validate", profile)


def written(folder: Path, *arguments: str, workflow: str = SUB_AGENTS) -> Any:
    return data("run", workflow, "--on", "8xb200", "--output-dir", str(folder), *arguments)


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_output_folder_holds_five_files_and_nothing_else(tmp_path):
    summary = written(tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"summary.json", "result.json", "turns.csv", "spans.csv", "trace.json"}
    assert json.loads((tmp_path / "out" / "summary.json").read_text("utf-8")) == summary


def test_the_tables_have_a_row_for_each_turn_and_each_span(tmp_path):
    summary = written(tmp_path)
    turns, spans = rows_of(tmp_path / "turns.csv"), rows_of(tmp_path / "spans.csv")
    events = json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
    assert len(turns) == summary["model_calls"]
    kinds = [event["args"].get("kind") for event in events if event["ph"] == "X"]
    assert kinds.count("model") == len(turns)
    assert kinds.count(None) + sum(kind not in (None, "model") for kind in kinds) >= len(spans) > len(turns)
    critical = sum(float(s["end_s"]) - float(s["start_s"]) for s in spans if s["critical"] == "1")
    total = summary["task_completion_s"]["avg"] + summary["human_wait_s"]
    assert critical == pytest.approx(total, rel=1e-6)


def test_the_trace_is_made_of_trace_events(tmp_path):
    summary = written(tmp_path)
    trace = json.loads((tmp_path / "trace.json").read_text("utf-8"))
    names = {e["tid"] for e in trace["traceEvents"] if e["ph"] == "M" and e["name"] == "thread_name"}
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    for event in slices:
        assert event.keys() >= {"name", "cat", "ts", "dur", "pid", "tid"}
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        assert event["tid"] in names
    end = max(event["ts"] + event["dur"] for event in slices) / 1e6
    assert end == pytest.approx(summary["task_completion_s"]["avg"] + summary["human_wait_s"])


def test_other_files_of_the_output_folder_are_left_alone(tmp_path):
    (tmp_path / "keep.txt").write_text("mine", "utf-8")
    (tmp_path / "summary.json").write_text("of an older run", "utf-8")
    summary = written(tmp_path)
    assert (tmp_path / "keep.txt").read_text("utf-8") == "mine"
    assert json.loads((tmp_path / "summary.json").read_text("utf-8")) == summary


def test_set_changes_the_workflow_for_one_run():
    before = data("run", SHORT, "--on", "8xb200")
    after = data("run", SHORT, "--on", "8xb200", "--set", "tools.pipeline.time=1 s")
    assert after["breakdown_s"]["tool"] < before["breakdown_s"]["tool"]
    assert after["tokens"] == before["tokens"]


def test_set_changes_the_deployment_for_one_run():
    before = data("run", SHORT, "--on", "8xb200")
    after = data("run", SHORT, "--on", "8xb200", "--set", "deployment.engines.main.chips=4")
    assert after["output_tokens_per_s"] < before["output_tokens_per_s"]
    assert after["breakdown_s"]["tool"] == before["breakdown_s"]["tool"]


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    runs = [written(tmp_path / name, "--seed", "7", "--runs", "2") for name in "ab"]
    assert runs[0] == runs[1]
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_the_same_seed_gives_the_same_bytes_in_another_process():
    arguments = ("run", SUB_AGENTS, "--on", "8xb200", "--seed", "7", "--format", "json")
    outs = [spawned(*arguments, PYTHONHASHSEED=seed).stdout for seed in ("1", "2")]
    assert outs[0] == outs[1] == printed(*arguments)


def test_another_seed_gives_another_time():
    times = [data("run", SHORT, "--seed", seed)["task_completion_s"]["avg"] for seed in ("1", "2")]
    assert times[0] != times[1]


def test_further_runs_count_up_from_the_seed():
    singly = [data("run", SHORT, "--on", "8xb200", "--seed", seed) for seed in ("5", "6", "7")]
    times = [run["task_completion_s"]["avg"] for run in singly]
    spread = short_run()["task_completion_s"]
    assert (spread["min"], spread["max"]) == (min(times), max(times))
    assert spread["avg"] == pytest.approx(sum(times) / 3)


@pytest.mark.parametrize(
    "arguments",
    [("run", SHORT), ("list",), ("show", "lpx-aa"), ("compare", SHORT, "--on", "8xb200", "--on", "lpx-aa")],
    ids=lambda arguments: arguments[0],
)
def test_piped_output_has_no_escape_codes(arguments):
    done = spawned(*arguments, TERM="xterm-256color")
    assert (done.returncode, done.stderr) == (0, "")
    assert not re.findall("[^\n -~\u00a0-\uffff]", done.stdout)


def screens() -> list[tuple[str, ...]]:
    several = [option for name in ("8xb200", "coding-tool", "lpx-aa") for option in ("--on", name)]
    shows = [("show", name) for kind in catalog.KINDS for name in catalog.names(kind)]
    steps = "steps=[{user: {tokens: 600}}, {generate: {tokens: 900}}, {call: pipeline}]"  # fits everywhere
    runs = [("run", SHORT, "--set", steps, "--on", name) for name in (*DEPLOYMENTS, *ENDPOINTS)]
    compared = [("compare", str(path), "--runs", "2", *several) for path in WORKFLOWS]
    imports = [("import", LOG)]
    return [*shows, *runs, *compared, *imports, ("list",), *[("list", kind) for kind in catalog.KINDS]]


@pytest.mark.parametrize(
    "arguments", screens(), ids=lambda a: " ".join(os.path.basename(w) for w in a if "=" not in w)
)
def test_no_screen_is_wider_than_the_terminal(arguments, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    wide = [line for line in printed(*arguments).splitlines() if len(line) > 80]
    assert wide == []


def test_a_run_of_several_seeds_fits_eighty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for path in WORKFLOWS:
        assert max(map(len, printed("run", str(path), "--runs", "5").splitlines())) <= 80, path


def test_help_names_every_command_and_loads_none_of_the_libraries():
    code = (
        "import sys\nfrom agentsim.cli import main\nsys.argv = ['agentsim', '--help']\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code == 0\n"
        "heavy = {'pydantic', 'simpy', 'numpy', 'rich', 'yaml'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for word in (
        "run",
        "compare",
        "report",
        "validate",
        "import",
        "calibrate",
        "list",
        "show",
        "schema",
        "init",
    ):
        assert re.search(rf"^\s+{word}\s", done.stdout, re.MULTILINE), word


def problems(value: Any, schema: dict[str, Any], root: dict[str, Any], path: str = "") -> list[str]:
    """Return where a value breaks a JSON schema: the part of it that pydantic writes."""
    if "$ref" in schema:
        found = root
        for key in schema["$ref"].removeprefix("#/").split("/"):
            found = found[key]
        return problems(value, found, root, path)
    if "anyOf" in schema:
        tried = [problems(value, one, root, path) for one in schema["anyOf"]]
        return [] if [] in tried else [f"{path}: fits none of {len(tried)}"]
    kinds = {
        "object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
        "boolean": bool, "null": type(None),
    }  # fmt: skip
    kind = schema.get("type")
    if kind and not (isinstance(value, kinds[kind]) and (kind == "boolean") == isinstance(value, bool)):
        return [f"{path}: {value!r} is no {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{path}: {value!r} is none of {schema['enum']}"]
    if isinstance(value, dict):
        return _object_problems(value, schema, root, path)
    if isinstance(value, list):
        items = schema.get("prefixItems") or [schema.get("items", {})] * len(value)
        pairs = enumerate(zip(value, items, strict=False))
        return [p for i, (v, s) in pairs for p in problems(v, s, root, f"{path}[{i}]")]
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        return [f"{path}: {value!r} does not match {schema['pattern']}"]
    low, high = schema.get("minimum", -1e300), schema.get("maximum", 1e300)
    wrong = isinstance(value, int | float) and not low <= value <= high
    return [f"{path}: {value!r} is out of range"] if wrong else []


def _object_problems(
    value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], path: str
) -> list[str]:
    fields, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    found = [f"{path}: {key} is missing" for key in schema.get("required", ()) if key not in value]
    for key, item in value.items():
        if key in fields:
            found += problems(item, fields[key], root, f"{path}.{key}")
        elif others is False:
            found.append(f"{path}: {key} is not known")
        elif isinstance(others, dict):
            found += problems(item, others, root, f"{path}.{key}")
    return found


@pytest.mark.parametrize(
    "path", [*WORKFLOWS, ROOT / "agentsim" / "starter.template.yaml"], ids=lambda path: path.name
)
def test_the_schema_accepts_the_workflows(path):
    schema = json.loads(printed("schema"))
    document = yaml_file.read(str(path)).data
    assert problems(document, schema, schema) == []


@pytest.mark.parametrize(
    "document",
    [
        {"name": "t"},
        {"steps": [{"user": {"tokens": 1}}]},
        {"name": "t", "steps": [{"user": {"tokens": 1}}], "tool": {}},
        {"name": "t", "steps": [{"user": {"tokens": -1}}]},
        {"name": "t", "steps": [{"user": {"tokens": {"lognormal": {"median": 5}}}}]},
        {"name": "t", "steps": [{"genrate": {"tokens": 1}}]},
        {"name": "t", "steps": [{"call": {"tool": "a", "time": 5}}]},
    ],
    ids=json.dumps,
)
def test_the_schema_refuses_what_is_no_workflow(document):
    schema = json.loads(printed("schema"))
    assert problems(document, schema, schema) != []


def test_a_reader_that_stops_early_is_no_error():
    command = [sys.executable, "-m", "agentsim", "list"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 141
