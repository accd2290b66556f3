"""The same inputs give the same bytes, whatever the process; one formula serves fit and simulation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentsim import yaml_file
from agentsim.backends.endpoint import compile_endpoint
from agentsim.calibrate.endpoint import split_prompt, usable_calls
from agentsim.compile import compile_plan
from agentsim.importers._build import workflow_document
from agentsim.recorded import RecordedCall, RecordedLane, RecordedSession, RecordedWait
from agentsim.sim.engine import simulate
from agentsim.specs import catalog
from agentsim.specs.endpoint import Endpoint
from agentsim.specs.sourced import Ledger
from agentsim.workflow.load import check_document

ROOT = Path(__file__).parents[1]
ENDPOINT = "claude-opus-4-5"


def printed(hash_seed: str) -> bytes:
    command = [sys.executable, "-m", "agentsim", "run", "workflows/code-review.yaml", "--format", "json"]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True).stdout


def test_a_run_prints_the_same_bytes_under_any_hash_seed():
    assert printed("1") == printed("2") == printed("77")


def recorded(waits):
    """Return a session of one lane, with a wait before each call but the first."""
    events, now = [], 0.0
    for index, wait in enumerate((0.0, *waits)):
        if index:
            events.append(RecordedWait(now, wait, "tool", "bash"))
        now += wait
        events.append(
            RecordedCall(now, 5.0, ENDPOINT, 20_000 + 900 * index, 19_000 * bool(index), 40 + index)
        )
        now += 5.0
    return RecordedSession("s", "made", (RecordedLane("main", None, tuple(events)),))


@pytest.mark.parametrize(
    "waits", [(3, 8, 2), (20, 400, 5), (299, 301, 1)], ids=["short", "a pause", "about the lifetime"]
)
def test_a_simulated_session_takes_what_the_calibration_predicts_for_it(waits):
    session = recorded(waits)
    cost = compile_endpoint(catalog.load(Endpoint, ENDPOINT), Ledger())
    calls = [call for group in usable_calls([session])[0].values() for call in group]
    predicted = 0.0
    for use in calls:
        uncached, cached = split_prompt(use, cost.cache_lifetime_s)
        time = cost.call(uncached, cached, use.call.output_tokens)
        predicted += time.prefill_s + time.decode_s
    workflow = check_document(yaml_file.parse(workflow_document(session), "s.yaml"))
    result = simulate(compile_plan(workflow, ENDPOINT))
    model_s = sum(turn.prefill_ns + turn.decode_ns for turn in result.turns) / 1e9
    assert model_s == pytest.approx(predicted, rel=1e-6)
