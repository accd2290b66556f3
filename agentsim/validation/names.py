"""The catalog's names for the models, GPUs and formats that a measurement names."""

from __future__ import annotations

import re
from functools import cache

from agentsim.specs import catalog
from agentsim.specs.engine import EngineProfile
from agentsim.specs.hardware import Chip
from agentsim.specs.model import Model


@cache
def model_of(named: str) -> str | None:
    """Return the catalog's name of a model, or None where it has no such model.

    The owner before the slash does not count. What a checkpoint's name adds after a dash (instruct, fp8)
    does not change the shape. A model may list others of the same shape under `also`.
    """
    name = named.rsplit("/", 1)[-1].lower()
    known = {alias: model for model in catalog.names("models") for alias in (model, *_also(model))}
    fits = [alias for alias in known if name == alias or name.startswith(alias + "-")]
    return known[max(fits, key=len)] if fits else None


@cache
def _also(model: str) -> tuple[str, ...]:
    return catalog.load(Model, model).also


@cache
def load_model(name: str) -> Model:
    """Return a model of the catalog; loaded once a process."""
    return catalog.load(Model, name)


@cache
def load_chip(name: str) -> Chip:
    """Return a chip of the catalog; loaded once a process."""
    return catalog.load(Chip, name)


@cache
def gpu_of(named: str) -> str | None:
    """Return the catalog's name of a GPU, or None; a form factor behind an underscore does not count."""
    known = catalog.names("hardware")
    name = named.lower()
    return next((n for n in (name, name.split("_")[0]) if n in known), None)


def precision_in(named: str) -> str | None:
    """Return the weight format that a checkpoint's name ends in, or None."""
    last = named.lower().rsplit("-", 1)[-1]
    return {"nvfp4": "fp4", "mxfp4": "fp4"}.get(last, last if last in ("fp8", "bf16", "fp4") else None)


@cache
def software_of(engine: str, version: str, gpu: str, kind: str) -> str:
    """Return the software whose profile holds for an engine's version and a class of models.

    A profile with a version in its name (`trtllm-1.1`) holds for that version and those before, for the
    classes that it names; one without for all others. A run without a version is taken as the oldest: what
    is recent says which it is.
    """
    wanted = _numbers(version)
    for profile in _versioned(engine, gpu):
        if kind in profile.model_classes and (not wanted or wanted <= _numbers(profile.software)):
            return profile.software
    return engine


@cache
def _versioned(engine: str, gpu: str) -> tuple[EngineProfile, ...]:
    """Return the profiles of an engine on a GPU that are of one version, the oldest first."""
    names = (n for n in catalog.names("engines") if n.startswith(f"{engine}-") and n.endswith(f"-{gpu}"))
    profiles = [catalog.load(EngineProfile, name) for name in names if name != f"{engine}-{gpu}"]
    return tuple(sorted(profiles, key=lambda p: _numbers(p.software)))


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, such as (1, 2) of 1.2.0rc6; none of a name."""
    found = re.search(r"(?:^|-)(\d+)\.(\d+)", version)
    return tuple(map(int, found.groups())) if found else ()
