"""Result files to what a report tells. What each is, its content says; whatever is no result is refused.

Read are: a folder of `run --output-dir`, its summary.json or result.json, the file of `run -o`, and the JSON
that run, compare, observe and sensitivity print.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from agentsim.errors import InputError, suggestion
from agentsim.report.shapes import Comparison, Run, Sensitivity, Sessions, Uncertainty, Verdict
from agentsim.result import SCHEMA, Part, Result
from agentsim.summary import summarise

MAX_BYTES = 256 * 2**20
LONGEST_LANE = 2_000
KNOWN = "run --output-dir, run -o, and the --format json of run, compare, observe, sensitivity"

M = TypeVar("M")
Lone = tuple[Mapping[str, Any], Run]
"""The runs of one deployment, as they were written and checked."""


@dataclass
class Inputs:
    """What the files hold: checked, and as they were written (`raw`). `names` are the paths' last parts."""

    names: list[str] = field(default_factory=list)
    told: dict[str, str] = field(default_factory=dict)
    """The workflow, and the file that names it."""
    runs: list[Run] = field(default_factory=list)
    """Those of a comparison first, its base before all; none twice."""
    verdict: Verdict | None = None
    uncertainty: Uncertainty | None = None
    result: Result | None = None
    sensitivity: Sensitivity | None = None
    sessions: Sessions | None = None
    raw: dict[str, Any] = field(default_factory=lambda: {"runs": []})

    @property
    def workflow(self) -> str:
        """What the report is about."""
        return next(iter(self.told))

    def labels(self) -> list[str]:
        """Return what tells each run from the others: deployment, then overrides, then seeds."""
        labels = [run.deployment for run in self.runs]
        more = (lambda run: ", ".join(run.overrides), _seeds_of, lambda run: run.title)
        for told in more:
            twice = {label for label in labels if labels.count(label) > 1}
            pairs = zip(labels, map(told, self.runs), strict=True)
            labels = [f"{label}, {text}" if label in twice and text else label for label, text in pairs]
        return labels

    def note(self, workflow: str, path: str) -> None:
        """Remember what a file is of. Raises `InputError` where another one is of something else."""
        for other, where in self.told.items():
            if other != workflow:
                raise InputError(
                    f"{path}: of '{workflow}', but {where} of '{other}'; a report tells of one task"
                )
        self.told.setdefault(workflow, path)


def read(paths: Sequence[str]) -> Inputs:
    """Return what files and folders hold, together.

    Raises `InputError`: missing, too large, no JSON, no result, two of a kind of which a report has one, or
    of different workflows.
    """
    inputs, alone, bare = Inputs(), list[Lone](), list[Result]()
    for path in paths:
        for file in _files_of(path):
            _take(inputs, file, alone, bare)
        inputs.names.append(os.path.basename(os.path.abspath(path)))
    for result in bare:
        summary = summarise([result]).to_json()
        alone.append((summary, _checked(Run, json.dumps(summary), result.deployment)))
    for data, run in alone:
        if not any(_covers(other, run) for other in inputs.runs):
            _add_run(inputs, data, run)
    return inputs


def _covers(other: Run, run: Run) -> bool:
    """Tell whether all that a run says is in the figures of another one."""
    same = other.deployment, other.overrides
    last = run.seed + run.runs <= other.seed + other.runs
    return same == (run.deployment, run.overrides) and other.seed <= run.seed and last


def _seeds_of(run: Run) -> str:
    return f"seeds {run.seed}–{run.seed + run.runs - 1}" if run.runs > 1 else f"seed {run.seed}"


def _files_of(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path]
    found = [os.path.join(path, name) for name in ("summary.json", "result.json")]
    found = [file for file in found if os.path.isfile(file)]
    if not found:
        raise InputError(f"{path}: holds no summary.json and no result.json, as run --output-dir writes them")
    return found


def _take(inputs: Inputs, path: str, alone: list[Lone], bare: list[Result]) -> None:
    text = _text(path)
    data = _json(text, path)
    if isinstance(data, list):
        _take_sessions(inputs, data, text, path)
        return
    kind = next((take for fits, take in _KINDS if fits(data)), None) if isinstance(data, dict) else None
    if kind is None:
        raise InputError(f"{path}: JSON, but not a result; a report reads what comes from {KNOWN}")
    kind(_File(inputs, alone, bare, path, text), data)


