"""Finds spec files by name and loads them: the built-in catalog, or a path.

A name is a file's name without `.yaml`; a reference that ends in `.yaml` is a path, relative to the
file that refers to it.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TypeVar

from agentsim import yaml_file
from agentsim.errors import SpecError, suggestion, unknown_name
from agentsim.fields import Strict
from agentsim.specs.sourced import data_of

KINDS = {
    "hardware": "agentsim.specs.hardware:Chip",
    "models": "agentsim.specs.model:Model",
    "engines": "agentsim.specs.engine:EngineProfile",
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
        return load_file(kind, os.path.join(near, name), _stem(name))
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
        datum.named(".".join((name, *path)), sources)
    return spec


def document(kind: str, name: str) -> yaml_file.Document:
    """Return the file of a built-in spec. Precondition: `name` is one of `names(kind)`."""
    return yaml_file.read(os.path.join(folder(kind), f"{name}.yaml"), SpecError)


def deployment_document(name: str) -> tuple[str, yaml_file.Document]:
    """Return (short name, document) of what `--on NAME` means: a deployment, an endpoint, or a path."""
    if name.endswith((".yaml", ".yml")) or os.sep in name:
        return _stem(name), yaml_file.read(name, SpecError)
    for kind in ("deployments", "endpoints"):
        path = os.path.join(folder(kind), f"{name}.yaml")
        if os.path.isfile(path):
            return name, yaml_file.read(path, SpecError)
    raise _unknown_deployment(name)


def _unknown_deployment(name: str) -> SpecError:
    known = [*names("deployments"), *names("endpoints")]
    hint = suggestion(name, known) or "."
    return SpecError(f"unknown deployment '{name}'{hint} 'agentsim list deployments' shows all {len(known)}")


def is_endpoint(document: yaml_file.Document) -> bool:
    """Tell an endpoint file from a deployment file by what it describes."""
    return isinstance(document.data, dict) and "engines" not in document.data


def kind_of(name: str) -> str:
    """Return the first kind that has a spec of this name."""
    for kind in KINDS:
        if name in names(kind):
            return kind
    raise unknown_name("name", name, [n for kind in KINDS for n in names(kind)])


def _singular(kind: str) -> str:
    return kind.removesuffix("s")


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]
