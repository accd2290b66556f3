"""A sweep's rows are those of single runs, a kill loses nothing, and the bytes tell nothing of how it ran."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_cli import ROOT, SHORT, data, invoke, printed

from agentsim.errors import InputError
from agentsim.sim.engine import simulate
from agentsim.sweep import work
from agentsim.sweep.columns import BY_NAME, metric_named
from agentsim.sweep.effects import read_rows
from agentsim.sweep.load import load_sweep
from agentsim.sweep.run import JOURNAL, Place, Running
from agentsim.sweep.space import space_of
from agentsim.units import amount, between, duration_text

TASK = """name: made up
context: {system_tokens: 2k}
tools: {test: {time: {lognormal: {median: 10 s, p90: 40 s}}, result_tokens: 300}}
steps:
  - user: {tokens: 100}
  - repeat: {times: 4, steps: [{generate: {tokens: 200}}, {call: test}]}
"""
AXES = """workflow: w.yaml
runs: 2
grid:
  deployment: [coding-tool, 8xb200, gemma-h200]
  tools.test.time: {from: 1 s, to: 64 s, steps: 3, scale: log}
list:
  deployment.engines.main.chips: [1, 2, 8]
  context.system_tokens: [1k, 2k, 200k]
"""
SLOW = """workflow: w.yaml
deployment: 8xb200
runs: 40
grid:
  tools.test.time: {from: 1 s, to: 100 s, steps: 60}