def _text(path: str) -> str:
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise InputError(f"{path}: not a plain file")
        if os.path.getsize(path) > MAX_BYTES:
            raise InputError(f"{path}: over {MAX_BYTES // 2**20} MiB; none is read")
        with open(path, "rb") as file:
            return file.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not text (UTF-8)") from None
    except FileNotFoundError:
        raise InputError(f"{path}: no such file{_nearest(path)}") from None
    except OSError as bad:
        raise InputError(f"{path}: {(bad.strerror or str(bad)).lower()}") from None


def _nearest(path: str) -> str:
    folder, name = os.path.split(path)
    try:
        return suggestion(name, os.listdir(folder or "."))
    except OSError:
        return ""


def _json(text: str, path: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise InputError(f"{path}: not JSON that is read here: nested too deep") from None
    except ValueError as bad:
        raise InputError(f"{path}: not JSON: {bad}") from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _checked(shape: type[M], text: str, path: str) -> M:
    """Return JSON as a shape says it must be; the first thing that is not so is one `InputError`."""
    try:
        if issubclass(shape, BaseModel):
            return shape.model_validate_json(text)
        return TypeAdapter(shape).validate_json(text, strict=True)
    except ValidationError as bad:
        first = bad.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        what = f"{path}: {place}: " if place else f"{path}: "
        raise InputError(what + first["msg"][:1].lower() + first["msg"][1:]) from None


def _only_one(before: object, path: str, what: str) -> None:
    if before is not None:
        raise InputError(f"{path}: a second file of {what}; a report has one")


def _take_sessions(inputs: Inputs, data: list[Any], text: str, path: str) -> None:
    found = _checked(Sessions, f'{{"sessions": {text}}}', path)
    _only_one(inputs.sessions, path, "observed sessions")
    inputs.sessions, inputs.raw["sessions"] = found, data
    count = len(found.sessions)
    inputs.note(found.sessions[0].session if count == 1 else f"{count} recorded sessions", path)


def _add_run(inputs: Inputs, data: Mapping[str, Any], run: Run) -> None:
    inputs.runs.append(run)
    inputs.raw["runs"].append(data)


@dataclass(slots=True)
class _File:
    """A file, and where what it holds goes."""

    inputs: Inputs
    alone: list[Lone]
    bare: list[Result]
    path: str
    text: str


def _take_run(file: _File, data: dict[str, Any]) -> None:
    run = _checked(Run, file.text, file.path)
    file.inputs.note(run.workflow, file.path)
    file.alone.append((data, run))


def _take_comparison(file: _File, data: dict[str, Any]) -> None:
    inputs, found = file.inputs, _checked(Comparison, file.text, file.path)
    _only_one(inputs.verdict, file.path, "comparisons")
    inputs.verdict, inputs.raw["verdict"] = found.verdict, data["verdict"]
    if found.uncertainty is not None:
        inputs.uncertainty, inputs.raw["uncertainty"] = found.uncertainty, data["uncertainty"]
    for column, run in zip(data["columns"], found.columns, strict=True):
        inputs.note(run.workflow, file.path)
        _add_run(inputs, column, run)


def _take_result(file: _File, data: dict[str, Any]) -> None:
    del data
    result = _checked(Result, file.text, file.path)
    if not result.tasks or any(len(task.parts_ns) != len(Part) for task in result.tasks):
        raise InputError(
            f"{file.path}: tasks: at least one is needed, each with {len(Part)} parts of its time"
        )
    lanes = {turn.lane for turn in result.turns} | {span.lane for span in result.spans}
    if any(len(lane) > LONGEST_LANE for lane in lanes):
        raise InputError(f"{file.path}: a lane's name of over {LONGEST_LANE:,} characters; none is read")
    file.inputs.note(result.workflow, file.path)
    file.bare.append(result)
    if result.turns or result.spans:
        file.inputs.result = file.inputs.result or result


def _take_sensitivity(file: _File, data: dict[str, Any]) -> None:
    found = _checked(Sensitivity, file.text, file.path)
    file.inputs.note(found.workflow, file.path)
    _only_one(file.inputs.sensitivity, file.path, "sensitivities")
    file.inputs.sensitivity, file.inputs.raw["sensitivity"] = found, data


Take = Callable[[_File, dict[str, Any]], None]
_KINDS: tuple[tuple[Callable[[dict[str, Any]], bool], Take], ...] = (
    (lambda data: data.get("schema") == SCHEMA, _take_result),
    (lambda data: "columns" in data and "verdict" in data, _take_comparison),
    (lambda data: "bars" in data and "answer" in data, _take_sensitivity),
    (lambda data: "task_completion_s" in data and "breakdown_s" in data, _take_run),
)
