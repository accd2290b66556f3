"""Recorded sessions in, fitted endpoints out: truth is found again, and what was left out stays unseen."""

import gzip
import json
import random
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from agentsim.backends.endpoint import compile_endpoint
from agentsim.calibrate import (
    calibrate_endpoints,
    check_endpoints,
    endpoint_documents,
    profile_document,
    read_profiles,
)
from agentsim.calibrate.endpoint import UsableCall, short_name, split_prompt, usable_calls
from agentsim.errors import ImportFormatError, InputError, SpecError, UnknownNameError
from agentsim.importers.base import open_sessions
from agentsim.recorded import RecordedCall, RecordedLane, RecordedSession, RecordedWait
from agentsim.specs import catalog
from agentsim.specs.endpoint import Endpoint
from agentsim.specs.sourced import Ledger

REAL = Path(__file__).parents[1].parent / "shared" / "validation" / "agent_sessions.jsonl.gz"
TRUTH = (1.5, 30e-6, 15e-6, 1 / 60)
MODEL = "claude-test-1-20250101"


def made_sessions(count=60, calls=30, model=MODEL, truth=TRUTH, noise=0.1, seed=1):
    rng = random.Random(seed)
    return [made_session(f"s{i}", calls, model, truth, noise, rng) for i in range(count)]


def made_session(name, calls, model, truth, noise, rng):
    events, clock, prompt = [], 0.0, 5000
    for _ in range(calls):
        fresh, output = rng.randrange(100, 9000), rng.randrange(20, 2000)
        wait = rng.choice([2.0, 20.0, 20.0, 400.0])
        cached = 0 if wait > 300 else prompt
        prompt += fresh
        exact = truth[0] + (prompt - cached) * truth[1] + cached * truth[2] + output * truth[3]
        seconds = exact * rng.lognormvariate(-(noise**2) / 2, noise)
        events.append(RecordedWait(clock, wait, "tool", "t"))
        events.append(RecordedCall(clock + wait, seconds, model, prompt, prompt - fresh, output))
        clock += wait + seconds
    return RecordedSession(name, "made", (RecordedLane("main", None, tuple(events)),))


def with_events(session, change):
    lane = session.lanes[0]
    events = tuple(change(i, e) if isinstance(e, RecordedCall) else e for i, e in enumerate(lane.events))
    return replace(session, lanes=(replace(lane, events=events),))


def costs_of(sessions, model=MODEL):
    return astuple(calibrate_endpoints(sessions).models[model].costs)


def line(**changes):
    request = {
        "t_s": 0.0, "agent": "main", "type": "n", "model": "m", "input_tokens": 100, "cached_tokens": 64,
        "output_tokens": 5, "api_s": 2.5, "think_s": 0.0, "ttft_s": None,
    }  # fmt: skip
    return request | changes


def log(path, *requests, **session):
    data = {"id": "one", "system_tokens": 10, "tool_tokens": 20, "requests": list(requests)} | session
    path.write_text(json.dumps(data) + "\n", encoding="utf-8")
    return str(path)


def test_known_costs_are_found_again():
    assert costs_of(made_sessions()) == pytest.approx(TRUTH, rel=0.1)


def test_costs_without_noise_are_found_exactly():
    assert costs_of(made_sessions(noise=0.0)) == pytest.approx(TRUTH, rel=1e-6)


def test_noise_comes_back_as_the_spread_inside_sessions():
    fit = calibrate_endpoints(made_sessions(noise=0.2)).models[MODEL]
    assert fit.call_sigma == pytest.approx(0.2, rel=0.1)
    assert fit.session_sigma < 0.05
    assert all(0 < spread < 0.2 for spread in astuple(fit.spreads))


def test_a_cost_that_is_not_there_fits_to_zero_and_is_written_so():
    calibration = calibrate_endpoints(made_sessions(truth=(1.5, 30e-6, 0.0, 1 / 60), noise=0.0))
    fit = calibration.models[MODEL]
    exact = replace(fit, costs=replace(fit.costs, per_cached_token=0.0), spreads=fit.spreads)
    text = endpoint_documents(replace(calibration, models={MODEL: exact}), "made up")["claude-test-1"]
    assert fit.costs.per_cached_token == pytest.approx(0, abs=1e-12)
    assert "per_cached_token: {value: 0 us/tok" in text


