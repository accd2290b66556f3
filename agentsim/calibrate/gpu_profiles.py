"""Fitted engine profiles as YAML: the catalog's files with their section `serving` written anew."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import inf
from statistics import NormalDist

from agentsim import yaml_file
from agentsim.calibrate.engine_constants import FIELDS, Key
from agentsim.calibrate.gpu_report import ProfileFit
from agentsim.errors import SpecError
from agentsim.specs import catalog
from agentsim.specs.engine import EngineProfile
from agentsim.specs.law import GpuLaw
from agentsim.specs.sourced import Datum
from agentsim.units import MICROSECOND_S, MILLISECOND_S

END = 1e-3
"""A constant so near to an end of its range is at it."""
_SOURCE = "serving_runs"
_TIMES = ("layer_overhead", "iteration_overhead", "sequence_overhead", "prefill_overhead", "request_overhead")
_POOLED = "fewer than three runs to fit on: as on GPUs of its generation or, where none is, as profiles alike"
_quoted = partial(json.dumps, ensure_ascii=False)


def profile_documents(fits: Sequence[ProfileFit], source: str) -> dict[str, str]:
    """Return the text of every engine profile that was fitted, by name.

    `source` says where the runs are from. What stands in a file outside of `serving` stays as it is.
    """
    files: dict[str, list[ProfileFit]] = {}
    for fit in fits:
        files.setdefault(fit.key.file, []).append(fit)
    return {name: _document(name, parts, source) for name, parts in files.items()}


def _document(name: str, fits: Sequence[ProfileFit], source: str) -> str:
    path = catalog.document("engines", name).name
    with open(path, encoding="utf-8") as file:
        text = file.read()
    text = _without_section(text, "serving")
    text = re.sub(rf"^  {_SOURCE}: .*\n", "", text, flags=re.MULTILINE)
    text = text.replace("sources:\n", f"sources:\n  {_SOURCE}: {_quoted(source)}\n", 1)
    text = text.rstrip("\n") + "\n" + "\n".join(_serving(fits)) + "\n"
    check(text, name)
    return text


def check(text: str, name: str) -> EngineProfile:
    """Return the profile that a text describes. Raises `SpecError` where it is none."""
    return catalog.from_document(EngineProfile, yaml_file.parse(text, name, SpecError), name)


def _without_section(text: str, key: str) -> str:
    """Return a YAML text without a top-level section and the comments directly above it."""
    return re.sub(rf"(^#.*\n)*^{key}:.*\n(?:[ #].*\n|\n)*", "", text, flags=re.MULTILINE)


def _serving(fits: Sequence[ProfileFit]) -> Iterable[str]:
    yield "# Written by `agentsim calibrate gpu`; the section is replaced as a whole."
    yield "serving:"
    for kind in ("dense", "moe"):
        parts = sorted((fit for fit in fits if fit.key.kind == kind), key=lambda fit: fit.key.precision)
        if parts:
            yield f"  {kind}:"
        for fit in parts:
            yield f"    {fit.key.precision}:"
            yield from (f"      {line}" for line in _constants(fit))


def _constants(fit: ProfileFit) -> Iterable[str]:
    priors, origin = _priors(fit.key), _origin(fit)
    for name in FIELDS:
        if name in fit.constants:
            value, prior = fit.constants[name], priors[name]
            span = _spread(fit) if fit.fitted else _range(name, value, prior)
            ends = _at_an_end(name, value, prior) if fit.fitted else ""
            yield _line(name, value, span, f"source: {_SOURCE}, {origin}{ends}")
            origin = _again(fit)
        elif name in fit.held:
            why = f"basis: assumed, why: {_quoted(priors[name].why)}"
            yield _line(name, fit.held[name], _range(name, fit.held[name], priors[name]), why)


def _range(name: str, value: float, prior: Datum[float]) -> str:
    low, high = prior.range or (value, value)
    return f"range: [{_text(name, low)}, {_text(name, high)}]"


def at_an_end(fit: ProfileFit) -> list[str]:
    """Return the names of the fitted constants that lie at an end of the range that was searched."""
    if not fit.fitted:
        return []
    priors = _priors(fit.key)
    return [name for name, value in fit.constants.items() if _at_an_end(name, value, priors[name])]


def _at_an_end(name: str, value: float, prior: Datum[float]) -> str:
    """Return that the runs ask for more than the range allows, where a constant lies at an end of it."""
    low, high = prior.range or (0.0, inf)
    if low * (1 + END) < value < high * (1 - END):
        return ""
    searched = f"{_text(name, low)} to {_text(name, high)}"
    return f', why: "at an end of the range that was searched, {searched}: not determined by the runs"'


def _spread(fit: ProfileFit) -> str:
    """As if all that TPOT is off left out of the fit (or in it, where none was) were in each constant."""
    off = (fit.left_out or fit.errors).tpot
    sigma = off.median / NormalDist().inv_cdf(0.75) if off else 0.0
    return f"spread: {sigma:.2g}"


def _line(name: str, value: float, span: str, origin: str) -> str:
    return f"{name}: {{value: {_text(name, value)}, {span}, {origin}}}"


def _origin(fit: ProfileFit) -> str:
    if not fit.fitted:
        return f"basis: assumed, why: {_quoted(_POOLED)}"
    return f"basis: calibrated, fitted_on: &{_anchor(fit.key)} {_quoted(fit.fitted_on)}"


def _again(fit: ProfileFit) -> str:
    return f"basis: calibrated, fitted_on: *{_anchor(fit.key)}" if fit.fitted else _origin(fit)


def _anchor(key: Key) -> str:
    return f"{key.kind}_{key.precision}"


def _priors(key: Key) -> Mapping[str, Datum[float]]:
    priors = catalog.load(GpuLaw, "gpu-law").priors[key.kind]
    return {name: getattr(priors, name) for name in FIELDS}


def _text(name: str, value: float) -> str:
    if name not in _TIMES:
        return f"{value:.3g}"
    if value < MILLISECOND_S:
        return f"{value / MICROSECOND_S:.3g} us"
    return f"{value / MILLISECOND_S:.3g} ms"
