"""Finds spec files by name and loads them: the built-in catalog, or a path.

A name is a file's name without `.yaml`; a reference that ends in `.yaml` is a path, relative to the
file that refers to it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any, TypeVar

from agentsim import yaml_file
from agentsim.errors import SpecError, suggestion, unknown_name
from agentsim.fields import Strict
from agentsim.specs.sourced import data_of

RECORDED = "recorded"
"""The deployment that replays the durations of a recorded session as they were."""

DEPLOYMENT = "deployment."
"""How an override of a deployment's field begins; the others are of the workflow's."""

KINDS = {
    "hardware": "agentsim.specs.hardware:Chip",
    "models": "agentsim.specs.model:Model",
    "engines": "agentsim.specs.engine:EngineProfile",
    "laws": "agentsim.specs.law:GpuLaw",
    "endpoints": "agentsim.specs.endpoint:Endpoint",
    "deployments": "agentsim.specs.deployment:Deployment",
}
"""Folder and schema of every kind; a schema is imported when its first file is read."""
S = TypeVar("S", bound=Strict)


def schema_of(kind: str) -> type[Strict]:
    """Return the schema of one kind's files."""
    module, _, name = KINDS[kind].partition(":")
    found: type[Strict] = getattr(import_module(module), name)
    return found


def folder(kind: str) -> str:
    """Return the folder of the built-in specs of one kind."""
    return os.path.join(os.path.dirname(__file__), kind)


def names(kind: str) -> list[str]:
    """Return the built-in names of one kind, sorted."""
    return sorted(f.removesuffix(".yaml") for f in os.listdir(folder(kind)) if f.endswith(".yaml"))


def load(kind: type[S], name: str, near: str = "") -> S:
    """Return the spec called `name`, or the one at a path ending in `.yaml` (relative to `near`).

    Raises `UnknownNameError` with the nearest name, or `SpecError` with file and line.
    """
    if name.endswith((".yaml", ".yml")):
        return load_file(kind, os.path.join(near, name), stem(name))
    plural = next(k for k, place in KINDS.items() if place == f"{kind.__module__}:{kind.__name__}")
    path = os.path.join(folder(plural), f"{name}.yaml")
    if not os.path.isfile(path):
        raise unknown_name(_singular(plural), name, names(plural))
    return load_file(kind, path, name)


def load_file(kind: type[S], path: str, name: str) -> S:
    """Return the spec in one file; its data are named `name.field`."""
    return from_document(kind, yaml_file.read(path, SpecError), name)


def from_document(kind: type[S], document: yaml_file.Document, name: str) -> S:
    """Return the spec that a document describes."""
    spec = yaml_file.validate(kind, document, SpecError)
    sources: dict[str, str] = getattr(spec, "sources", {})
    for path, datum in data_of(spec):
        datum.named(".".join((name, *path)), sources, _range_as_written(document.data, path))
    return spec


def _range_as_written(data: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        data = data[int(part)] if isinstance(data, list) else data.get(part, {})
    return data.get("range") if isinstance(data, dict) else None


def document(kind: str, name: str) -> yaml_file.Document:
    """Return the file of a built-in spec. Precondition: `name` is one of `names(kind)`."""
    return yaml_file.read(os.path.join(folder(kind), f"{name}.yaml"), SpecError)


def deployment_document(name: str) -> tuple[str, yaml_file.Document]:
    """Return (short name, document) of what `--on NAME` means: a deployment, an endpoint, or a path.

    `FILE.yaml#NAME` is one endpoint of a file that holds several.
    """
    path, _, entry = name.partition("#")
    if path.endswith((".yaml", ".yml")) or os.sep in path:
        return _entry(yaml_file.read(path, SpecError), stem(path), entry)
    for kind in ("deployments", "endpoints"):
        if name in names(kind):
            return name, document(kind, name)
    raise _unknown_deployment(name)


def _entry(found: yaml_file.Document, stem: str, entry: str) -> tuple[str, yaml_file.Document]:
    """Return the one description that a file holds, or the one that is asked for."""
    several = found.data.get("endpoints") if isinstance(found.data, dict) else None
    if not isinstance(several, dict):
        return stem, found
    if not entry and len(several) == 1:
        entry = next(iter(several))
    if entry not in several:
        known = ", ".join(f"{found.name}#{name}" for name in several)
        raise SpecError(f"{found.name}: holds several endpoints; ask for one of them: {known}")
    lines = {p[2:]: line for p, line in found.lines.items() if p[:2] == ("endpoints", entry)}
    return entry, yaml_file.Document(found.name, several[entry], lines)


def _unknown_deployment(name: str) -> SpecError:
    for kind in KINDS:
        if name in names(kind):
            return SpecError(
                f"'{name}' is not a deployment ({kind}: agentsim show {name}); "
                "'agentsim list deployments' and 'agentsim list endpoints' show what --on takes"
            )
    if name == RECORDED:
        return SpecError(
            "'recorded' replays the durations of an imported session: only run and compare take it"
        )
    known = [*names("deployments"), *names("endpoints"), RECORDED]
    hint = suggestion(name, known) or "."
    return SpecError(f"unknown deployment '{name}'{hint} 'agentsim list deployments' shows those there are")


_MARKS = {
    "engines": "deployments",
    "decode_speed": "endpoints",
    "memory_bandwidth": "hardware",
    "shape": "models",
    "kv_read_efficiency": "engines",
    "roof_exponent": "laws",
}
"""A key that only files of that kind have."""


def kind_of_document(found: yaml_file.Document) -> str | None:
    """Tell what a file describes by the keys it has; None where no spec has any of them."""
    keys = found.data if isinstance(found.data, dict) else {}
    return next((kind for mark, kind in _MARKS.items() if mark in keys), None)


_CLAIMS = ("range", "spread", "fitted_on")


def set_by_hand(found: yaml_file.Document, overrides: Sequence[str]) -> yaml_file.Document:
    """Return the document with `a.b=value` applied; a datum that it changes is assumed from then on."""
    found = yaml_file.with_overrides(found, overrides, SpecError, DEPLOYMENT)
    for override in overrides:
        data = found.data
        for key in yaml_file.keys_of(override.partition("=")[0]):
            if isinstance(data, dict) and "basis" in data:
                data.update(basis="assumed", why="set on the command line", source="")
                if key in _CLAIMS:
                    raise SpecError(f"--set {override}: what is set by hand has no {key}; set its value")
                for claim in _CLAIMS:
                    data.pop(claim, None)
            data = (
                data[str(key)]
                if isinstance(data, dict)
                else data[int(key)]
                if isinstance(data, list)
                else None
            )
    return found


def find(name: str) -> tuple[str, yaml_file.Document]:
    """Return (kind, document) of a spec by name, or of a file by path."""
    if name.partition("#")[0].endswith((".yaml", ".yml")):
        _, found = deployment_document(name)
        kind = kind_of_document(found)
        if kind is None:
            raise SpecError(f"{name}: not a spec file: it has none of {', '.join(_MARKS)}")
        return kind, found
    for kind in KINDS:
        if name in names(kind):
            return kind, document(kind, name)
    raise unknown_name("name", name, [n for kind in KINDS for n in names(kind)])


def _singular(kind: str) -> str:
    return kind.removesuffix("s")


def stem(path: str) -> str:
    """Return the name that a file is called by, such as `zeus` of `chips/zeus.yaml`."""
    return os.path.splitext(os.path.basename(path))[0]
