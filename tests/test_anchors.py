"""Published figures against the simulation: the gates of the LPX rows, what was fitted and what was not."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from test_cli import data, invoke, printed

from agentsim.anchor_measures import AA, CODING, LPX, MEASURES, NOT_YET, Runs
from agentsim.anchors import Row, calibrate_b300, calibrate_lpx, in_catalog, readings, run_anchors
from agentsim.specs import catalog
from agentsim.specs.anchor import Anchor, load_anchors
from agentsim.specs.sourced import data_of

ANCHORS = {anchor.id: anchor for anchor in load_anchors().rows}
KEYS = {"id", "published", "simulated", "unit", "error", "basis", "follows", "gate", "ok"}
GATES = [name for name, row in ANCHORS.items() if row.gate]


@cache
def runs() -> Runs:
    return Runs()


@cache
def rows() -> dict[str, Row]:
    return {row.anchor.id: row for row in run_anchors(runs())}


@cache
def fitted():
    return [*calibrate_lpx(), *calibrate_b300()]


def test_no_published_figure_is_left_out():
    """As they were handed over: ids, values, tolerances and gates."""
    assert len(ANCHORS) == 24
    assert [ANCHORS[i].value for i in ("aa-lpx-10k", "aa-lpx-100k", "aa-lpx-flat")] == [3382, 3431, 1.0145]
    assert [ANCHORS[i].value for i in ("speed-lpx-median", "speed-lpx-p80")] == [4767, 5520]
    assert ANCHORS["endpoint-870"].tolerance == 0.0
    assert {row.gate for name, row in ANCHORS.items() if name.startswith(("oss2t", "groq1"))} == {False}


KNOWN_TO_MISS = {"deepseek-b200-nospec"}
"""Gates that do not hold; the row says why."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.xfail] * (n in KNOWN_TO_MISS)) for n in GATES]
)
def test_a_gate_holds(name):
    assert rows()[name].ok, rows()[name].error


def test_every_row_is_measured_or_says_that_it_is_not():
    for name, row in rows().items():
        assert (name in MEASURES) == (row.simulated is not None)
        assert row.simulated is not None or row.why.startswith("not simulated")
    assert set(MEASURES) | set(NOT_YET) <= set(ANCHORS)


def test_at_most_three_constants_are_fitted_on_lpx_rows_and_the_rest_is_predicted():
    fits = {name for name, row in ANCHORS.items() if row.fits}
    assert fits == {"speed-lpx-median", "speed-lpx-p80", "aa-lpx-10k", "b300-gemma-mtp-bf16"}
    for name in ("aa-lpx-100k", "aa-lpx-flat", "lpx-vs-endpoint", "five-thousand-tokens", "b300-gemma-mtp"):
        assert ANCHORS[name].basis == "predicted"


def calibrated_on(name):
    """Return the data of the whole catalog that name this row as what they were fitted on."""
    found = []
    for kind in ("hardware", "models", "engines"):
        for spec in catalog.names(kind):
            loaded = catalog.from_document(catalog.schema_of(kind), catalog.document(kind, spec), spec)
            found += [d for _, d in data_of(loaded) if f"anchor {name} " in (d.fitted_on or "")]
    return found


def test_each_calibrated_row_is_named_by_the_one_datum_that_it_names():
    """Another description of the same chip has the same constant."""
    for name, row in ANCHORS.items():
        if row.fits:
            found = {datum.name: datum.value for datum in calibrated_on(name)}
            assert row.fits in found
            assert {place.partition(".")[2] for place in found} == {row.fits.partition(".")[2]}
            assert set(found.values()) == {found[row.fits]}
        assert not row.fits or all(datum.basis == "calibrated" for datum in calibrated_on(name))


def test_what_stands_in_the_catalog_is_what_the_calibration_computes():
    assert {c.datum for c in fitted()} == {row.fits for row in ANCHORS.values() if row.fits}
    for constant in fitted():
        assert in_catalog(constant.datum) == pytest.approx(constant.value, rel=0.01)


def test_a_fit_does_not_depend_on_what_the_catalog_says_of_the_constant(monkeypatch):
    """Another overhead and another spread before: the same ones after."""
    from dataclasses import replace

    made = Runs.plan

    def other(self, protocol, deployment):
        plan = made(self, protocol, deployment)
        cost = replace(plan.engines["main"], step_overhead_s=5e-3)
        return replace(plan, engines={"main": cost}, pace_sigma=0.5)

    monkeypatch.setattr(Runs, "plan", other)
    for again, before in zip(calibrate_lpx(), fitted(), strict=False):
        assert again.value == pytest.approx(before.value, rel=1e-9)


