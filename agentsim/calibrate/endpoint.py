"""Fits what a recorded model's calls cost, and judges the fit by sessions left out.

The formula is that of `backends.endpoint`: a fixed time, and times per uncached, cached and written token.

Why so: a call's variance grows with its time, hence quasi-Poisson; a service's stalls are rare and huge,
hence a call counts as at most three times its expectation; a task is a sum of calls, hence the fit's
sum is set to the recorded one. Forked sessions repeat calls: each counts once, linked ones stay together.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentsim.backends.endpoint import compile_endpoint
from agentsim.calibrate.report import Calibration, Costs, EndpointCheck, ModelFit, ProfileScore, Report
from agentsim.errors import InputError
from agentsim.recorded import RecordedCall, RecordedLane, RecordedSession, RecordedWait
from agentsim.specs import catalog
from agentsim.specs.endpoint import Endpoint
from agentsim.specs.sourced import Datum, Ledger

CACHE_EXAMPLE = "coding-tool"
"""The endpoint whose cache lifetime is taken for every model: no log says how long a prefix was kept."""
CLIP, ROUNDS, CONVERGED = 3.0, 60, 1e-9
FOLDS, SEEDS, DRAWS = 5, range(5), 20
MIN_CALLS, MIN_SESSIONS, MIN_SESSION_CALLS = 30, 2, 10
Array = NDArray[np.float64]


class UsableCall(NamedTuple):
    """A call with a measured time and an output. `group` joins the sessions that share calls."""

    session: int
    group: int
    idle_s: float
    call: RecordedCall


def calibrate_endpoints(sessions: Iterable[RecordedSession]) -> Calibration:
    """Fit every recorded model that has enough calls. Raises `InputError` where no call is usable."""
    by_model, excluded = usable_calls(sessions)
    too_few = {name: why for name, calls in by_model.items() if (why := _too_few(calls))}
    fits = {name: _model_fit(calls) for name, calls in by_model.items() if name not in too_few}
    return Report(fits, excluded, too_few)


def check_endpoints(profiles: Mapping[str, Endpoint], sessions: Iterable[RecordedSession]) -> EndpointCheck:
    """Hold endpoints against recorded sessions: each for the model of its name, with or without the date."""
    by_model, excluded = usable_calls(sessions)
    scores: dict[str, ProfileScore] = {}
    skipped: dict[str, str] = {}
    for model, calls in by_model.items():
        name = next((n for n in (model, file_name(model), short_name(model)) if n in profiles), None)
        if name is None:
            skipped[model] = "no endpoint of this name"
        elif not any(point.speed for point in profiles[name].decode_speed.value or ()):
            skipped[model] = "its endpoint's decode speed is unknown"
        else:
            scores[model] = _profile_score(name, profiles[name], calls)
    return Report(scores, excluded, skipped)


def usable_calls(sessions: Iterable[RecordedSession]) -> tuple[dict[str, list[UsableCall]], dict[str, int]]:
    """Return each model's usable calls, every one once, and how many others there were, by reason."""
    owners: dict[tuple[Any, ...], int] = {}
    links: list[int] = []
    kept: list[tuple[int, float, RecordedCall]] = []
    excluded: Counter[str] = Counter()
    for index, session in enumerate(sessions):
        links.append(index)
        for idle_s, call in itertools.chain.from_iterable(map(_idle_and_calls, session.lanes)):
            reason = _unusable(call)
            same = (call.model, call.prompt_tokens, call.output_tokens, call.duration_s)
            owner = index if reason else owners.setdefault(same, index)
            if owner != index:
                reason = "repeated from a linked session"
                links[_root(links, index)] = _root(links, owner)
            if reason:
                excluded[reason] += 1
            else:
                kept.append((index, idle_s, call))
    if not kept:
        why = ", ".join(f"{n:,} with {reason}" for reason, n in sorted(excluded.items())) or "no calls"
        raise InputError(f"no usable call in {len(links)} sessions: {why}")
    by_model: dict[str, list[UsableCall]] = {model: [] for model in sorted({call.model for *_, call in kept})}
    for index, idle_s, call in kept:
        by_model[call.model].append(UsableCall(index, _root(links, index), idle_s, call))
    return by_model, dict(excluded)


