"""Reads a sweep file and checks everything that can be checked before anything runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from agentsim import yaml_file
from agentsim.errors import AgentsimError, InputError, SpecError, WorkflowError
from agentsim.specs import catalog
from agentsim.sweep.columns import DEFAULT, metric_named
from agentsim.sweep.schema import SweepFile
from agentsim.sweep.space import Space, space_of
from agentsim.sweep.work import AXIS, Work, deployment_changes, reference
from agentsim.yaml_file import Document, Path

MAX_POINTS = 1_000_000
MOST_TRIED = 200
"""Points, or values of an axis, that are tried before anything runs."""
MARKS = ("grid", "workflow")
"""Keys that a sweep file has and no other kind of file."""


@dataclass(frozen=True)
class Sweep:
    """A sweep that is ready to run. `definition` is all that its results depend on, as plain data."""

    name: str
    file: str
    work: Work
    metric: str
    definition: dict[str, Any]

    @property
    def space(self) -> Space:
        return self.work.space

    @property
    def task(self) -> str:
        """The name of the workflow."""
        return str(self.work.workflow.data.get("name", ""))


def is_sweep(document: Document) -> bool:
    """Tell a sweep file from those of other kinds."""
    return isinstance(document.data, dict) and any(mark in document.data for mark in MARKS)


def load_sweep(path: str) -> Sweep:
    """Return the sweep of a file. Raises `InputError` with file and line, before anything runs."""
    return sweep_of(yaml_file.read(path))


def sweep_of(document: Document) -> Sweep:
    """Return the sweep that a document describes."""
    if not is_sweep(document):
        raise InputError(f"{document.name}:1: not a sweep: it has neither of {' and '.join(MARKS)}")
    file = yaml_file.validate(SweepFile, document, InputError)
    try:
        json.dumps(document.data, allow_nan=False)
    except ValueError:
        raise InputError(f"{document.name}: .nan and .inf are no values of a sweep") from None
    check = _Checks(document, file)
    work = check.work()
    check.run(work)
    metric = file.metric or DEFAULT
    kept = {key: value for key, value in document.data.items() if key not in _FOR_PEOPLE}
    definition = {**kept, "files": check.files(work)}
    return Sweep(file.name or str(work.workflow.data["name"]), document.name, work, metric, definition)


_FOR_PEOPLE = ("name", "description", "metric")
"""Keys on which no result depends."""


class _Checks:
    """What the schema cannot say: files that must exist, paths that must lead somewhere."""

    def __init__(self, document: Document, file: SweepFile) -> None:
        self.document, self.file = document, file
        self.near = os.path.dirname(document.name)

    def fail(self, path: Path, problem: object) -> InputError:
        return InputError(self.document.at(path) + str(problem).removeprefix("--set "))

    def work(self) -> Work:
        """Return what computes the points, from the files that the sweep names."""
        file = self.file
        several = file.deployment if isinstance(file.deployment, tuple) else ()
        space = space_of(file.grid, file.list, several)
        if space.size > MAX_POINTS:
            raise self.fail(("grid",), f"{space.size:,} points; at most {MAX_POINTS:,} are run")
        if not file.deployment and AXIS not in (*file.grid, *file.list):
            raise self.fail((), "'deployment' is missing: what --on takes, or an axis of that name")
        if file.deployment and AXIS in (*file.grid, *file.list):
            raise self.fail((AXIS,), "stands as an axis, too; keep one of the two")
        one = file.deployment if isinstance(file.deployment, str) else None
        seeds = range(file.seed, file.seed + file.runs)
        try:
            read = yaml_file.read(os.path.join(self.near, file.workflow), WorkflowError)
        except WorkflowError as bad:
            raise self.fail(("workflow",), bad) from None
        workflow = Document(file.workflow, read.data, read.lines)
        return Work(workflow, space, one, file.set, seeds, self.near)

    def run(self, work: Work) -> None:
        """Refuse a path that leads nowhere, a deployment that is none, and values none of which fits.

        Where one whole point fits, all paths do; else each axis is tried alone, to say which is to blame.
        """
        self._paths()
        if self.file.metric:
            try:
                metric_named(self.file.metric)
            except InputError as bad:
                raise self.fail(("metric",), bad) from None
        found = self._deployments()
        size = work.space.size
        for index in range(0, size, -(-size // MOST_TRIED)):
            point = work.space.point(index)
            its = [found[name] for name in [work.deployment_at(point)] if name in found]
            if _problem(work, point, its) is None:
                return
        self._some_fits(("set",) if self.file.set else ("workflow",), [{}], work, found)
        for kind, axes in (("grid", self.file.grid), ("list", self.file.list)):
            for path, values in axes.items():
                if path != AXIS:
                    self._some_fits((kind, path), [{path: value} for value in values], work, found)

    def _paths(self) -> None:
        """Refuse what is no path of a field."""
        for kind, paths in (("set", self.file.set), ("grid", self.file.grid), ("list", self.file.list)):
            for path in paths:
                if "=" in path or not path.isprintable() or not yaml_file.keys_of(path):
                    raise self.fail((kind, path), "is no path; write one such as tools.run_tests.time")
                if kind == "set" and path == AXIS:
                    raise self.fail((kind, path), "write deployment: NAME at the top")

    def _deployments(self) -> dict[str, tuple[str, Document]]:
        """Return short name and document of each deployment, by what `--on` takes."""
        found = {}
        for place, name in self._named():
            if name != catalog.RECORDED:
                taken = reference(name, self.near)
                try:
                    found[taken] = catalog.deployment_document(taken)
                    _check_deployment(found[taken], {})
                except AgentsimError as bad:
                    raise self.fail(place, bad) from None
        return found

    def _named(self) -> Iterator[tuple[Path, str]]:
        """Yield every deployment that is named, and where."""
        if isinstance(self.file.deployment, str):
            yield (AXIS,), self.file.deployment
        for index, name in enumerate(self.file.deployment or ()):
            if isinstance(self.file.deployment, tuple):
                yield (AXIS, index), name
        for kind, axes in (("grid", self.file.grid), ("list", self.file.list)):
            for index, value in enumerate(axes.get(AXIS, ())):
                yield (kind, AXIS, index), str(value)

    def _some_fits(
        self, place: Path, points: list[dict[str, Any]], work: Work, found: dict[str, tuple[str, Document]]
    ) -> None:
        """Raise the first refusal where all of these points are refused on every deployment."""
        problems = [_problem(work, point, list(found.values())) for point in points[:MOST_TRIED]]
        if all(problems):
            raise self.fail(place, problems[0])

    def files(self, work: Work) -> dict[str, str]:
        """Return a digest of everything besides the sweep file that results depend on."""
        from importlib.metadata import version

        found = {f"the workflow {self.file.workflow}": _digest(repr(work.workflow.data).encode())}
        for _, name in self._named():
            if name != catalog.RECORDED:
                _add_files(reference(name, self.near), self.near, found)
        found["what the axes come to"] = _digest(repr(work.space.groups).encode())
        found["the catalog"] = _catalog_digest()
        found["agentsim's version"] = version("agentsim")
        return found


def _problem(
    work: Work, point: dict[str, Any], deployments: list[tuple[str, Document]]
) -> AgentsimError | None:
    """Return why values are refused by the workflow, or by each of the deployments; None where they fit."""
    problems: list[AgentsimError] = []
    try:
        work.changed_workflow(point)
    except AgentsimError as bad:
        return bad
    for found in deployments:
        try:
            _check_deployment(found, {**work.fixed, **point})
        except AgentsimError as bad:
            problems.append(bad)
        else:
            return None
    return problems[0] if problems else None


def _check_deployment(found: tuple[str, Document], point: dict[str, Any]) -> None:
    name, document = found
    changed = catalog.set_by_hand(document, deployment_changes(point))
    kind = catalog.kind_of_document(changed)
    if kind not in ("deployments", "endpoints"):
        raise SpecError(f"{document.name}: a deployment has engines, an endpoint a decode_speed")
    catalog.from_document(catalog.schema_of(kind), changed, name)


def _add_files(name: str, near: str, found: dict[str, str]) -> None:
    """Add the digest of a spec file, and of those that it names; the built-in ones are in the catalog's."""
    path = name.partition("#")[0]
    label = os.path.relpath(path, near or ".")
    if not path.endswith((".yaml", ".yml")) or label in found or not os.path.isfile(path):
        return
    document = yaml_file.read(path, SpecError)
    found[label] = _digest(repr(document.data).encode())
    for text in _texts(document.data):
        if text.endswith((".yaml", ".yml")):
            _add_files(os.path.join(os.path.dirname(path), text), near, found)


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list):
        for item in data.values() if isinstance(data, dict) else data:
            yield from _texts(item)


def _catalog_digest() -> str:
    hashed = blake2b(digest_size=8)
    for kind in catalog.KINDS:
        for name in catalog.names(kind):
            with open(os.path.join(catalog.folder(kind), f"{name}.yaml"), "rb") as file:
                hashed.update(name.encode() + file.read())
    return hashed.hexdigest()


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()