def test_the_measured_step_is_the_floor_and_the_overhead():
    cost = runs().lpx(CODING)
    coding, unique, off = readings(runs())
    assert coding.step_s == pytest.approx(coding.floor_s + cost.step_overhead_s, rel=0.02)
    assert coding.ratio > unique.ratio * 0.9 > off.ratio > 1
    assert off.step_s == pytest.approx(1 / 3382)
    assert off.layer_s(off.step_s) == pytest.approx(4.93e-6, rel=1e-2)
    assert runs().lpx(AA).step_overhead_s == cost.step_overhead_s


def made(simulated, **fields):
    described = {"id": "made", "what": "made", "value": 100, "unit": "tok/s", "tolerance": 0.1, "gate": True}
    return Row(Anchor.model_validate({**described, "source": "made", **fields}), simulated)


@pytest.mark.parametrize(
    ("row", "error", "ok"),
    [
        (made((105.0,)), 0.05, True),
        (made((80.0,)), -0.2, False),
        (made((100.0,), tolerance=0.0), 0.0, True),
        (made(None), None, None),
        (made((250.0,), value="240-300", numbers=[240, 300], between=True), 0.0, True),
        (made((330.0,), value="240-300", numbers=[240, 300], between=True), 0.1, True),
        (made((50.0, 1.8), value="50 s and ~1.5 s", numbers=[50, 1.5]), 0.2, False),
    ],
)
def test_the_error_is_relative_and_the_largest_of_several(row, error, ok):
    assert row.error == (None if error is None else pytest.approx(error))
    assert row.ok is ok


def test_the_list_has_the_documented_keys():
    found = data("anchors", "--runs", "2")
    assert [entry["id"] for entry in found] == list(ANCHORS)
    for entry in found:
        assert entry.keys() == KEYS
        assert entry["basis"] in ("calibrated", "predicted") if entry["simulated"] else entry["basis"] is None
        assert (entry["simulated"] is None) == (entry["error"] is None) == (entry["ok"] is None)
    [both] = [entry for entry in found if entry["id"] == "five-thousand-tokens"]
    assert both["published"] == "50 s and ~1.5 s"
    assert both["simulated"].startswith("50 s and 1.")


def test_the_screen_tells_every_row_and_both_readings(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = printed("anchors", "--runs", "2")
    assert max(map(len, shown.splitlines())) <= 80
    assert all(name in shown for name in ANCHORS)
    assert shown.count("fails") == sum(row.ok is False for row in rows().values())
    assert "no drafts" in shown
    assert f"of {len(GATES)} gates hold" in shown
    assert shown.count("(fitted)") == 2  # the row, and what it means
    assert all(f"{word}:" in shown for word in ("Gate", "Calibrated", "Restates"))


def test_a_row_that_restates_another_is_no_independent_prediction():
    follows = {name: row.follows for name, row in ANCHORS.items() if row.follows}
    assert follows.keys() == {"aa-lpx-100k", "lpx-vs-endpoint", "five-thousand-tokens"}
    assert all(ANCHORS[name].basis == "predicted" for name in [*follows, *follows.values()])
    assert {name for name, row in rows().items() if row.independent and row.anchor.gate} == {
        "lpx-weights-fit", "aa-lpx-flat", "b300-gemma-mtp", "mi300x-gemma", "deepseek-b200-nospec"
    }  # fmt: skip
    assert "of 5 independent predictions" in " ".join(printed("anchors", "--runs", "2").split())


def test_notes_say_what_a_figure_alone_does_not():
    """Capacity is no mapping, another mapping is as good, and a peak bounds the overhead."""
    assert "the mapping needs 64" in rows()["lpx-weights-fit"].why
    assert "slower at the planned context it would be 0.97" in rows()["aa-lpx-flat"].why
    assert "and fail" in rows()["aa-lpx-flat"].why
    assert "overhead is at most 385 us" in rows()["hotchips-peak"].why


@pytest.mark.parametrize("which", ["lpx", "b300"])
def test_a_calibration_prints_what_it_would_write(which, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for entry in data("calibrate", which):
        assert entry["value"] == pytest.approx(entry["in_catalog"], rel=0.01)
        assert entry["fitted_on"] in ANCHORS
    shown = printed("calibrate", which)
    assert max(map(len, shown.splitlines())) <= 80


def test_the_file_names_no_local_path():
    text = (Path(catalog.folder("models")).parent / "anchors.yaml").read_text("utf-8")
    assert "/work" not in text
    assert "validation/" not in text
    json.dumps(load_anchors().model_dump(mode="json", include={"rows"}))


def test_bad_options_are_one_line():
    code, out, err = invoke("anchors", "--runs", "0")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert LPX in catalog.names("deployments")
