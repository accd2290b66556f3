"""Whatever a stranger gives ends in a result or in one line that says where, what and what is allowed.

A case under `defect` was a breach once; its reason tells what happened then.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from test_cli import LOG, SHORT, Terminal, data, invoke

from agentsim.errors import WorkflowError
from agentsim.workflow.load import load_workflow

ROOT = Path(__file__).parents[1]
GENERATE = "  - generate: {tokens: 5}\n"
NESTED = "agents: [{name: a, steps: [{"
LONG = "name: t\nsteps:\n  - repeat: {times: 2000, steps: [{generate: {tokens: 10}}]}\n"
PAIR = "--on coding-tool --on endpoint-100"
Setup = str | bytes | Callable[[Path], object]


def task(steps: str = GENERATE, sections: str = "") -> str:
    """Return a workflow file; its steps begin on the line after `sections` and `steps:`."""
    return f"name: t\n{sections}steps:\n{steps}"


def engines(model: str = "gemma-4-31b", kv: str = "fp8", **engine: object) -> str:
    """Return a deployment file of one engine."""
    given = {"hardware": "h200", "chips": 1, "weights": "fp8", "software": "trtllm"} | engine
    precision = f"{{weights: {given.pop('weights')}, kv: {kv}}}"
    fields = ", ".join(f"{key}: {value}" for key, value in given.items())
    return f"title: made up\nmodel: {model}\nengines:\n  main: {{{fields}, precision: {precision}}}\n"


def sparse(path: Path) -> None:
    """Make a file of 200 MB that takes no space."""
    with open(path, "wb") as file:
        file.truncate(200_000_000)


def large(path: Path) -> None:
    """Make a file of 300 MB that takes no space."""
    with open(path, "wb") as file:
        file.truncate(300 * 2**20)


def first_bytes_of_log(path: Path) -> None:
    """Write the beginning of a log."""
    path.write_bytes(Path(LOG).read_bytes()[:600])


@dataclass(frozen=True)
class Case:
    """Files to write by name, the command, and what its one line says."""

    says: str
    files: dict[str, Setup]
    command: str
    expected: tuple[str, ...]


def bad(says: str, text: Setup, *expected: str, command: str = "run w.yaml") -> Case:
    """A workflow file that is refused."""
    return Case(says, {"w.yaml": text}, command, expected)


def bad_fleet(says: str, text: str, *expected: str) -> Case:
    """A deployment file that is refused for a workflow that is fine."""
    return Case(says, {"w.yaml": task(), "d.yaml": text}, "run w.yaml --on d.yaml", expected)


def bad_command(says: str, command: str, *expected: str, **files: Setup) -> Case:
    """A command that is refused; files are named without their ending."""
    return Case(says, {"w.yaml": task(), **{f"{n}.yaml": t for n, t in files.items()}}, command, expected)


RUNS_HEAD = "model,gpu,engine,isl,osl,batch_size,tp,moe_tp,moe_ep,attention_dp,concurrency,precision,"
RUNS_HEAD += "ttft_ms,tpot_ms\n"
RUN = "Llama-3.3-70B,h200_sxm,trtllm,1024,128,4,4,1,1,1,4,fp8,120,11\n"


def bad_runs(says: str, text: Setup, *expected: str, options: str = "") -> Case:
    """A CSV of measured runs that is refused."""
    return Case(says, {"runs.csv": text}, f"validate-model runs.csv {options}".strip(), expected)


MEASURED = [
    bad_runs("measurements that are not there", lambda _: None, "runs.csv: no such file"),
    bad_runs("an empty file of measurements", "", "runs.csv:1: no rows"),
    bad_runs("a heading without measurements", RUNS_HEAD, "runs.csv:1: no rows"),
    bad_runs("a folder of measurements", Path.mkdir, "runs.csv: not a file"),
    bad_runs(
        "measurements without a column",
        RUNS_HEAD.replace("tpot_ms", "tpot_s") + RUN,
        "runs.csv:1: no column 'tpot_ms'; did you mean 'tpot_s'?",
        "needed: model, gpu",
    ),
    bad_runs(
        "a column of measurements twice",
        RUNS_HEAD.replace("osl", "isl") + RUN,
        "runs.csv:1: ",
        "'isl'",
        "twice",
    ),
    bad_runs(
        "text in a number",
        RUNS_HEAD + RUN + RUN.replace("1024", "1k"),
        "runs.csv:3: isl is '1k'",
        "takes a number",
    ),
    bad_runs(
        "half a token measured", RUNS_HEAD + RUN.replace("128", "1.5"), "runs.csv:2: osl", "a whole number"
    ),
    bad_runs(
        "a negative time measured", RUNS_HEAD + RUN.replace("120", "-3"), "runs.csv:2: ttft_ms", "at least 0"
    ),
    bad_runs(
        "an endless time measured", RUNS_HEAD + RUN.replace("120", "inf"), "runs.csv:2: ttft_ms", "at least 0"
    ),
    bad_runs("a row cut off", RUNS_HEAD + "Llama-3.3-70B,h200", "runs.csv:2: 2 cells", "14 columns"),
    bad_runs("a quote that does not close", RUNS_HEAD + '"Llama,h200', "runs.csv:2: not a CSV row"),
    bad_runs("measurements that are not text", RUNS_HEAD.encode() + b"\xff\xfe", "runs.csv:2: not text"),
    bad_runs("measurements packed and cut off", b"\x1f\x8b\x08\x00", "runs.csv: the gzip file is cut off"),
    bad_runs(
        "a folder of profiles that is not there",
        RUNS_HEAD + RUN,
        "none: no such folder",
        options="--profiles none",
    ),
    bad_runs("a negative seed of a holdout", RUNS_HEAD + RUN, "--holdout", options="--holdout -1"),
]
FILES = [
    bad("an unknown key at the top", "nmae: t\nsteps: []\n", "w.yaml:1: ", "'nmae'", "'name'?", "Allowed: "),
    bad(
        "an unknown kind of step", task("  - genrate: {tokens: 5}\n"), "w.yaml:3: ", "did you mean 'generate'"
    ),
    bad("an unknown key deep inside", task("  - user:\n      tokns: 5\n"), "w.yaml:4: ", "mean 'tokens'"),
    bad("a duplicate key", "name: a\nsteps: []\nname: b\n", "w.yaml:3: ", "duplicate key 'name'", "line 1"),
    bad("a missing key", "name: t\n", "w.yaml:1: ", "'steps' is missing"),
    bad("a time without unit", task("  - think: 5\n"), "w.yaml:3: ", "steps[0].think", "no unit", "'18 s'"),
    bad("an unknown unit", task("  - think: 5 sec\n"), "w.yaml:3: ", "unknown unit 'sec'", "ms, s, min"),
    bad("a unit of something else", task("  - think: 5 KiB\n"), "w.yaml:3: ", "unknown unit 'KiB'", "ms, s"),
    bad("a negative time", task("  - think: -5 s\n"), "w.yaml:3: ", "'-5 s' is negative", "0 or more"),
    bad("negative tokens", task("  - user: {tokens: -5}\n"), "w.yaml:3: ", "-5 is negative"),
    bad("half a token", task("  - user: {tokens: 1.5}\n"), "w.yaml:3: ", "1.5 is not a whole number"),
    bad("tokens that are not a number", task("  - user: {tokens: .nan}\n"), "w.yaml:3: ", "nan", "14k"),
    bad("infinitely many tokens", task("  - user: {tokens: .inf}\n"), "w.yaml:3: ", "inf", "14k"),
    bad("a number with 5,000 digits", task(f"  - user: {{tokens: {'9' * 5000}}}\n"), "w.yaml:3: ", "14k"),
    bad("an infinite time", task("  - think: 1e999 s\n"), "w.yaml:3: ", "not a finite number"),
    bad("an empty file", "", "w.yaml:1: the file is empty"),
    bad("a file of comments only", "# nothing\n\n# here\n", "w.yaml:1: the file is empty"),
    bad("a list where a workflow is expected", "- a\n- b\n", "w.yaml:1: ", "mapping (key: value)"),
    bad("something that is not YAML", "name: 'open\nsteps: []\n", "w.yaml:", "not YAML"),
    bad("brackets that do not close", "name: t\nsteps: [{user: {tokens: 5}\n", "w.yaml:3: ", "not YAML"),
    bad("indentation with a tab", "name: t\nsteps:\n\t- user: {tokens: 5}\n", "w.yaml:3: ", "tab", "spaces"),
    bad(
        "an alias bomb",
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{n}: &{n} [{','.join([f'*{p}'] * 9)}]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True)
        ),
        "w.yaml:7: aliases unfold to over 2,000,000",
    ),
    bad("an alias of itself", "&a [*a]\n", "w.yaml:1: ", "alias '*a'"),
    bad("a tag", "!!python/object/apply:os.system ['true']\n", "w.yaml:1: ", "tag", "not allowed"),
    bad("a second document", "name: t\nsteps: []\n---\nname: u\n", "w.yaml:3: a second document"),
    bad("200 MB", sparse, "w.yaml: 191 MiB", "at most 10 MiB"),
    bad("a binary file", b"\x7fELF\x02\x01\x00\xff\xfe\x80", "w.yaml: not a text file"),
    bad("text that is not UTF-8", "name: café\n".encode("latin-1"), "w.yaml: not a text file"),
    bad("a NUL byte", "name: a\0b\n", "w.yaml:1: ", "control characters"),
    bad("a folder", Path.mkdir, "w.yaml: is a directory"),
    bad("a link to itself", lambda path: path.symlink_to(path), "w.yaml: too many levels"),
    bad(
        "an unknown tool",
        task("  - call: gerp\n", "tools: {grep: {time: 1 s}}\n"),
        "w.yaml:4: ",
        "'gerp'; did you mean 'grep'",
    ),
    bad(
        "a tool in a workflow without tools",
        task("  - call: grep\n"),
        "w.yaml:3: ",
        "no tools section",
        "give its time",
    ),
    bad(
        "a file step without storage",
        task("  - read_file: {size: 1 B}\n"),
        "w.yaml:3: ",
        "needs a storage section",
    ),
    bad("no slots", task(sections="tools: {a: {time: 1 s, slots: 0}}\n"), "w.yaml:2: tools.a: slots is 0"),
    bad(
        "a probability over 1",
        task(sections="tools: {a: {time: 1 s, failure: {probability: 1.5}}}\n"),
        "w.yaml:2: ",
        "1.5 is over 1",
        "between 0 and 1",
    ),
    bad(
        "a p90 below the median",
        task("  - user: {tokens: {lognormal: {median: 9, p90: 5}}}\n"),
        "w.yaml:3: ",
        "0 < median <= p90",
    ),
    bad("a uniform in reverse", task("  - user: {tokens: {uniform: [9, 5]}}\n"), "w.yaml:3: ", "[low, high]"),
    bad(
        "an empirical of nothing",
        task("  - user: {tokens: {empirical: []}}\n"),
        "w.yaml:3: ",
        "at least one value",
    ),
    bad(
        "two distributions",
        task("  - user: {tokens: {uniform: [1, 2], exponential: {mean: 3}}}\n"),
        "w.yaml:3: ",
        "2 are given",
    ),
    bad(
        "two kinds in a step",
        task("  - {user: {tokens: 5}, generate: {tokens: 5}}\n"),
        "w.yaml:3: ",
        "exactly one kind; found",
    ),
    bad("no kind in a step", task("  - {}\n"), "w.yaml:3: ", "exactly one kind; found none"),
    bad(
        "a model call in parallel",
        task("  - parallel: [{generate: {tokens: 5}}]\n"),
        "w.yaml:3: ",
        "'generate'",
        "Allowed: call, read_file, write_file",
    ),
    bad(
        "a join of nobody",
        task("  - agents: [{name: scout, background: true, steps: []}]\n  - join: [scuot]\n"),
        "w.yaml:4: ",
        "mean 'scout'",
    ),
    bad(
        "a join of a foreground sub-agent",
        task("  - agents: [{name: a, steps: []}]\n  - join: [a]\n"),
        "w.yaml:4: ",
        "no background sub-agent 'a'",
    ),
    bad("escape codes in a key", 'name: t\n"a\\e[31m\\rb": 1\n', "w.yaml:2: ", "unknown key"),
    bad("text in place of a list", "name: t\nsteps: x\n", "w.yaml:2: ", "'x'", "list"),
    bad("text in place of a mapping", task("  - generate\n"), "w.yaml:3: ", "mapping"),
    bad("no steps", "name: t\nsteps: []\n", "w.yaml:2: steps: a task needs at least one step"),
    bad(
        "a repeat of 10^12",
        task("  - repeat: {times: 1000000000000, steps: [{user: {tokens: 1}}]}\n"),
        "w.yaml:3: ",
        "1,000,000,000,000 calls; at most 1,000,000",
    ),
    bad(
        "repeats that multiply",
        task("  - repeat: {times: 1000000, steps: [{repeat: {times: 1000000, steps: []}}]}\n"),
        "w.yaml:3: ",
        "at most 1,000,000",
    ),
    bad(
        "10^12 sub-agents",
        task("  - agents: [{name: a, count: 1000000000000, steps: []}]\n"),
        "w.yaml:3: ",
        "at most 10,000",
    ),
    bad(
        "sub-agents nested 1,000 deep",
        task(f"  - {NESTED * 1000}user: {{tokens: 1}}{'}]}]' * 1000}\n"),
        "w.yaml:3: nested over 100 deep",
    ),
    bad("brackets 100,000 deep", "[" * 100_000, "w.yaml:1: ", "nest"),
    bad(
        "compaction without a limit",
        task(sections="context: {compaction: {at: 0.9}}\n"),
        "w.yaml:2: ",
        "needs limit_tokens",
    ),
    bad(
        "a system prompt over the limit",
        task(sections="context: {system_tokens: 9, limit_tokens: 9}\n"),
        "w.yaml:2: ",
        "no room",
    ),
    bad(
        "more cached than prompted",
        task("  - generate: {tokens: 1, prompt_tokens: 5, cached_tokens: 7}\n"),
        "w.yaml:3: ",
        "cached_tokens needs",
    ),
    bad(
        "a context over the model's limit",
        task("  - user: {tokens: 500k}\n" + GENERATE),
        "500,005 tokens",
        "262,144",
        "add compaction",
        command="run w.yaml --on 8xb200",
    ),
    bad(
        "a system prompt over the model's limit",
        task(sections="context: {system_tokens: 300k}\n"),
        "300,000",
        "262,144",
        command="run w.yaml --on 8xb200",
    ),
    bad("a deployment in place of a workflow", engines(), "w.yaml:1: ", "'title'", "Allowed: "),
]

TRAPS = [
    bad(
        "the word no as a number",
        task("  - user: {tokens: no}\n"),
        "w.yaml:3: ",
        "'no' is not a number of tokens",
    ),
    bad("a clock time as a duration", task("  - think: 12:30\n"), "w.yaml:3: ", "'12:30'", "for a time"),
    bad("a hexadecimal number", task("  - user: {tokens: 0x10}\n"), "w.yaml:3: ", "'0x10' is not a number"),
    bad(
        "a truth value as tokens", task("  - user: {tokens: true}\n"), "w.yaml:3: ", "not a number of tokens"
    ),
    bad("a number as a name", "name: 010\nsteps: []\n", "w.yaml:1: name: 10 is not a text"),
    bad("a merge key", "a: &a {b: 1}\nc:\n  <<: *a\n", "w.yaml:3: merge keys"),
]

FLEETS = [
    bad_fleet(
        "an unknown model", engines("gema-4-31b"), "unknown model 'gema-4-31b'; did you mean 'gemma-4-31b'"
    ),
    bad_fleet("unknown hardware", engines(hardware="h10"), "unknown hardware 'h10'; did you mean 'h100'"),
    bad_fleet(
        "an unknown engine profile", engines(software="vlm"), "no engine profile 'vlm'", "trtllm, vllm"
    ),
    bad_fleet(
        "weights that do not fit the memory",
        engines("deepseek-r1"),
        "673 GB",
        "1 x NVIDIA H200",
        "It would fit on ",
    ),
    bad_fleet(
        "a format without a checkpoint", engines(weights="int4"), "no int4 checkpoint", "use bf16 or fp8"
    ),
    bad_fleet(
        "an unknown precision",
        engines(weights="fp5"),
        "d.yaml:4: ",
        "'fp5'",
        "did you mean 'fp8'",
        "bf16, fp8",
    ),
    bad_fleet("no chips", engines(chips=0), "at least 1"),
    bad_fleet("a drafter as the model", engines("gemma-4-31b-mtp"), "drafts for gemma-4-31b", "speculation"),
    bad_fleet("a field of LPUs on a GPU", engines(racks=1), "racks is of LPUs", "a gpu engine has none"),
    bad_fleet("experts of a model without", engines(chips=2, expert_parallel=2), "no experts"),
    bad_fleet("heads that cannot be divided", engines(chips=3), "32 attention heads", "possible: 1, 2, 4, 8"),
    bad_fleet("chips without an all-reduce", engines(chips=16), "no all-reduce", "over 16 GPUs", "2, 4, 8"),
    bad_fleet(
        "a misspelt key", engines().replace("model:", "modle:"), "d.yaml:2: ", "'modle'; did you mean 'model'"
    ),
    bad_fleet("an empty deployment", "", "d.yaml:1: the file is empty"),
    bad_fleet("a workflow as a deployment", task(), "d.yaml: ", "engines", "decode_speed"),
]

COMMANDS = [
    bad_command(
        "an unknown deployment", "run w.yaml --on 8xb20", "unknown deployment '8xb20'; did you mean '8xb200'"
    ),
    bad_command("an empty deployment name", "run w.yaml --on ''", "unknown deployment ''", "agentsim list"),
    bad_command("a missing file", "run v.yaml", "v.yaml: no such file; did you mean 'w.yaml'"),
    bad_command("a file below a file", "run w.yaml/x", "w.yaml/x: not a directory"),
    bad_command("an unknown option", "run w.yaml --rnus 3", "--rnus", "--runs"),
    bad_command("a misspelt command", "rn w.yaml", "'rn'", "did you mean", "'run'"),
    bad_command("a misspelt calibration", "calibrate endpiont w.yaml", "'endpiont'", "'endpoint'"),
    bad_command("a missing argument", "run", "WORKFLOW"),
    bad_command(
        "a range set by hand",
        "run w.yaml --set deployment.decode_speed.range=3",
        "has no range; set its value",
    ),
    bad_command("no stages", "run w.yaml --on 8xb200 --set deployment.engines.main.pipeline_stages=0", "0"),
    bad_command("a missing value", "run w.yaml --on", "--on"),
    bad_command("a superfluous argument", "run w.yaml x", "(x)"),
    bad_command("an unknown format", "run w.yaml --format xml", "'xml'", "'table', 'json'"),
    bad_command("a seed that is not a number", "run w.yaml --seed x", "--seed", "integer"),
    bad_command("no runs", "run w.yaml --runs 0", "--runs", "greater than or equal to 1"),
    bad_command("10^9 runs", "run w.yaml --runs 1000000000", "--runs", "100000"),
    bad_command("no agents", "run w.yaml --agents 0", "--agents 0: a fleet has 1 to 1,000,000 agents"),
    bad_command("fewer agents than none", "run w.yaml --agents -3", "--agents -3: a fleet has 1 to"),
    bad_command("10^9 agents", "run w.yaml --agents 1000000000", "1 to 1,000,000 agents"),
    bad_command("an unknown kind of arrival", "run w.yaml --arrival poison:1/s", "mean 'poisson'"),
    bad_command("arrivals without a rate", "run w.yaml --arrival poisson", "write it like poisson:0.5/s"),
    bad_command("a rate without a unit", "run w.yaml --arrival poisson:2", "'2' has no unit", "'0.5/s'"),
    bad_command("a rate of another unit", "run w.yaml --arrival poisson:2/day", "'/day'", "/s, /min, /h"),
    bad_command("a rate of nothing", "run w.yaml --arrival uniform:0/s", "'0/s' is zero"),
    bad_command("a negative rate", "run w.yaml --arrival uniform:-1/s", "'-1/s' is negative"),
    bad_command("a rate without end", "run w.yaml --arrival uniform:1e999/s", "not a finite number"),
    bad_command(
        "a rate too rare for the clock",
        "run w.yaml --agents 9 --arrival uniform:1e-12/s",
        "9 agents would take over 277777 h",
    ),
    bad_command("a rate of all at once", "run w.yaml --arrival at-once:1/s", "'at-once' has no rate"),
    bad_command("a trace that is not there", "run w.yaml --arrival trace:x.txt", "x.txt: no such file"),
    bad_command("a trace of nothing", "run w.yaml --arrival trace:t.yaml", "t.yaml: no arrival", t="# x\n"),
    bad_command(
        "a trace without units",
        "run w.yaml --arrival trace:t.yaml",
        "t.yaml:2: '7' has no unit",
        t="1 s\n7\n",
    ),
    bad_command(
        "a trace out of order", "run w.yaml --arrival trace:t.yaml", "t.yaml:2: 1 s is before", t="2 s\n1 s\n"
    ),
    bad_command(
        "more agents than a trace has",
        "run w.yaml --agents 2 --arrival trace:t.yaml",
        "--agents 2: the trace has the arrivals of 1",
        t="1 s\n",
    ),
    bad_command(
        "two ways to come", "run w.yaml --agents 4 --concurrency 2 --arrival at-once", "give one of them"
    ),
    bad_command("no user", "run w.yaml --agents 4 --concurrency 0", "--concurrency 0: at least 1"),
    bad_command("more users than agents", "run w.yaml --agents 4 --concurrency 9", "at least as many agents"),
    bad_command("an unknown part of an objective", "run w.yaml --slo tsk=1s", "'tsk'", "mean 'task'"),
    bad_command("an objective without a bound", "run w.yaml --slo task", "write it like task=10min,ttft=2s"),
    bad_command("an objective of no time", "run w.yaml --slo task=0s", "--slo task: '0s' is zero"),
    bad_command("an objective without a unit", "run w.yaml --slo task=10", "--slo task: '10' has no unit"),
    bad_command("a bound given twice", "run w.yaml --slo task=1s,task=2s", "'task' is given twice"),
    bad_command("a capacity without an objective", "capacity w.yaml --on 8xb200", "--slo"),
    bad_command(
        "an objective that no load meets", "capacity w.yaml --on 8xb200 --slo task=1ms", "no load meets task"
    ),
    bad_command(
        "the capacity of an endpoint",
        "capacity w.yaml --on coding-tool --slo task=9s",
        "coding-tool: its times do not change with load",
    ),
    bad_command(
        "a share over all", "capacity w.yaml --on 8xb200 --slo task=9s --share 2", "--share 2: a share"
    ),
    bad_command(
        "a capacity of arrivals at a rate",
        "capacity w.yaml --on 8xb200 --slo task=9s --arrival poisson:1/s",
        "--arrival poisson:1/s: capacity searches the rate",
    ),
    bad_command(
        "a capacity of nothing to do",
        "capacity n.yaml --on 8xb200 --slo task=9s",
        "the task takes no time",
        n="name: t\nsteps:\n  - user: {tokens: 5}\n",
    ),
    bad_command(
        "no replica", "run w.yaml --on 8xb200 --set deployment.replicas=0", "0 is zero; it must be over 0"
    ),
    bad_command(
        "10^9 replicas",
        "run w.yaml --on 8xb200 --set deployment.replicas=1000000000",
        "1,000,000,000 replicas; at most 10,000",
    ),
    bad_command(
        "an unknown router",
        "run w.yaml --on 8xb200 --set deployment.router=robin",
        "router",
        "did you mean 'round_robin'?",
        "least_loaded, prefix_aware",
    ),
    bad_command("one deployment to compare", "compare w.yaml --on 8xb200", "--on at least twice"),
    bad_command("no deployment to compare", "compare w.yaml", "--on"),
    bad_command("an override without a value", "run w.yaml --set name", "--set name", "path=value"),
    bad_command("an override without a path", "run w.yaml --set =5", "--set =5", "path=value"),
    bad_command(
        "an override of nothing", "run w.yaml --set tool.x.time='5 s'", "--set tool.x.time", "no 'tool'"
    ),
    bad_command(
        "an override beyond a list", "run w.yaml --set steps[9].user.tokens=5", "no '9'", "1 entries"
    ),
    bad_command("an override that is not YAML", "run w.yaml --set name=[", "--set name", "not YAML"),
    bad_command(
        "an override of the wrong type",
        "run w.yaml --set steps[0].generate.tokens=x",
        "w.yaml:3: ",
        "'x' is not a number",
    ),
    bad_command(
        "an override of nothing in the deployment",
        "run w.yaml --set deployment.engnes.main.chips=2 --on 8xb200",
        "--set deployment.engnes.main.chips",
        "no 'engnes' here; did you mean 'engines'",
    ),
    bad_command(
        "a deployment given twice", "compare w.yaml --on 8xb200 --on 8xb200", "--on 8xb200 is given twice"
    ),
    bad_command("a claim of nothing", "claim 'much faster' w.yaml", "'much faster' is not", '"4x"'),
    bad_command("a claim of no factor", "claim 0x w.yaml", "'0x': a factor lies over 0"),
    bad_command("a claim that goes up", "claim 'minutes to hours' w.yaml", "hours are no less than minutes"),
    bad_command("a limit without a unit", "claim 'under 5' w.yaml", "claim: '5' has no unit", "'18 s'"),
    bad_command("a claim without a workflow", "claim 4x", "WORKFLOW"),
    bad_command("a claim for one deployment", "claim 4x w.yaml --on lpx", "give --on twice"),
    bad_command("a claim against itself", "claim 4x w.yaml --on lpx --on lpx", "give --on twice"),
    bad_command("what moves three", "sensitivity w.yaml --on lpx --on lpx-aa --on 8xb200", "once, or twice"),
    bad_command("what moves one against itself", "sensitivity w.yaml --on lpx --on lpx", "given twice"),
    bad_command(
        "draws below none", f"compare w.yaml {PAIR} --uncertainty -1", "--uncertainty", "or equal to 0"
    ),
    bad_command(
        "draws for sessions", f"compare . {PAIR} --uncertainty 9", "--uncertainty draws for a workflow"
    ),
    bad_command(
        "idle waits of a workflow", f"compare w.yaml {PAIR} --idle-over '5 min'", "for recorded sessions"
    ),
    bad_command(
        "idle waits without a unit", f"compare . {PAIR} --idle-over 5", "--idle-over: '5' has no unit"
    ),
    bad_command("a field of sessions", f"compare . {PAIR} --set name=x", "have no fields to --set"),
    bad_command("a folder without sessions", f"compare . {PAIR}", ".: no session in it (1 not a log"),
    bad_command("sessions that are not there", f"compare w.json {PAIR}", "w.json: no such file"),
    bad_command(
        "a range shorter than its value",
        "run w.yaml --on d.yaml",
        "d.yaml:",
        "as many numbers as the value",
        d="title: t\nfixed: {basis: unknown, why: x}\nper_uncached_token: {basis: unknown, why: x}\n"
        "per_cached_token: {basis: unknown, why: x}\ndecode_speed:\n  basis: assumed\n  why: x\n"
        "  value: [{context_tokens: 1k, speed: 9 tok/s}, {context_tokens: 9k, speed: 8 tok/s}]\n"
        "  range: [9 tok/s, 9 tok/s]\n",
    ),
    bad_command("recorded durations of no session", "bench aa --on recorded", "only run and compare take it"),
    bad_command(
        "a trace over somebody's file", "schedule gemma-4-31b --trace w.yaml", "w.yaml: exists and was not"
    ),
    bad_command(
        "a trace to a device", "schedule gemma-4-31b --trace /dev/zero", "/dev/zero: is no plain file"
    ),
    bad_command(
        "an output folder that is a file", "run w.yaml --output-dir w.yaml", "w.yaml: cannot write there"
    ),
    bad_command(
        "an output folder below a file", "run w.yaml --output-dir w.yaml/x", "w.yaml/x: cannot write there"
    ),
    bad_command(
        "an output folder that nobody may make",
        "run w.yaml --output-dir /proc/x",
        "/proc/x: cannot write there",
    ),
    bad_command(
        "an unknown export", "run w.yaml --export otle -o x", "unknown export 'otle'; did you mean 'otel'"
    ),
    bad_command(
        "an export without a file", "run w.yaml --export otel", "--export otel: give -o FILE", "otel.json"
    ),
    bad_command(
        "an export over somebody's file", "run w.yaml --export csv -o w.yaml", "w.yaml: exists and was not"
    ),
    bad_command(
        "an export over a file of another kind",
        "run w.yaml --export otel -o o.yaml",
        "o.yaml: exists and was not",
        o='{"resourceSpans":[{"resource":{"attributes":[]}}]}',
    ),
    bad_command(
        "an export in no folder", "run w.yaml -o no/x.json", "no/x.json: cannot write there", "folder"
    ),
    bad_command("an export to a device", "run w.yaml -o /dev/zero", "/dev/zero: is no plain file"),
    bad_command("a report of no JSON", "report w.yaml -o r.html", "w.yaml: not JSON"),
    bad_command("a report of nothing", "report v.json -o r.html", "v.json: no such file"),
    bad_command("a report of a device", "report /dev/zero -o r.html", "/dev/zero: not a plain file"),
    bad_command("a report of an empty folder", "report . -o r.html", ".: holds no summary.json"),
    bad_command("a report of too large a file", "report j.yaml -o r.html", "j.yaml: over 256 MiB", j=large),
    bad_command(
        "a report of other JSON", "report j.yaml -o r.html", "j.yaml: JSON, but not a result", j="{}"
    ),
    bad_command("a report without a name", "report j.yaml", "--output", j="[]"),
    bad_command(
        "a report over somebody's file", "report j.yaml -o w.yaml", "w.yaml: exists and was not", j="[]"
    ),
    bad_command(
        "a report in no folder", "report j.yaml -o no/r.html", "no/r.html: cannot write there", j="[]"
    ),
    bad_command("an unknown name to show", "show 8xb20", "unknown name '8xb20'; did you mean '8xb200'"),
    bad_command("an unknown kind to list", "list modls", "'modls'; did you mean 'models'"),
    bad_command("a starter over an existing file", "init w.yaml", "w.yaml: exists"),
    bad_command("a starter in a folder that is not there", "init no/x.yaml", "no/x.yaml: cannot write there"),
    bad_command("a log that is cut off", "import l.yaml", "l.yaml:", "not JSON", l=first_bytes_of_log),
    bad_command(
        "a log of another format",
        "import l.yaml",
        "l.yaml:1: not a log of a known format",
        "sessions",
        l='{"type": "user"}\n',
    ),
    bad_command("a log of 200 MB of nothing", "import l.yaml", "l.yaml:1: not a log", l=sparse),
    bad_command("an empty log", "import l.yaml", "l.yaml:1: the file is empty", l=""),
    bad_command("a log that is a folder", "import l.yaml", "l.yaml: no session in it", l=Path.mkdir),
    bad_command("a log that is not there", "import ww.yaml", "ww.yaml: no such file; did you mean 'w.yaml'"),
    bad_command("an unknown log format", "import w.yaml --from weak", "'weak'; did you mean 'weka'"),
    bad_command("a damaged gzip file", "import l.yaml", "l.yaml:1: ", l=b"\x1f\x8b\x08\x00rubbish"),
    bad_command(
        "a calibration on an empty file",
        "calibrate endpoint l.yaml -o x.yaml",
        "l.yaml:1: the file is empty",
        l="",
    ),
    bad_command(
        "a calibration on another format", "calibrate endpoint w.yaml -o x.yaml", "w.yaml:1: not a log"
    ),
    bad_command("a calibration without output", "calibrate endpoint w.yaml", "-o", "--check"),
    bad_command(
        "a calibration on one session",
        f"calibrate endpoint {shlex.quote(LOG)} -o x.yaml",
        "no endpoint could be fitted",
        "needed",
    ),
]


SWEPT = "workflow: w.yaml\ndeployment: 8xb200\n"
TOOL = task(sections="tools: {test: {time: 5 s}}\n")


def bad_sweep(says: str, text: str, *expected: str, options: str = "", **files: Setup) -> Case:
    """A sweep that is refused before anything runs."""
    given = {"w.yaml": TOOL, "s.yaml": text, **{f"{n}.csv": t for n, t in files.items()}}
    return Case(says, given, f"sweep s.yaml {options}", expected)


def bad_axis(says: str, values: str, *expected: str, path: str = "tools.test.time") -> Case:
    """A sweep over one axis that is refused."""
    return bad_sweep(says, f"{SWEPT}grid:\n  {path}: {values}\n", "s.yaml:4: ", *expected)


GOOD = f"{SWEPT}grid: {{tools.test.time: [1 s, 2 s]}}\n"
SWEEPS = [
    bad_sweep("a sweep with an unknown key", f"{SWEPT}gird: {{a: [1]}}\n", "s.yaml:3: ", "mean 'grid'"),
    bad_axis("an axis of an unknown tool", "[1 s]", "'tset'", "mean 'test'", path="tools.tset.time"),
    bad_axis("an axis of an unknown field", "[1 s, 2 s]", "mean 'time'", path="tools.test.tiem"),
    bad_axis("an axis without units", "[1, 2]", "w.yaml:2: ", "1 has no unit"),
    bad_axis("an axis of an unknown engine field", "[1]", "'chips'", path="deployment.engines.main.chps"),
    bad_axis("an axis of an unknown engine", "[1]", "'main'", path="deployment.engines.mian.chips"),
    bad_axis("an axis that is no path", "[1]", "no path", path="'..'"),
    bad_axis("a range with a misspelt key", "{from: 1 s, to: 5 s, step: 2}", "did you mean 'steps'"),
    bad_axis("a range without steps", "{from: 1 s, to: 5 s}", "steps is missing"),
    bad_axis("a range of two kinds", "{from: 1 s, to: 5 GB, steps: 3}", "'1 s' and '5 GB'"),
    bad_axis("a range of an unknown scale", "{from: 1 s, to: 2 s, steps: 3, scale: lgo}", "mean 'log'"),
    bad_axis("a range of half steps", "{from: 1 s, to: 2 s, steps: 2.5}", "2.5 is not a whole number"),
    bad_axis("a log range from zero", "{from: 0 s, to: 2 s, steps: 2, scale: log}", "over 0"),
    bad_axis("a distribution that is no list", "{uniform: [1 s, 2 s]}", "a list of values"),
    bad_axis("an axis without values", "[]", "a list of values"),
    bad_axis("an axis with a value twice", "[5 s, 5 s]", "'5 s' stands there twice"),
    bad_sweep("a sweep without axes", SWEPT, "s.yaml:1: ", "needs an axis"),
    bad_sweep("a sweep of nothing", "grid: {a: [1]}\n", "s.yaml:1: ", "'workflow' is missing"),
    bad_sweep("a sweep that is a workflow", TOOL, "s.yaml:1: not a sweep"),
    bad_sweep("a sweep on nothing", GOOD.replace("deployment: 8xb200\n", ""), "'deployment' is missing"),
    bad_sweep("a sweep on what is unknown", GOOD.replace("8xb200", "8xb20"), "s.yaml:2: ", "mean '8xb200'"),
    bad_sweep("a sweep on a chip", GOOD.replace("8xb200", "b200"), "s.yaml:2: ", "is not a deployment"),
    bad_sweep(
        "a sweep on itself", GOOD.replace("8xb200", "s.yaml"), "s.yaml:2: ", "a deployment has engines"
    ),
    bad_sweep("deployments named twice", "workflow: w.yaml\ndeployment: [lpx, lpx]\n", "twice"),
    bad_sweep("deployments twice over", f"{SWEPT}grid: {{deployment: [lpx]}}\n", "s.yaml:2: ", "as an axis"),
    bad_sweep("a sweep of a missing file", GOOD.replace("w.y", "v.y"), "s.yaml:1: ", "mean 'w.yaml'"),
    bad_sweep(
        "axes of two lengths that move together",
        f"{SWEPT}list: {{tools.test.time: [1 s, 2 s], tools.test.result_tokens: [1, 2, 3]}}\n",
        "tools.test.time 2, tools.test.result_tokens 3",
    ),
    bad_sweep(
        "an axis in two places", GOOD + "list: {tools.test.time: [3 s]}\n", "under grid and under list"
    ),
    bad_sweep("no runs", GOOD + "runs: 0\n", "s.yaml:4: ", "over 0"),
    bad_sweep("too many runs", GOOD + f"runs: {10**25}\n", "at most 100,000"),
    bad_sweep(
        "too many points",
        f"{SWEPT}grid:\n  tools.test.time: {{from: 1 s, to: 5 s, steps: 5000}}\n"
        "  tools.test.result_tokens: {from: 1, to: 50000, steps: 5000}\n",
        "25,000,000 points",
        "at most 1,000,000",
    ),
    bad_sweep(
        "a fixed value at no place", GOOD + "set: {tools.tst.time: 4 s}\n", "s.yaml:4: ", "mean 'test'"
    ),
    bad_sweep("a value that is not a number", f"{SWEPT}grid: {{name: [.nan]}}\n", ".nan and .inf"),
    bad_sweep("a metric that is none", GOOD + "metric: costs_usd\n", "s.yaml:4: ", "mean 'cost_usd'"),
    bad_sweep("a metric that is none, asked for", GOOD, "mean 'cost_usd'", options="--metric costs_usd"),
    bad_sweep("a table of no known kind", GOOD, "x.txt", ".csv or .parquet", options="-o x.txt"),
    bad_sweep("a table over another file", GOOD, "mine.csv: exists", options="-o mine.csv", mine="hi\n"),
    bad_sweep("a restart over another file", GOOD, "exists", options="-o mine.csv --restart", mine="hi\n"),
    bad_sweep("a table in no folder", GOOD, "no/x.csv.journal: cannot write", options="-o no/x.csv"),
    bad_sweep("a cluster and processes", GOOD, "--workers or --dask", options="--workers 2 --dask a:1"),
    bad_sweep("a cluster at no address", GOOD, "tcp://host:8786", options="--dask here"),
]


def defect(case: Case, reason: str, run: bool = True) -> object:  # noqa: ARG001
    """A breach that is mended; `reason` tells what it was."""
    return pytest.param(case, id=case.says)


def storage(bandwidth: str = "1 GB/s", rest: str = "") -> str:
    return f"storage: {{latency: 1 ms, bandwidth: {bandwidth}{rest}}}\n"


NOT_YET = [
    defect(
        bad("a time beyond the clock", task("  - think: 1e300 s\n"), "w.yaml:3: "), "OverflowError in to_ns"
    ),
    defect(
        bad(
            "a backoff beyond the clock",
            task(
                "  - call: a\n",
                "tools: {a: {time: 1 s, failure: {probability: 1, retries: 5000, backoff: {factor: 10}}}}\n",
            ),
            "w.yaml:2: ",
        ),
        "OverflowError in to_ns",
    ),
    defect(
        bad(
            "a bandwidth of zero",
            task("  - read_file: {size: 1 B}\n", storage("0 B/s")),
            "w.yaml:2: ",
            "bandwidth",
        ),
        "ZeroDivisionError",
    ),
    defect(
        bad(
            "no bytes to a token",
            task("  - read_file: {size: 1 B}\n", storage(rest=", bytes_per_token: 0")),
            "w.yaml:2: ",
            "bytes_per_token",
        ),
        "ZeroDivisionError",
    ),
    defect(
        bad(
            "10^12 files",
            task("  - read_file: {size: 1 B, count: 1000000000000}\n", storage()),
            "w.yaml:4: ",
            "at most",
        ),
        "never ends",
        run=False,
    ),
    defect(
        bad(
            "10^12 retries",
            task(
                "  - call: a\n",
                "tools: {a: {time: 1 s, failure: {probability: 1, retries: 1000000000000}}}\n",
            ),
            "w.yaml:2: ",
            "at most",
        ),
        "never ends",
        run=False,
    ),
    defect(
        bad(
            "an exponential repeat of 10^9",
            task("  - repeat: {times: {exponential: {mean: 1000000000}}, steps: [{user: {tokens: 1}}]}\n"),
            "w.yaml:3: ",
            "at most 1,000,000",
        ),
        "`largest` takes the smallest draw of an exponential: it never ends",
        run=False,
    ),
    defect(
        bad(
            "a summary that fills the window",
            task(
                "  - user: {tokens: 990}\n" + GENERATE,
                "context: {limit_tokens: 1000, compaction: {at: 0.5, summary_tokens: 4k}}\n",
            ),
            "w.yaml:2: ",
            "summary_tokens",
        ),
        "found in the run, without file and line, with the advice to add compaction",
    ),
    defect(
        bad("a name of 100,000 letters", task(f"  - call: {'y' * 100_000}\n"), "w.yaml:3: "),
        "printed in full",
    ),
    defect(
        bad(
            "a misspelt distribution",
            task("  - user: {tokens: {unifrom: [1, 2]}}\n"),
            "w.yaml:3: ",
            "mean 'uniform'",
        ),
        "neither the nearest word nor the known ones",
    ),
    defect(
        bad("half a uniform", task("  - user: {tokens: {uniform: [1]}}\n"), "w.yaml:3: ", "low", "high"),
        "says that '1' is missing",
    ),
    defect(
        bad_command("an override whose path is dots", "run w.yaml --set ..=5", "--set ..=5", "path=value"),
        "ignored in silence",
    ),
    defect(
        bad_command(
            "an override at an index in superscript", "run w.yaml --set steps[⁵]=5", "--set steps[⁵]=5"
        ),
        "ValueError of int()",
    ),
    defect(
        bad_command("an override that is not UTF-8", "run w.yaml --set name=n\udcfe", "--set name"),
        "UnicodeEncodeError",
    ),
    defect(
        bad_command(
            "a backend that needs a profile",
            "run w.yaml --on 8xb200 --set deployment.engines.main.backend=endpoint",
            "endpoint",
        ),
        "TypeError",
    ),
    defect(
        bad_command(
            "an import over its own log",
            "import l.yaml -o l.yaml",
            "l.yaml: ",
            l=lambda path: shutil.copy(LOG, path),
        ),
        "the log is lost",
    ),
    defect(
        bad_command(
            "an import over a file that exists",
            f"import {shlex.quote(LOG)} -o w.yaml",
            "w.yaml: exists",
        ),
        "it is overwritten; init would leave it alone",
    ),
]


def prepare(files: dict[str, Setup], folder: Path) -> None:
    """Write the files of a case."""
    for name, text in files.items():
        path = folder / name
        if isinstance(text, str):
            path.write_text(text, "utf-8")
        elif isinstance(text, bytes):
            path.write_bytes(text)
        else:
            text(path)


def tree(folder: Path) -> list[tuple[Path, int]]:
    """Return all paths below a folder with their sizes."""
    return sorted((path, path.lstat().st_size) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.says) for c in (*FILES, *TRAPS, *FLEETS, *COMMANDS, *SWEEPS, *MEASURED)] + NOT_YET,
)
def test_one_line_says_what_is_wrong(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare(case.files, tmp_path)
    before = tree(tmp_path)
    code, out, err = invoke(*shlex.split(case.command))
    assert (code, out) == (2, "")
    assert err.endswith("\n")
    assert err[:-1].isprintable()
    assert len(err) < 1000
    assert [part for part in case.expected if part not in err] == [], err
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda text: text.replace("\n", "\r\n").encode(), id="CRLF"),
        pytest.param(lambda text: b"\xef\xbb\xbf" + text.encode(), id="a byte order mark"),
        pytest.param(lambda text: text.rstrip("\n").encode(), id="no line feed at the end"),
        pytest.param(lambda text: ("---\n" + text + "...\n").encode(), id="document marks"),
    ],
)
def test_a_file_of_another_editor_reads_alike(change, tmp_path):
    path = tmp_path / "w.yaml"
    path.write_bytes(change(Path(SHORT).read_text("utf-8")))
    assert data("run", str(path)) == data("run", SHORT)


@pytest.mark.parametrize(
    ("written", "read"), [("010", 10), ("1e9", 10**9), ("1_0", 10), ("14k", 14_000), ("1.5M", 1_500_000)]
)
def test_a_number_of_tokens_is_read_as_it_is_written(written, read, tmp_path):
    (tmp_path / "w.yaml").write_text(task(f"  - user: {{tokens: {written}}}\n"), "utf-8")
    assert load_workflow(str(tmp_path / "w.yaml")).steps[0].body.tokens.constant == read


@pytest.mark.parametrize(
    "name", ["no", "12:30", "2020-01-01", "on", "0x10", "1.2.3", "[red]", "%s {} \\", "名前 🚀"]
)
def test_a_name_is_read_as_it_is_written(name, tmp_path):
    quoted = name if name.isascii() and name[0].isalnum() else json.dumps(name, ensure_ascii=False)
    (tmp_path / "w.yaml").write_text(f"name: {quoted}\nsteps:\n{GENERATE}", "utf-8")
    run = data("run", str(tmp_path / "w.yaml"))
    assert run["workflow"] == name
    _, out, _ = invoke("run", str(tmp_path / "w.yaml"))
    assert out.splitlines()[0] == name


@pytest.mark.parametrize("name", ["[red]a", "[/]", "[/blah]"])
def test_the_name_of_a_tool_is_shown_as_it_is_written(name, tmp_path):
    (tmp_path / "w.yaml").write_text(task(f"  - call: {{tool: '{name}', time: 1 s}}\n"), "utf-8")
    code, out, _ = invoke("run", str(tmp_path / "w.yaml"))
    assert code == 0
    assert name in out


@pytest.mark.parametrize("name", ["a\\e]0;b\\a", "a\\nb", "a\\e[2Jb"])
def test_a_name_cannot_command_the_terminal(name, tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")  # no styles
    (tmp_path / "w.yaml").write_text(f'name: "{name}"\nsteps:\n{GENERATE}', "utf-8")
    code, out, err = invoke("run", str(tmp_path / "w.yaml"), stdout=Terminal())
    assert (code, out) == (2, "")
    assert "printable" in err
    assert err.rstrip("\n").isprintable()


NOTHING = {
    "no tokens": "  - generate: {tokens: 0}\n",
    "no repeats": "  - repeat: {times: 0, steps: [{generate: {tokens: 5}}]}\n",
    "no steps in a repeat": "  - repeat: {times: 5, steps: []}\n",
    "no sub-agents": "  - agents: []\n",
    "none of a sub-agent": "  - agents: [{name: a, count: 0, steps: [{generate: {tokens: 5}}]}]\n",
    "a sub-agent without work": "  - agents: [{name: a, steps: []}]\n",
    "nothing in parallel": "  - parallel: []\n",
    "nobody to wait for": "  - join: []\n",
    "an empty message": "  - user: {tokens: 0}\n",
    "no time": "  - call: {tool: a, time: 0 s}\n",
    "no files": "  - read_file: {size: 1 B, count: 0}\n",
    "an empty file": "  - write_file: {size: 0 B}\n",
    "only a wait for a person": "  - think: 5 s\n",
}


@pytest.mark.parametrize("step", NOTHING.values(), ids=NOTHING)
def test_a_task_of_nothing_has_a_result_everywhere(step, tmp_path):
    path = str(tmp_path / "w.yaml")
    Path(path).write_text(task(step, "storage: {latency: 0 s, bandwidth: 1 GB/s}\n"), "utf-8")
    several = ["--on", "8xb200", "--on", "lpx-aa", "--runs", "2"]
    for arguments in (
        ["run", path],
        ["run", path, "--on", "8xb200", "--runs", "2"],
        ["compare", path, *several],
    ):
        for form in ("table", "json"):
            code, out, err = invoke(*arguments, "--format", form)
            assert (code, err) == (0, "")
            assert "nan" not in out.lower()


@pytest.mark.parametrize("seed", ["-1", "0", str(10**30)])
def test_any_whole_number_is_a_seed(seed):
    run = data("run", SHORT, "--seed", seed)
    assert (run["seed"], run) == (int(seed), data("run", SHORT, "--seed", seed))


def test_an_error_in_the_middle_leaves_no_output_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare({"w.yaml": task("  - user: {tokens: 500k}\n" + GENERATE)}, tmp_path)
    code, _, _ = invoke("run", "w.yaml", "--on", "8xb200", "--output-dir", "out")
    assert (code, [p.name for p in tmp_path.iterdir()]) == (2, ["w.yaml"])


def test_an_error_in_the_middle_leaves_no_folder_above_the_output_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare({"w.yaml": task("  - user: {tokens: 500k}\n" + GENERATE)}, tmp_path)
    code, _, _ = invoke("run", "w.yaml", "--on", "8xb200", "--output-dir", "a/b/c")
    assert (code, [p.name for p in tmp_path.iterdir()]) == (2, ["w.yaml"])


def test_outputs_are_written_whole_or_not_at_all(tmp_path):
    (tmp_path / "turns.csv").mkdir()
    code, out, _ = invoke("run", SHORT, "--output-dir", str(tmp_path))
    assert (code, out, [p.name for p in tmp_path.iterdir()]) == (2, "", ["turns.csv"])


def test_a_file_that_cannot_be_written_leaves_no_temporary_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, _ = invoke("init", "")
    assert (code, list(tmp_path.iterdir())) == (2, [])


@pytest.mark.parametrize("columns", ["0", "1", "10"])
def test_a_narrow_terminal_still_shows_the_answer(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    code, out, _ = invoke("run", SHORT)
    assert code == 0
    assert "pipeline" in out


PYTHON = [sys.executable, "-m", "agentsim"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize(
    ("redirection", "environment", "code"),
    [
        pytest.param(">/dev/full", {}, 2, id="a full disk"),
        pytest.param(">/dev/null", {"PYTHONIOENCODING": "latin-1"}, 0, id="a terminal of Latin-1"),
        pytest.param(
            ">/dev/null", {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, 0, id="the C locale"
        ),
        pytest.param(">/dev/null", {"HOME": "", "TERM": "dumb"}, 0, id="no home and a dumb terminal"),
        pytest.param(">&-", {}, 0, id="no stdout at all"),
        pytest.param("<&- >/dev/null", {}, 0, id="no stdin at all"),
    ],
)
def test_an_odd_output_ends_in_one_line_or_none(redirection, environment, code):
    command = f'exec "$@" {redirection}'
    done = subprocess.run(
        ["sh", "-c", command, "sh", *PYTHON, "run", SHORT],
        env={**ENVIRONMENT, **environment},
        stderr=subprocess.PIPE,
        check=False,
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (code, 1 if code else 0)


def test_without_stderr_stdout_stays_empty_and_the_exit_code_tells():
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *PYTHON, "run", "no-such-file.yaml"]
    done = subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize(
    "kind",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM),
    ],
)
def test_an_ended_run_leaves_no_output_folder(kind, tmp_path):
    process, folder = interrupted(tmp_path, kind)
    out, _ = process.communicate(timeout=30)
    assert out == b""
    assert not folder.exists()


def test_an_interrupt_is_one_line_and_exit_code_130(tmp_path):
    process, _ = interrupted(tmp_path, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err.splitlines()) == (130, [b"interrupted"])


def interrupted(tmp_path: Path, kind: signal.Signals) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a run that would take hours and send it a signal once it has opened its output folder."""
    (tmp_path / "w.yaml").write_text(LONG, "utf-8")
    folder = tmp_path / "out"
    process = subprocess.Popen(
        [*PYTHON, "run", "w.yaml", "--on", "8xb200", "--runs", "100000", "--output-dir", "out"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    end = time.monotonic() + 30
    while not (folder.is_dir() and any(folder.iterdir())) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(kind)
    return process, folder


def test_the_library_says_where_in_the_file_it_was(tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text(task("  - user: {tokens: x}\n"), "utf-8")
    with pytest.raises(WorkflowError, match=r"w\.yaml:3: steps\[0\]\.user\.tokens: 'x'"):
        load_workflow(str(path))
