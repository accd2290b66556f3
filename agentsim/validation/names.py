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
    """Return the catalog's name of a GPU, or None.

    A form factor behind the name must be the catalog's own: a PCIe card has less bandwidth than SXM.
    """
    name, *form = re.split(r"[_\s-]+", named.lower())
    if name not in catalog.names("hardware"):
        return None
    title = load_chip(name).title.lower()
    return name if all(word in title for word in form) else None


_FORMATS = {"nvfp4": "fp4", "mxfp4": "fp4", "fp4": "fp4", "fp8": "fp8", "bf16": "bf16", "int4": "int4"}


def precision_in(named: str) -> str | None:
    """Return the weight format that a checkpoint's name has among its parts, or None."""
    parts = re.split(r"[_-]", named.lower())
    return next((_FORMATS[part] for part in reversed(parts) if part in _FORMATS), None)


@cache
def software_of(engine: str, version: str, gpu: str, kind: str) -> str:
    """Return the software whose profile holds for an engine's version and a class of models.

    A profile with a version in its name (`trtllm-1.1`) holds for that version and those before, for the
    classes that it names; one without for all others. A run without a version is taken as the oldest: what
    is recent says which it is.
    """
    wanted = _numbers(version)
    for profile in _versioned(engine, gpu):
        last = _numbers(profile.software)
        if kind in profile.model_classes and wanted[: len(last)] <= last:
            return profile.software
    return engine


@cache
def _versioned(engine: str, gpu: str) -> tuple[EngineProfile, ...]:
    """Return the profiles of an engine on a GPU that are of one version, the oldest first."""
    names = (n for n in catalog.names("engines") if n.startswith(f"{engine}-") and n.endswith(f"-{gpu}"))
    profiles = [catalog.load(EngineProfile, name) for name in names if name != f"{engine}-{gpu}"]
    return tuple(sorted(profiles, key=lambda p: _numbers(p.software)))


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, such as (1, 2, 0) of 1.2.0rc6; none of a name."""
    found = re.search(r"(?:^|-)(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(part) for part in found.groups() if part is not None) if found else ()