def test_stalls_leave_the_costs_to_each_other_and_add_their_share_of_the_sum():
    calm = made_sessions()
    stalled = [
        with_events(s, lambda i, c: replace(c, duration_s=c.duration_s * 20) if i == 31 else c)
        for s in calm[:4]
    ] + calm[4:]
    before, after = costs_of(calm), costs_of(stalled)
    share = sum(c.duration_s for s in stalled for c in s.calls) / sum(
        c.duration_s for s in calm for c in s.calls
    )
    assert 1.01 < share < 1.2
    assert [a / b / share for a, b in zip(after, before, strict=True)] == pytest.approx([1] * 4, rel=0.05)


def test_calls_of_a_forked_session_count_once_and_link_it_to_its_origin():
    sessions = made_sessions(count=6)
    fork = replace(sessions[0], name="fork")
    own = made_sessions(count=1, seed=9)[0]
    longer = replace(fork, lanes=(replace(fork.lanes[0], events=fork.lanes[0].events + own.lanes[0].events),))
    calls, excluded = usable_calls([*sessions, longer])
    assert excluded == {"repeated from a linked session": 30}
    assert len(calls[MODEL]) == 7 * 30
    groups = {call.session: call.group for call in calls[MODEL]}
    assert groups[6] == groups[0]
    assert len(set(groups.values())) == 6


def test_linked_sessions_are_left_out_together():
    """Two families of threefold speed: each is foretold by the other alone, not by its own kin."""
    slow_truth = tuple(3 * cost for cost in TRUTH)
    quick = kin(made_sessions(count=5, noise=0.0))
    slow = kin(made_sessions(count=5, noise=0.0, truth=slow_truth, seed=5))
    fit = calibrate_endpoints([*quick, *slow]).models[MODEL]
    assert fit.judged_sessions == 10
    assert fit.median_session_error == pytest.approx((2 + 2 / 3) / 2, rel=1e-3)
    alone = calibrate_endpoints(quick).models[MODEL]
    assert (alone.judged_sessions, alone.median_session_error, alone.total_ratio) == (0, None, None)


def kin(sessions):
    """Give every session the last call of the first."""
    shared = sessions[0].lanes[0].events[-2:]
    lanes = [replace(s.lanes[0], events=s.lanes[0].events + shared) for s in sessions[1:]]
    return [sessions[0], *(replace(s, lanes=(n,)) for s, n in zip(sessions[1:], lanes, strict=True))]


def test_a_model_with_few_calls_is_named_with_the_reason():
    few = made_sessions(count=2, calls=5, model="rare")
    report = calibrate_endpoints([*made_sessions(), *few])
    assert set(report.models) == {MODEL}
    assert report.skipped == {"rare": "usable calls: 10 of 30 needed; sessions: 2 of 2"}
    with pytest.raises(InputError, match="no endpoint could be fitted: rare: usable calls: 10"):
        profile_document(calibrate_endpoints(few), "made up")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"timing": "absent", "duration_s": 0.0}, "60 with no API time"),
        ({"output_tokens": 0}, "60 with no output"),
    ],
    ids=["absent", "no output"],
)
def test_no_usable_call_is_one_line(changes, reason):
    sessions = [with_events(s, lambda _, c: replace(c, **changes)) for s in made_sessions(count=2)]
    with pytest.raises(InputError, match=f"^no usable call in 2 sessions: {reason}$"):
        calibrate_endpoints(sessions)


def test_nothing_is_cached_after_the_lifetime():
    call = RecordedCall(0, 1, "m", 100, 80, 5)
    assert split_prompt(UsableCall(0, 0, 300.0, call), 300.0) == (20, 80)
    assert split_prompt(UsableCall(0, 0, 300.1, call), 300.0) == (100, 0)
    assert split_prompt(UsableCall(0, 0, 1e9, call), None) == (20, 80)


def test_the_written_endpoint_predicts_what_the_fit_predicts(tmp_path):
    """The fit multiplies matrices, the simulator calls EndpointCost: the sigmas show any difference."""
    sessions = made_sessions(noise=0.3)
    calibration = calibrate_endpoints(sessions)
    path = tmp_path / "claude-test-1.yaml"
    path.write_text(endpoint_documents(calibration, "made up")["claude-test-1"], encoding="utf-8")
    fit, check = calibration.models[MODEL], check_endpoints(read_profiles(str(path)), sessions).models[MODEL]
    assert check.endpoint == "claude-test-1"
    assert check.call_sigma == pytest.approx(fit.call_sigma, rel=1e-5)
    assert check.total_ratio == pytest.approx(1, rel=1e-5)
    assert (check.calls, check.sessions, check.lower_bound) == (fit.calls, fit.sessions, False)


