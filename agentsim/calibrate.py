"""Fits what a recorded model's calls cost, judges the fit by sessions left out, writes it as endpoints.

The formula is that of `backends.endpoint`: a fixed time, and times per uncached, cached and written token.

Why so: a call's variance grows with its time, hence quasi-Poisson; a service's stalls are rare and huge,
hence a call counts as at most three times its expectation; a task is a sum of calls, hence the fit's
sum is set to the recorded one. Forked sessions repeat calls: each counts once, linked ones stay together.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import partial
from textwrap import indent
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from agentsim import yaml_file
from agentsim.backends.endpoint import compile_endpoint
from agentsim.errors import InputError, SpecError
from agentsim.fields import Strict
from agentsim.recorded import RecordedCall, RecordedLane, RecordedSession, RecordedWait
from agentsim.specs import catalog
from agentsim.specs.endpoint import Endpoint
from agentsim.specs.sourced import Ledger, data_of

CACHE_LIFETIME_S = 300.0
CACHE_SOURCE = "Anthropic prompt caching documentation: default lifetime 5 minutes"
_CACHE_WHY = '"the default of Anthropic, as the fit took it; not published for this model"'
COMMAND = "agentsim calibrate"
CLIP, ROUNDS, CONVERGED = 3.0, 60, 1e-9
FOLDS, SEEDS, DRAWS = 5, range(5), 20
MIN_CALLS, MIN_SESSIONS, MIN_SESSION_CALLS = 30, 2, 10
_PARTS = ("fixed", "per_uncached_token", "per_cached_token", "decode_speed")
_quoted = partial(json.dumps, ensure_ascii=False)
Array = NDArray[np.float64]
S = TypeVar("S", bound="ModelScore")


@dataclass(frozen=True)
class Costs:
    """Seconds per call and per token; or, as spreads, relative standard deviations (None: cost is 0)."""

    fixed: float | None
    per_uncached_token: float | None
    per_cached_token: float | None
    per_output_token: float | None


@dataclass(frozen=True)
class ModelScore:
    """How predictions meet one model's recorded calls, summed by session.

    Error: the median of |predicted / recorded - 1| over sessions of ten calls and more; ratio: of their
    sums; None where there are none. Sigmas of log(recorded / predicted): of a call inside its session,
    and of the factor that a session shares.
    """

    sessions: int
    calls: int
    judged_sessions: int
    median_session_error: float | None
    total_ratio: float | None
    call_sigma: float
    session_sigma: float


@dataclass(frozen=True)
class ModelFit(ModelScore):
    """A fitted model; error and ratio are those of sessions that their fit had not seen."""

    costs: Costs
    spreads: Costs


@dataclass(frozen=True)
class ProfileScore(ModelScore):
    """An endpoint held against recorded calls; `lower_bound` where a part of its time is unknown."""

    endpoint: str
    lower_bound: bool
    extrapolated_calls: int


@dataclass(frozen=True)
class Report(Generic[S]):
    """Scores by recorded model name; calls that do not count, by reason; models passed over, and why."""

    models: Mapping[str, S]
    excluded: Mapping[str, int]
    skipped: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return plain data; a missing figure is None."""
        return {**vars(self), "models": {name: asdict(score) for name, score in self.models.items()}}


Calibration = Report[ModelFit]
EndpointCheck = Report[ProfileScore]


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
        name = next((n for n in (model, _file_name(model), short_name(model)) if n in profiles), None)
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
    if call.timing == "inferred":
        return "only an inferred API time"
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
    counted = [(1.0, *split_prompt(use, CACHE_LIFETIME_S), use.call.output_tokens) for use in calls]
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


class _Profiles(Strict):
    """A file of several endpoints by name."""

    endpoints: dict[str, Endpoint]


def short_name(model: str) -> str:
    """Return a model's name without the date that ends it, fit to name a file."""
    return _file_name(re.sub(r"-20\d{6}$", "", model))


def _file_name(model: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.") or "model"


def endpoint_documents(calibration: Calibration, source: str, command: str = COMMAND) -> dict[str, str]:
    """Return the YAML text of each fitted endpoint by name: the model's, short where that is unique.

    `source` says where the calls are from, `command` what was typed. Without a cost of output: no document.
    """
    fits = {m: fit for m, fit in calibration.models.items() if fit.costs.per_output_token}
    uses = Counter(map(short_name, fits))
    names = {m: short_name(m) if uses[short_name(m)] == 1 else _file_name(m) for m in fits}
    head = f"# Made by: {' '.join(command.split())}\n"
    return {names[m]: head + _endpoint_text(m, fit, source) for m, fit in fits.items()}


def profile_document(calibration: Calibration, source: str, command: str = COMMAND) -> str:
    """Return the YAML text of one file with every fitted endpoint; `InputError` where there is none."""
    documents = endpoint_documents(calibration, source, command)
    if not documents:
        why = "; ".join(f"{model}: {reason}" for model, reason in calibration.skipped.items())
        raise InputError(f"no endpoint could be fitted: {why or 'output tokens show no cost'}")
    parts = [(name, *text.split("\n", 1)) for name, text in documents.items()]
    entries = [f"  {_quoted(name)}:\n{indent(body, '    ')}" for name, _, body in parts]
    return f"{parts[0][1]}\nendpoints:\n{''.join(entries)}"


def _endpoint_text(model: str, fit: ModelFit, source: str) -> str:
    fixed, uncached, cached, output = (cost or 0.0 for cost in astuple(fit.costs))
    tokens = [f"{cost * 1e6:.6g} us/tok" for cost in (uncached, cached)]
    values = (f"{fixed:.6g} s", *tokens, f"{1 / output:.6g} tok/s")
    known = [f"spread: {s:.3g}, " if s is not None else "" for s in astuple(fit.spreads)]
    anchors = (f"&fit {_quoted(_fitted_on(fit))}", *["*fit"] * 3)
    lines = [f"title: {_quoted(f'{model}, fitted on recorded calls')}", "sources:"]
    lines += [f"  recorded: {_quoted(source)}", f"  caching: {_quoted(CACHE_SOURCE)}"]
    for key, value, spread, fitted_on in zip(_PARTS, values, known, anchors, strict=True):
        origin = f"source: recorded, basis: calibrated, {spread}fitted_on: {fitted_on}"
        lines.append(f"{key}: {{value: {value}, {origin}}}")
    why = "source: caching, basis: datasheet" if "claude" in model else f"basis: assumed, why: {_CACHE_WHY}"
    return "\n".join([*lines, f"cache_lifetime: {{value: {CACHE_LIFETIME_S:.0f} s, {why}}}", ""])


def _fitted_on(fit: ModelFit) -> str:
    text, error = f"{fit.calls:,} calls in {fit.sessions} sessions", fit.median_session_error
    if error is None:
        return f"{text}; none could be left out to judge by"
    judged = f"{fit.judged_sessions} sessions left out in turn: median error {error:.1%}"
    return f"{text}; {judged}, predicted / recorded {fit.total_ratio:.3f}"


def read_profiles(path: str) -> dict[str, Endpoint]:
    """Return the endpoints of a file by name: those under `endpoints`, or the one that it describes."""
    document = yaml_file.read(path, SpecError)
    if not isinstance(document.data, dict) or "endpoints" not in document.data:
        name = os.path.splitext(os.path.basename(path))[0]
        return {name: catalog.from_document(Endpoint, document, name)}
    profiles = yaml_file.validate(_Profiles, document, SpecError).endpoints
    for name, endpoint in profiles.items():
        for place, datum in data_of(endpoint):
            datum.named(".".join((name, *place)), endpoint.sources)
    return profiles