def _idle_and_calls(lane: RecordedLane) -> Iterator[tuple[float, RecordedCall]]:
    """Yield every call of a lane after the seconds of the wait directly before it."""
    for before, event in itertools.pairwise((None, *lane.events)):
        if isinstance(event, RecordedCall):
            yield before.duration_s if isinstance(before, RecordedWait) else 0.0, event


def _unusable(call: RecordedCall) -> str:
    """Return why a call cannot be fitted on; a time inferred from neighbouring records can."""
    if call.timing == "absent" or call.duration_s <= 0:
        return "no API time"
    return "no output" if call.output_tokens == 0 else ""


def _root(links: list[int], node: int) -> int:
    while links[node] != node:
        node = links[node]
    return node


def _too_few(calls: Sequence[UsableCall]) -> str:
    sessions = len({call.session for call in calls})
    if sessions >= MIN_SESSIONS and len(calls) >= MIN_CALLS:
        return ""
    return f"usable calls: {len(calls)} of {MIN_CALLS} needed; sessions: {sessions} of {MIN_SESSIONS}"


def split_prompt(usable: UsableCall, cache_lifetime_s: float | None) -> tuple[int, int]:
    """Return (uncached, cached) tokens: after an idle time over the cache's lifetime nothing is cached."""
    expired = cache_lifetime_s is not None and usable.idle_s > cache_lifetime_s
    cached = 0 if expired else usable.call.cached_tokens
    return usable.call.prompt_tokens - cached, cached


@dataclass(frozen=True)
class _Table:
    """A model's calls as columns: what is counted (1, uncached, cached, output) and what it took."""

    counted: Array
    seconds: Array
    session: NDArray[np.intp]
    group: Array

    def take(self, rows: Any) -> _Table:
        return _Table(self.counted[rows], self.seconds[rows], self.session[rows], self.group[rows])


def _table(calls: Sequence[UsableCall]) -> _Table:
    lifetime_s = cache_lifetime().value
    counted = [(1.0, *split_prompt(use, lifetime_s), use.call.output_tokens) for use in calls]
    _, session = np.unique([use.session for use in calls], return_inverse=True)
    group, seconds = np.array([(use.group, use.call.duration_s) for use in calls]).T
    return _Table(np.array(counted), seconds, session, group)


def _fitted(table: _Table) -> Array:
    """Return costs >= 0, in seconds per call and token: reweighted rounds to a fixed point, then the sum."""
    seconds, counted = table.seconds, table.counted
    least = 1e-6 * seconds.mean()
    costs = seconds.sum() / np.maximum(counted.sum(axis=0), 1.0) / counted.shape[1]
    for _ in range(ROUNDS):
        expected = np.maximum(counted @ costs, least)
        before, costs = costs, _nonnegative(counted, seconds.clip(expected / CLIP, expected * CLIP), expected)
        if np.allclose(costs, before, rtol=CONVERGED, atol=0):
            break
    return np.asarray(costs * (seconds.sum() / (counted @ costs).sum()))


def _nonnegative(counted: Array, target: Array, variance: Array) -> Array:
    """Return the exact weighted least squares with costs >= 0: all of them, or the best set in use."""
    weighted = counted / variance[:, None]
    gram, moment = counted.T @ weighted, target @ weighted
    scale = np.sqrt(gram.diagonal()) + 1e-12
    gram, moment = gram / np.outer(scale, scale), moment / scale
    unknowns = range(len(scale))
    costs = _solved(gram, moment, list(unknowns))
    if (costs < 0).any():
        sets = itertools.chain.from_iterable(itertools.combinations(unknowns, n) for n in unknowns[1:])
        tried = (_solved(gram, moment, list(used)) for used in sets)
        costs = max((c for c in tried if (c >= 0).all()), key=lambda c: float(moment @ c))
    return np.asarray(costs / scale)


def _solved(gram: Array, moment: Array, used: list[int]) -> Array:
    costs = np.zeros(len(moment))
    costs[used] = np.linalg.lstsq(gram[np.ix_(used, used)], moment[used], rcond=None)[0]
    return costs


def _model_fit(calls: Sequence[UsableCall]) -> ModelFit:
    table = _table(calls)
    costs = _fitted(table)
    grouped = len(np.unique(table.group)) > 1
    unseen = [_left_out_s(table, seed) for seed in SEEDS] if grouped else []
    found, spreads = Costs(*costs.tolist()), _spreads(table, costs)
    return ModelFit(**_scores(table, table.counted @ costs, unseen), costs=found, spreads=spreads)