def test_the_endpoint_cost_of_a_call_is_the_product_with_the_fitted_costs(tmp_path):
    calibration = calibrate_endpoints(made_sessions())
    path = tmp_path / "e.yaml"
    path.write_text(profile_document(calibration, "made up"), encoding="utf-8")
    cost = compile_endpoint(read_profiles(str(path))["claude-test-1"], Ledger())
    fixed, uncached, cached, output = astuple(calibration.models[MODEL].costs)
    for counts in [(0, 0, 1), (1234, 0, 10), (17, 99_999, 4321)]:
        expected = fixed + counts[0] * uncached + counts[1] * cached + counts[2] * output
        time = cost.call(*counts)
        assert time.prefill_s + time.decode_s == pytest.approx(expected, rel=1e-5)
    assert cost.cache_lifetime_s == 300.0


def test_names_that_differ_only_by_date_keep_it():
    both = [*made_sessions(), *made_sessions(model="claude-test-1-20260101", seed=2)]
    documents = endpoint_documents(calibrate_endpoints(both), "made up")
    assert list(documents) == [MODEL, "claude-test-1-20260101"]
    assert short_name("vendor/big model-20250929") == "vendor-big-model"


def test_the_cache_lifetime_of_a_strange_model_is_marked_as_assumed(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(
        profile_document(calibrate_endpoints(made_sessions(model="other")), "x: #1"), encoding="utf-8"
    )
    endpoint = read_profiles(str(path))["other"]
    assert endpoint.cache_lifetime.basis == "assumed"
    assert endpoint.fixed.source_text == "x: #1"
    assert endpoint.decode_speed.name == "other.decode_speed"


def test_an_endpoint_of_unknown_parts_is_a_lower_bound_and_another_name_is_passed_over():
    lpx = catalog.load(Endpoint, "lpx-aa")
    check = check_endpoints({"m": lpx}, [*made_sessions(count=2, model="m"), *made_sessions(count=2, seed=3)])
    assert check.models["m"].lower_bound
    assert check.models["m"].total_ratio < 0.5
    assert check.models["m"].extrapolated_calls > 0
    assert check.skipped == {MODEL: "no endpoint of this name"}
    assert set(check.to_json()) == {"models", "excluded", "skipped"}


def test_a_profile_file_reports_the_line_of_a_wrong_key(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("endpoints:\n  a:\n    title: x\n    fixd: 3\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"p\.yaml:4: endpoints\.a\.fixd: unknown key"):
        read_profiles(str(path))


def test_lanes_waits_and_oddities_of_a_log(tmp_path):
    path = log(
        tmp_path / "log.jsonl",
        line(),
        line(t_s=12.0, think_s=9.0, api_s=None),
        line(t_s=20.0, think_s=17.0, output_tokens=0),
        line(t_s=21.0, think_s=None, agent="main/agent_001", api_s=4),
    )
    (session,) = open_sessions(path)
    main, helper = session.lanes
    assert [(type(e).__name__, e.start_s, e.duration_s, e.timing) for e in main.events] == [
        ("RecordedCall", 0.0, 2.5, "measured"),
        ("RecordedWait", 3.0, 9.0, "measured"),
        ("RecordedCall", 12.0, 0.0, "absent"),
        ("RecordedWait", 12.0, 8.0, "inferred"),
        ("RecordedCall", 20.0, 2.5, "measured"),
    ]
    assert (helper.name, helper.parent, main.parent, session.system_tokens) == (
        "main/agent_001",
        "main",
        None,
        30,
    )
    assert session.odd == {"no API time": 1, "no output": 1}


def test_overlapping_calls_of_a_lane_are_counted(tmp_path):
    (session,) = open_sessions(log(tmp_path / "log.jsonl", line(api_s=9), line(t_s=4.0), line(t_s=6.0)))
    assert session.odd == {"overlapping calls": 2}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"api_s": "2"}, r'1: requests\[0\]: api_s: "2" found where a number is expected'),
        ({"api_s": True}, "api_s: true found"),
        ({"api_s": -1}, "api_s: -1 found where 0 to"),
        ({"t_s": 10**400}, "t_s: 1000"),
        ({"input_tokens": 1.5}, "input_tokens: 1.5 found where a whole number"),
        ({"cached_tokens": 101}, "more cached_tokens than input_tokens"),
        ({"model": ""}, "model: "),
        ({"agent": "a\nb"}, "agent: "),
    ],
    ids=["text", "boolean", "negative", "huge", "fraction", "cached", "empty name", "name of two lines"],
)
def test_a_wrong_value_is_one_line_with_its_place(tmp_path, changes, message):
    with pytest.raises(ImportFormatError, match=message) as caught:
        list(open_sessions(log(tmp_path / "log.jsonl", line(**changes))))
    assert str(caught.value).startswith(f"{tmp_path}/log.jsonl:1: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ":1: the file is empty"),
        (b"a,b\n1,2\n", ":1: not a log of a known format"),
        (b'{"hello": 1}\n', ":1: not a log of a known format"),
        (b"\x1f\x8bgarbage", ":1: not a log of a known format"),
    ],
    ids=["empty", "csv", "other JSON", "damaged gzip"],
)
def test_a_file_that_is_no_log_is_one_line(tmp_path, content, message):
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(ImportFormatError, match=message):
        open_sessions(str(path))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (b"{bad\n", ":2: not JSON: "),
        (b"[1]\n", ":2: list found where an object"),
        (b"\xff\xfe\n", ":2: not text"),
        (b'{"id": "x"}\n', ":2: 'requests' is missing"),
        (b"[" * 100_000, ":2: not JSON that is read here: nested too deep"),
    ],
    ids=["JSON", "a list", "not UTF-8", "a key missing", "deep"],
)
def test_a_bad_line_comes_after_the_good_ones(tmp_path, second, message):
    path = tmp_path / "log.jsonl"
    log(path, line())
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes() + second)
    sessions = open_sessions(str(path))
    assert next(sessions).name == "one"
    with pytest.raises(ImportFormatError, match=message):
        next(sessions)


