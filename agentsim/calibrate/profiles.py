"""Fitted endpoints as YAML, and back: one file each, or one file with all of them under `endpoints`."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import astuple
from functools import partial
from textwrap import indent

from agentsim import yaml_file
from agentsim.calibrate.endpoint import cache_lifetime, file_name, short_name
from agentsim.calibrate.report import Calibration, ModelFit
from agentsim.errors import InputError, SpecError
from agentsim.fields import Strict
from agentsim.specs import catalog
from agentsim.specs.endpoint import Endpoint
from agentsim.specs.sourced import MOST_SPREAD, data_of
from agentsim.units import MICROSECOND_S

COMMAND = "agentsim calibrate"
MARK = "# Made by: "
_CACHE_WHY = "a default of coding assistants; the fit counts an older prefix as uncached"
_PARTS = ("fixed", "per_uncached_token", "per_cached_token", "decode_speed")
_quoted = partial(json.dumps, ensure_ascii=False)


class _Profiles(Strict):
    """A file of several endpoints by name."""

    endpoints: dict[str, Endpoint]


def endpoint_documents(calibration: Calibration, source: str, command: str = COMMAND) -> dict[str, str]:
    """Return the YAML text of each fitted endpoint by name: the model's, short where that is unique.

    `source` says where the calls are from, `command` what was typed. Without a cost of output: no document.
    """
    fits = {m: fit for m, fit in calibration.models.items() if fit.costs.per_output_token}
    uses = Counter(map(short_name, fits))
    names = {m: short_name(m) if uses[short_name(m)] == 1 else file_name(m) for m in fits}
    head = f"{MARK}{' '.join(command.split())}\n"
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
    tokens = [f"{cost / MICROSECOND_S:.6g} us/tok" for cost in (uncached, cached)]
    values = (f"{fixed:.6g} s", *tokens, f"{1 / output:.6g} tok/s")
    known = [f"spread: {min(s, MOST_SPREAD):.3g}, " if s is not None else "" for s in astuple(fit.spreads)]
    anchors = (f"&fit {_quoted(_fitted_on(fit))}", *["*fit"] * 3)
    lines = [f"title: {_quoted(f'{model}, fitted on recorded calls')}", "sources:"]
    caching = cache_lifetime()
    lines += [f"  recorded: {_quoted(source)}", f"  caching: {_quoted(caching.source_text)}"]
    for key, value, spread, fitted_on in zip(_PARTS, values, known, anchors, strict=True):
        origin = f"source: recorded, basis: calibrated, {spread}fitted_on: {fitted_on}"
        lines.append(f"{key}: {{value: {value}, {origin}}}")
    why = f"source: caching, basis: assumed, why: {_quoted(_CACHE_WHY)}"
    return "\n".join([*lines, f"cache_lifetime: {{value: {caching.value:.0f} s, {why}}}", ""])


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