def _left_out_s(table: _Table, seed: int) -> Array:
    """Return seconds of each call, predicted by a fit that saw no call of its group of sessions."""
    groups = np.random.default_rng(seed).permutation(np.unique(table.group))
    predicted = np.zeros(len(table.seconds))
    for fold in range(min(FOLDS, len(groups))):
        held = np.isin(table.group, groups[fold::FOLDS])
        predicted[held] = table.counted[held] @ _fitted(table.take(~held))
    return predicted


def _scores(table: _Table, predicted: Array, unseen: Sequence[Array]) -> dict[str, Any]:
    """Return the fields of `ModelScore`: sigmas by `predicted`, error and ratio as means over `unseen`."""
    calls = np.bincount(table.session)
    judged = calls >= MIN_SESSION_CALLS if unseen else np.zeros(len(calls), bool)
    found: dict[str, Any] = {"median_session_error": None, "total_ratio": None}
    if judged.any():
        recorded = np.bincount(table.session, table.seconds)[judged]
        expected = np.array([np.bincount(table.session, seconds)[judged] for seconds in unseen])
        errors = np.median(np.abs(expected / recorded - 1), axis=1)
        found["median_session_error"] = float(errors.mean())
        found["total_ratio"] = float(expected.sum(axis=1).mean() / recorded.sum())
    found["call_sigma"], found["session_sigma"] = _sigmas(table, predicted)
    return {"sessions": len(calls), "calls": len(predicted), "judged_sessions": int(judged.sum()), **found}


def _sigmas(table: _Table, predicted: Array) -> tuple[float, float]:
    """Return the spread of log(recorded / predicted) inside sessions, and that of sessions' means."""
    ratio = np.log(table.seconds / np.maximum(predicted, 1e-9))
    calls = np.bincount(table.session)
    means = np.bincount(table.session, ratio) / calls
    call_variance = float(((ratio - means[table.session]) ** 2).sum()) / max(len(ratio) - len(calls), 1)
    judged = calls >= MIN_SESSION_CALLS
    if judged.sum() < 2:
        return math.sqrt(call_variance), 0.0
    noise = float((call_variance / calls[judged]).mean())
    return math.sqrt(call_variance), math.sqrt(max(float(means[judged].var(ddof=1)) - noise, 0.0))


def _spreads(table: _Table, costs: Array) -> Costs:
    """Return each cost's relative standard deviation over bootstrap draws of groups of linked sessions."""
    rows = [np.flatnonzero(table.group == group) for group in np.unique(table.group)]
    picks = np.random.default_rng(0).integers(len(rows), size=(DRAWS, len(rows)))
    drawn = np.array([_fitted(table.take(np.concatenate([rows[i] for i in pick]))) for pick in picks])
    deviations = drawn.std(axis=0, ddof=1).tolist()
    return Costs(*(d / c if c > 0 else None for d, c in zip(deviations, costs.tolist(), strict=True)))


def _profile_score(name: str, endpoint: Endpoint, calls: Sequence[UsableCall]) -> ProfileScore:
    cost = compile_endpoint(endpoint, Ledger())
    times = [cost.call(*split_prompt(use, cost.cache_lifetime_s), use.call.output_tokens) for use in calls]
    predicted = np.array([time.prefill_s + time.decode_s for time in times])
    timed = (endpoint.fixed, endpoint.per_uncached_token, endpoint.per_cached_token)
    unknown = any(datum.basis == "unknown" for datum in timed)
    scores = _scores(_table(calls), predicted, unseen=[predicted])
    extra = sum(time.extrapolated for time in times)
    return ProfileScore(**scores, endpoint=name, lower_bound=unknown, extrapolated_calls=extra)


def short_name(model: str) -> str:
    """Return a model's name without the date that ends it, fit to name a file."""
    return file_name(re.sub(r"-20\d{6}$", "", model))


def file_name(model: str) -> str:
    """Return a model's name, fit to name a file."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.") or "model"


def cache_lifetime() -> Datum[float]:
    """Return the datum that fits and their profiles take for how long an unused prefix stays cached."""
    datum = catalog.load(Endpoint, CACHE_EXAMPLE).cache_lifetime
    assert datum is not None, "the example endpoint has one"
    return datum