def test_a_line_separator_inside_a_text_does_not_end_the_line(tmp_path):
    path = log(tmp_path / "log.jsonl", line())
    text = Path(path).read_text(encoding="utf-8").replace('"one"', '"one", "note": "a\u2028b"')
    Path(path).write_text(text, encoding="utf-8")
    assert [s.name for s in open_sessions(path)] == ["one"]


def test_a_gzip_file_cut_off_is_one_line(tmp_path):
    text = "\n".join(
        json.dumps({"id": f"{i}", "system_tokens": 1, "tool_tokens": i, "requests": [line()]})
        for i in range(500)
    )
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress(text.encode())[:-200])
    with pytest.raises(ImportFormatError, match=r"gz:\d+: the packed file is cut off"):
        list(open_sessions(str(path)))


def test_a_missing_file_and_an_unknown_format_name_the_nearest(tmp_path):
    path = log(tmp_path / "log.jsonl", line())
    with pytest.raises(ImportFormatError, match=r"no such file; did you mean 'log\.jsonl'"):
        open_sessions(str(tmp_path / "log.json"))
    with pytest.raises(UnknownNameError, match="unknown log format 'session'; did you mean 'sessions'"):
        open_sessions(path, "session")


@pytest.mark.skipif(not REAL.exists(), reason="the recorded sessions are not beside the repository")
def test_the_recorded_sessions_are_met_within_a_tenth():
    report = calibrate_endpoints(open_sessions(str(REAL)))
    errors = {short_name(m): (f.median_session_error, f.total_ratio) for m, f in report.models.items()}
    bounds = {"claude-opus-4-5": 0.098, "claude-sonnet-4-5": 0.085, "claude-opus-4-6": 0.097,
              "claude-sonnet-4": 0.068, "claude-haiku-4-5": 0.078, "claude-opus-4-1": 0.11}  # fmt: skip
    assert errors.keys() == bounds.keys()
    assert {name for name, bound in bounds.items() if errors[name][0] > bound} == set()
    assert {name for name, (_, ratio) in errors.items() if abs(ratio - 1) > 0.035} == set()
    assert report.excluded == {"no API time": 2222, "no output": 15, "repeated from a linked session": 2400}


@pytest.mark.skipif(not REAL.exists(), reason="the recorded sessions are not beside the repository")
def test_the_catalog_holds_what_the_fit_finds():
    report = calibrate_endpoints(open_sessions(str(REAL)))
    for model, fit in report.models.items():
        endpoint = catalog.load(Endpoint, short_name(model))
        assert endpoint.fixed.value == pytest.approx(fit.costs.fixed, rel=1e-4)
        assert endpoint.decode_speed.value[0].speed == pytest.approx(1 / fit.costs.per_output_token, rel=1e-4)
