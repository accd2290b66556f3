"""The simulator against a sample of the measured serving runs, where the files are at hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from agentsim.validation.judge import Choices, Plan
from agentsim.validation.rows import read_runs

MEASURED = Path(__file__).parents[1].parent / "shared" / "validation"
SERVING = MEASURED / "gpu_serving_measured.csv"
SEPARATE = MEASURED / "gpu_disaggregated_measured.csv"
STEPS = {SERVING: 40, SEPARATE: 20}
"""Every which row is taken: of separate workers few rows can be simulated."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SERVING.exists(), reason="the measured runs are not here"),
]


@cache
def sample(path, folder):
    """Return the report on a sample of a file's rows, in one process: whoever runs the tests spreads them."""
    head, *rows = path.read_text("utf-8").splitlines()
    kept = folder / path.name
    kept.write_text("\n".join([head, *rows[:: STEPS[path]]]), "utf-8")
    return Plan(str(kept), Choices(processes=1)).report()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sample")


@pytest.mark.parametrize("path", [SERVING, SEPARATE], ids=["serving", "separate workers"])
def test_every_measured_row_is_judged_refused_with_a_reason_or_a_repeat(path, folder):
    report = sample(path, folder)
    assert report.read == len(report.judged) + len(report.refused) + report.duplicates
    assert all(row.reason for row in report.refused)
    assert all(run.tpot_s > 0 and run.ttft_s > 0 for run in report.judged)


def test_most_measured_rows_can_be_simulated():
    found = read_runs(str(SERVING))
    assert found.read == 1843
    assert 300 < found.duplicates < 400
    assert len(found.refused) == 0


@pytest.fixture
def fitted(folder):
    if not sample(SERVING, folder).in_sample():
        pytest.skip("the engines' constants are not fitted on these runs")


@pytest.mark.usefixtures("fitted")
def test_simulated_times_are_near_the_measured_ones(folder):
    """In the fit 4 % and 13 % are reached over all rows; of a sample the medians may be half as much more."""
    json = sample(SERVING, folder).to_json()
    assert json["tpot"]["median"] <= 0.06
    assert json["ttft"]["median"] <= 0.20


@pytest.mark.usefixtures("fitted")
def test_simulated_times_of_separate_workers_are_near_the_measured_ones(folder):
    """Over all rows 10 % are reached; a sample of some twenty runs has a wider median."""
    assert sample(SEPARATE, folder).to_json()["tpot"]["median"] <= 0.16