"""
HERE = Place("local", "1")


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.yaml").write_text(TASK, "utf-8")
    (tmp_path / "s.yaml").write_text(AXES, "utf-8")
    (tmp_path / "slow.yaml").write_text(SLOW, "utf-8")


def done(file="s.yaml", output="out.csv", place=HERE, **options):
    """Run a sweep to its end; return the bytes of its table."""
    with Running(load_sweep(file), output, **options) as running:
        running.run(place)
    return Path(output).read_bytes()


def rows_of(output="out.csv"):
    with open(output, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def entries(output="out.csv"):
    """Return the points of a journal in the order in which they were kept."""
    lines = Path(output + JOURNAL).read_text("utf-8").splitlines()
    return [json.loads(line)["point"] for line in lines[1:]]


# rows


@pytest.mark.parametrize("deployment", ["coding-tool", "8xb200", "lpx", "gemma-routed"])
def test_a_row_is_what_a_run_with_the_same_values_gives(deployment):
    Path("s.yaml").write_text(
        f"workflow: w.yaml\nruns: 2\nseed: 3\ndeployment: {deployment}\n"
        "grid: {tools.test.time: [1 s, {uniform: [1 s, 9 s]}], context.system_tokens: [1k, 2000]}\n"
    )
    done()
    for row in rows_of():
        changes = [f"{path}={row[path]}" for path in ("tools.test.time", "context.system_tokens")]
        sets = [word for change in changes for word in ("--set", change)]
        run = data("run", "w.yaml", "--on", deployment, "--runs", "2", "--seed", "3", *sets)
        told = {
            "task_time_p50_s": run["task_completion_s"]["p50"],
            "task_time_std_s": run["task_completion_s"]["std"],
            **{f"{part}_s": seconds for part, seconds in run["breakdown_s"].items()},
            "output_tokens_per_s": run["output_tokens_per_s"],
            "ttft_p95_s": run["ttft_s"]["p95"],
            "peak_context_tokens": run["peak_context_tokens"],
        }
        assert {name: float(row[name]) for name in told} == told
        assert row["cost_usd"] == ("" if run["cost_usd"] is None else str(run["cost_usd"]))
        assert row["warnings"] == "; ".join(run["warnings"])


def test_every_combination_is_a_row_and_the_axes_of_a_list_move_together():
    done()
    rows = rows_of()
    assert [int(row["point"]) for row in rows] == list(range(27))
    assert len({(row["deployment"], row["tools.test.time"]) for row in rows}) == 9
    together = {(row["deployment.engines.main.chips"], row["context.system_tokens"]) for row in rows}
    assert together == {("1", "1k"), ("2", "2k"), ("8", "200k")}


def test_what_does_not_fit_and_what_does_not_go_together_are_rows_with_their_reason():
    Path("s.yaml").write_text(AXES.replace("200k", "600k"), "utf-8")
    done()
    found = {(row["deployment"], row["context.system_tokens"]): row for row in rows_of()}
    endpoint, too_long = found["coding-tool", "1k"], found["8xb200", "600k"]
    assert (endpoint["status"], endpoint["task_time_p50_s"]) == ("invalid", "")
    assert "no 'engines' here" in endpoint["reason"]
    assert (too_long["status"], too_long["task_time_p50_s"]) == ("infeasible", "")
    assert "600,000 tokens" in too_long["reason"]
    assert found["8xb200", "1k"]["status"] == "ok"


def test_a_quantity_has_a_column_in_si_units_beside_what_is_written():
    Path("s.yaml").write_text(
        "workflow: w.yaml\ndeployment: 8xb200\ngrid: {network: [{round_trip: 1 ms}],"
        " tools.test.time: [500 ms, 2 s], context.system_tokens: [1k, 2k]}\n"
    )
    done()
    assert [row["tools.test.time_s"] for row in rows_of()] == ["0.5", "0.5", "2.0", "2.0"]
    assert "context.system_tokens_" not in "".join(rows_of()[0])


def test_a_bug_at_a_point_is_a_row_and_exit_code_1_and_is_tried_again(monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("of\nthe simulation")

    monkeypatch.setattr(work, "simulate", broken)
    code, out, err = invoke("sweep", "s.yaml", "-o", "out.csv", "--workers", "1")
    assert (code, err) == (1, "")
    assert "ended in an error" in out
    bad = [row for row in rows_of() if row["status"] == "error"]
    assert {row["reason"] for row in bad} == {"ZeroDivisionError: of the simulation"}
    assert len(bad) == 18
    monkeypatch.setattr(work, "simulate", simulate)
    shown = Path("out.csv").read_bytes()
    assert invoke("sweep", "s.yaml", "-o", "out.csv", "--plot")[0] == 1
    assert done() == done(output="fresh.csv") != shown
    assert len(entries()) == 27 + 18


def test_an_axis_may_need_another_one_to_fit():
    Path("s.yaml").write_text(
        "workflow: w.yaml\ndeployment: 8xb200\n"
        "grid: {context.limit_tokens: [1k, 1500], context.system_tokens: [500]}\n"
    )
    done()
    assert {row["status"] for row in rows_of()} <= {"ok", "infeasible"}


# the same bytes


def test_the_bytes_are_the_same_with_any_number_of_processes(monkeypatch):
    alone = done()
    monkeypatch.setattr("agentsim.executors.local.ALONE_S", 0.0)
    assert done(output="two.csv", place=Place("local", "2")) == alone
    assert sorted(entries("two.csv")) == entries() == list(range(27))


def test_a_finished_sweep_is_not_run_again(monkeypatch):
    before = done()
    monkeypatch.setattr(work, "simulate", None)
    assert done() == before
    assert entries() == list(range(27))


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_a_kill_at_any_byte_loses_only_points_under_way(cut):
    whole = done()
    journal = Path("out.csv" + JOURNAL)
    lines = journal.read_bytes().splitlines(keepends=True)
    kept = b"".join(lines[:11])
    journal.write_bytes(kept + lines[11][:cut])
    Path("out.csv").write_bytes(whole[: len(whole) // 2])
    assert done() == whole
    assert journal.read_bytes().startswith(kept)
    assert sorted(entries()) == list(range(27))


@pytest.mark.parametrize("output", ["out.csv", "out.parquet"])
def test_rows_out_of_order_make_the_same_file(output):
    if output.endswith("parquet"):
        pytest.importorskip("pyarrow")
    whole = done(output=output)
    journal = Path(output + JOURNAL)
    head, *lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(head + b"".join(lines[5:][::-2]))
    assert done(output=output) == whole


def started(output, *options):
    """Start a sweep in a process of its own; return it once several points are kept."""
    command = [sys.executable, "-m", "agentsim", "sweep", "slow.yaml", "-o", output, *options]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    journal, end = Path(output + JOURNAL), time.monotonic() + 120
    while not (journal.exists() and journal.read_bytes().count(b"\n") > 8) and time.monotonic() < end:
        time.sleep(0.01)
    return process


def children(process):
    try:
        return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    except OSError:
        return []


def test_a_killed_sweep_goes_on_where_it_was():
    process = started("out.csv", "--workers", "2")
    below = children(process)
    process.kill()
    process.communicate(timeout=120)
    text, kept = Path("out.csv").read_text("utf-8"), entries()
    assert 8 <= len(kept) < 60
    assert text.endswith("\n")
    assert text.count("\n") <= len(kept) + 1
    whole = done("slow.yaml", "whole.csv")
    assert done("slow.yaml") == whole
    assert entries()[: len(kept)] == kept
    assert sorted(entries()) == list(range(60))
    end = time.monotonic() + 120
    while any(Path(f"/proc/{child}").exists() for child in below) and time.monotonic() < end:
        time.sleep(0.05)
    assert [child for child in below if Path(f"/proc/{child}").exists()] == []


def test_an_interrupt_says_what_is_kept_and_the_sweep_goes_on():
    process = started("out.csv")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, b"")
    [line] = err.decode().splitlines()
    assert line.startswith("interrupted; ")
    assert f"{len(entries())} of 60 points are kept in out.csv.journal" in line
    assert done("slow.yaml") == done("slow.yaml", "whole.csv")


def test_dask_gives_the_same_bytes_on_a_cluster():
    distributed = pytest.importorskip("distributed")
    alone = done()
    script = (
        "from distributed import LocalCluster\nfrom agentsim.sweep.load import load_sweep\n"
        "from agentsim.sweep.run import Place, Running\n"
        "if __name__ == '__main__':\n"
        "    options = dict(n_workers=2, threads_per_worker=1, dashboard_address=None)\n"
        "    with LocalCluster(**options) as cluster, Running(load_sweep('s.yaml'), 'dask.csv') as running:\n"
        "        running.run(Place('dask', cluster.scheduler_address))\n"
    )
    Path("cluster.py").write_text(script, "utf-8")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "cluster.py"], env=env, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert Path("dask.csv").read_bytes() == alone, distributed.__version__


def test_parquet_holds_what_csv_holds():
    parquet = pytest.importorskip("pyarrow.parquet")
    done()
    done(output="out.parquet")
    table = parquet.read_table("out.parquet").to_pylist()
    for row, cells in zip(table, rows_of(), strict=True):
        assert row.keys() == cells.keys()
        for name, value in row.items():
            text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
            same = text == cells[name] or float(cells[name]) == value
            assert same, name


# what has changed


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("runs: 2", "runs: 3", "runs was 2, is 3"),
        ("[1, 2, 8]", "[1, 2, 4]", "list.deployment.engines.main.chips was [1, 2, 8], is [1, 2, 4]"),
        ("runs: 2", "runs: 2\nseed: 7", "seed was not there, is 7"),
        ("to: 64 s", "to: 32 s", 'grid.tools.test.time.to was "64 s", is "32 s"'),
    ],
)
def test_a_changed_sweep_is_refused_with_what_changed(before, after, told):
    whole = done()
    Path("s.yaml").write_text(AXES.replace(before, after), "utf-8")
    code, out, err = invoke("sweep", "s.yaml", "-o", "out.csv")
    assert (code, out) == (2, "")
    assert told in err
    assert "--restart" in err
    assert Path("out.csv").read_bytes() == whole


def test_another_order_of_the_axes_is_another_sweep():
    done()
    first, second = AXES.splitlines()[3:5]
    Path("s.yaml").write_text(AXES.replace(f"{first}\n{second}", f"{second}\n{first}"), "utf-8")
    with pytest.raises(InputError, match="order of the axes"):
        done()


def test_a_changed_workflow_is_another_sweep():
    done()
    Path("w.yaml").write_text(TASK.replace("times: 4", "times: 5"), "utf-8")
    with pytest.raises(InputError, match=r"the workflow w\.yaml has changed"):
        done()


def test_a_changed_file_behind_a_deployment_is_another_sweep():
    chip = (ROOT / "agentsim" / "specs" / "hardware" / "b200.yaml").read_text("utf-8")
    Path("chip.yaml").write_text(chip, "utf-8")
    Path("d.yaml").write_text(
        "title: mine\nmodel: gemma-4-31b\nengines:\n"
        "  main: {hardware: chip.yaml, chips: 8, precision: {weights: fp8, kv: fp8}, software: trtllm}\n"
    )
    Path("s.yaml").write_text("workflow: w.yaml\ndeployment: d.yaml\ngrid: {tools.test.time: [1 s, 2 s]}\n")
    load_sweep("s.yaml")
    before = load_sweep("s.yaml").definition["files"]
    Path("chip.yaml").write_text(chip.replace("title: ", "title: new "), "utf-8")
    after = load_sweep("s.yaml").definition["files"]
    assert [name for name in before if before[name] != after[name]] == ["chip.yaml"]


def test_names_and_pictures_may_change():
    whole = done()
    Path("s.yaml").write_text("name: another\nmetric: cost_usd\n# new\n" + AXES, "utf-8")
    assert done() == whole


def test_a_restart_begins_anew():
    done()
    Path("s.yaml").write_text(AXES.replace("[1, 2, 8]", "[1, 2, 4]"), "utf-8")
    fresh = done(output="fresh.csv")
    assert done(restart=True) == fresh
    assert entries() == list(range(27))


def test_two_sweeps_do_not_write_into_one_file():
    pytest.importorskip("fcntl")
    with Running(load_sweep("s.yaml"), "out.csv") as running:
        with pytest.raises(InputError, match="another sweep is writing"):
            done()
        running.run(HERE)


def test_a_sweep_under_way_can_be_looked_at(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with Running(load_sweep("s.yaml"), "out.csv") as running:
        for index in range(12):
            running.journal.add(index, running.sweep.work(index))
        screen = printed("sweep", "s.yaml", "-o", "out.csv", "--plot")
    assert "12 of 27 points" in screen
    assert not Path("out.csv").exists()


def test_a_picture_of_nothing_is_refused_and_leaves_nothing():
    code, out, err = invoke("sweep", "s.yaml", "--plot")
    assert (code, out) == (2, "")
    assert "s.csv: nothing of this sweep is there yet" in err
    assert not Path("s.csv.journal").exists()


@pytest.mark.parametrize(
    ("package", "options"), [("pyarrow", ["-o", "x.parquet"]), ("distributed", ["--dask", "tcp://h:1"])]
)
def test_a_package_that_is_not_installed_is_named(package, options, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    before = sorted(os.listdir())
    code, out, err = invoke("sweep", "s.yaml", *options)
    assert (code, out) == (2, "")
    assert f"pip install {package}" in err
    assert sorted(os.listdir()) == before


# what the table says


def reading(value, metric="task_time_p50_s", lengths=(3, 4)):
    """Return what is read from a table whose metric is a function of the two places."""
    space = space_of({f"axis{i}": list(range(n)) for i, n in enumerate(lengths)}, {})
    rows = []
    for index in range(space.size):
        found = value(*space.coordinates(index))
        rows.append({"point": index, "status": "ok" if found is not None else "infeasible", metric: found})
    return read_rows(space, metric_named(metric), rows)


def test_where_effects_add_up_the_shares_do_too():
    found = reading(lambda a, b: 10.0 * a + b)
    shares = {driver.label: driver.share for driver in found.drivers}
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["axis0"] == pytest.approx((200 / 3) / (200 / 3 + 1.25))
    assert [driver.label for driver in found.drivers] == ["axis0", "axis1"]


def test_what_only_works_together_is_interplay():
    found = reading(lambda a, b: float((a - 1) * (b - 1.5)))
    assert sum(driver.share for driver in found.drivers) == pytest.approx(0, abs=1e-12)


def test_an_axis_that_does_nothing_drives_nothing():
    found = reading(lambda _, b: float(b))
    assert {driver.label: driver.share for driver in found.drivers} == {"axis0": 0, "axis1": pytest.approx(1)}


def test_best_is_least_time_and_most_speed_and_points_without_result_are_neither():
    least = reading(lambda a, b: None if a == b == 0 else 1.0 + a + b)
    assert (least.space.coordinates(least.best), least.space.coordinates(least.worst)) == ((0, 1), (2, 3))
    most = reading(lambda a, b: None if a == b == 0 else 1.0 + a + b, "output_tokens_per_s")
    assert (most.best, most.worst) == (least.worst, least.best)


def test_a_surface_is_the_mean_over_the_other_axes():
    found = reading(lambda a, b, c: 100.0 * a + 10.0 * b + c, lengths=(2, 2, 3))
    assert found.surface(0, 1) == [[1, 11], [101, 111]]
    assert found.surface(2, 0)[2] == [7, 107]


def test_a_metric_that_is_unknown_everywhere_is_refused():
    Path("s.yaml").write_text(
        "workflow: w.yaml\ndeployment: coding-tool\ngrid: {tools.test.time: [1 s, 2 s]}\n"
    )
    code, _, err = invoke("sweep", "s.yaml", "--metric", "cost_usd")
    assert code == 2
    assert "cost_usd: it is unknown at every point" in err


def test_json_says_what_the_screen_says():
    found = data("sweep", "s.yaml")
    times = [row["task_time_p50_s"] for row in found["rows"] if row["status"] == "ok"]
    assert found["best"]["task_time_p50_s"] == min(times)
    assert found["worst"]["task_time_p50_s"] == max(times)
    assert sum(found["statuses"].values()) == found["points"] == len(found["rows"]) == 27
    assert duration_text(min(times)) in printed("sweep", "s.yaml", "--plot")


@pytest.mark.parametrize("metric", BY_NAME)
def test_every_metric_has_a_screen(metric, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    Path("s.yaml").write_text(SHORT_SWEEP, "utf-8")
    lines = printed("sweep", "s.yaml", "--metric", metric).splitlines()
    assert max(map(len, lines)) <= 80


SHORT_SWEEP = f"""workflow: {SHORT}
deployment: 8xb200
grid: {{tools.pipeline.slots: [1, 2], tools.pipeline.time: [1 min, 4 min]}}
"""


# ranges


@pytest.mark.parametrize(
    ("first", "last", "steps", "log", "values"),
    [
        (1, 8, 4, True, (1, 2, 4, 8)),
        (1, 8, 8, False, (1, 2, 3, 4, 5, 6, 7, 8)),
        (0.0, 1.0, 5, False, (0.0, 0.25, 0.5, 0.75, 1.0)),
        ("1 s", "1 min", 2, False, ("1 s", "60 s")),
        ("500 ms", "2 s", 3, True, ("500 ms", "1000 ms", "2000 ms")),
        ("1k", "16k", 5, True, (1000, 2000, 4000, 8000, 16000)),
        ("1000.001 s", "1000.002 s", 2, False, ("1000.001 s", "1000.002 s")),
        ("2 TB/s", "8 TB/s", 3, False, ("2 TB/s", "5 TB/s", "8 TB/s")),
        (8, 2, 3, False, (8, 5, 2)),
    ],
)
def test_a_range_goes_evenly_or_by_equal_factors(first, last, steps, log, values):
    assert between(first, last, steps, log) == values


@pytest.mark.parametrize(
    ("first", "last", "steps", "log", "told"),
    [
        (1, 3, 4, False, "too many"),
        (0, 1, 5, False, "write 0.0 for fractions"),
        (0, 8, 3, True, "over 0"),
        ("1 s", "5 GB", 3, False, "not two amounts of one kind"),
        ("1 s", 5, 3, False, "not two amounts of one kind"),
        ("fast", "slow", 3, False, "not two amounts of one kind"),
        (True, 3, 3, False, "not two amounts of one kind"),
        (1, 2, 1, False, "two ends"),
        (1.0, 1.0, 2, False, "too many"),
    ],
)
def test_a_range_without_sense_is_refused(first, last, steps, log, told):
    with pytest.raises(ValueError, match=told):
        between(first, last, steps, log)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("3 ms", (0.003, "time")),
        ("14k", (14_000, "")),
        (2.5, (2.5, "")),
        ("2 USD/Mtok", (2e-6, "token price")),
        ("h200", None),
        (None, None),
        (float("nan"), None),
        ("1e999 s", None),
    ],
)
def test_an_amount_is_a_number_and_its_dimension(text, found):
    assert amount(text) == found


@pytest.mark.parametrize(
    "line",
    [
        b"garbage",
        b"\xff\xfe",
        b"[]",
        b'{"point":0}',
        b'{"point":99,"status":"ok"}',
        b'{"point":-1,"status":"ok"}',
    ],
)
def test_a_damaged_journal_is_named_with_its_line(line):
    done()
    journal = Path("out.csv" + JOURNAL)
    count = journal.read_bytes().count(b"\n")
    journal.write_bytes(journal.read_bytes() + line + b"\n")
    with pytest.raises(InputError, match=f"out.csv{JOURNAL}:{count + 1}: damaged"):
        done()
