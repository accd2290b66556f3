"""What the verbs on recorded logs do: observe and import, one session or a folder of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsim import yaml_file
from agentsim.errors import ImportFormatError, InputError, WorkflowError
from agentsim.importers._build import MARK, workflow_document
from agentsim.importers._folder import Walk, count_files, sessions_below
from agentsim.importers._observe import Totals
from agentsim.importers._split import observed_split
from agentsim.recorded import RecordedSession
from agentsim.workflow.load import check_document

STEPS_CHECKED = 5000
"""So many steps are checked at once: as data they take fifty times the room of their text."""

Step = Callable[[], None]


@dataclass(frozen=True)
class Observed:
    """What the sessions at a path come to, what there could not be read, and a workflow that was written."""

    path: str
    total: Totals
    passed_over: Mapping[str, Sequence[str]]
    written: str | None = None


def recorded_at(
    path: str, walk: Walk, log_format: str | None = None, step: Step = lambda: None
) -> Iterator[RecordedSession]:
    """Yield every session of a log or of the folder at `path`.

    `walk` notes what is passed over; `step` is called after each file. Raises `ImportFormatError` where no
    session is.
    """
    session = None
    for session in sessions_below(path, walk, log_format, step):
        yield session
    if session is None:
        why = "; ".join(f"{len(places)} {reason}" for reason, places in walk.passed_over.items())
        raise ImportFormatError(f"{path}: no session in it" + (f" ({why})" if why else ""))


def total_of(path: str, sessions: Iterable[RecordedSession], walk: Walk) -> Observed:
    """Return what sessions come to, one after another."""
    total = Totals()
    for session in sessions:
        total.add(session)
    return Observed(path, total, walk.passed_over, walk.written)


def files_at(path: str) -> int:
    """Return how many files a walk of `path` looks at, for a progress bar."""
    return count_files(path)


@dataclass(frozen=True)
class Imported:
    """A recorded session, the split of its observed time, and the workflow file that was written."""

    session: RecordedSession
    split: Any
    written: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the object that `import --format json` prints; seconds and counts."""
        calls = list(self.session.calls)
        split = {name: getattr(self.split, name) for name in self.split.__slots__}
        return {
            "session": self.session.name,
            "format": self.session.format,
            "observed": split,
            "model_calls": len(calls),
            "sub_agents": len(self.session.lanes) - 1,
            "tokens": {
                "prompt": sum(c.prompt_tokens for c in calls),
                "cached": sum(c.cached_tokens for c in calls),
                "output": sum(c.output_tokens for c in calls),
            },
            "odd": dict(self.session.odd),
            "written": self.written,
        }


def import_session(path: str, output: str | None, log_format: str | None = None) -> Imported:
    """Read the one session of a log; write it as a workflow where `output` says so."""
    from agentsim.exports.base import refuse_foreign

    if output is not None:
        refuse_foreign(output, MARK)
    sessions = sessions_below(path, Walk(), log_format)
    session = next(sessions, None)
    if session is None:
        raise InputError(f"{path}: no session in it")
    if next(sessions, None) is not None:
        raise InputError(f"{path}: holds several sessions; give -o FOLDER/ to write one file for each")
    if output is not None:
        _write(session, output, path)
    return Imported(session, observed_split(session), output)


def import_folder(
    path: str, folder: str, walk: Walk, log_format: str | None = None, step: Step = lambda: None
) -> Iterator[RecordedSession]:
    """Write every session of a log or folder as a workflow of its own into `folder`, and yield it."""
    names: set[str] = set()
    for session in sessions_below(path, walk, log_format, step):
        _make_folder(folder)
        output = os.path.join(folder, f"{_free_name(session.name, names)}.yaml")
        try:
            _write(session, output, path)
        except InputError as bad:
            walk.pass_over(session.name, str(bad).split(": ", 1)[-1])
            continue
        walk.written = walk.written or output
        yield session
    if walk.written is None:
        raise InputError(f"{path}: no session in it that could be written")


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as bad:
        raise InputError(f"{folder}: {(bad.strerror or str(bad)).lower()}") from None


def _write(session: RecordedSession, output: str, log: str) -> None:
    from agentsim.exports.base import refuse_foreign, write_file

    text = workflow_document(session)
    size, most = len(text.encode()) / 2**20, yaml_file.MAX_BYTES / 2**20
    if size > most:
        raise InputError(
            f"{output}: not written: a workflow of {size:.0f} MiB; at most {most:.0f} MiB are read"
        )
    try:
        for part in _parts_of(text):
            check_document(yaml_file.parse(part, output))
    except WorkflowError as bad:
        problem = str(bad).split(": ", 1)[-1]
        raise ImportFormatError(f"{log}:1: cannot be a workflow: {problem}") from None
    refuse_foreign(output, MARK)
    write_file(output, text)


def _parts_of(text: str) -> Iterator[str]:
    """Yield a workflow's text in parts that are workflows, each checked in little room.

    Where background sub-agents tie steps together, the whole is the one part.
    """
    head, mark, steps = text.partition("\nsteps:\n  - ")
    listed = steps.split("\n  - ")
    if "background: true" in text or len(listed) <= STEPS_CHECKED:
        yield text
        return
    for first in range(0, len(listed), STEPS_CHECKED):
        yield head + mark + "\n  - ".join(listed[first : first + STEPS_CHECKED]) + "\n"


def _free_name(name: str, taken: set[str]) -> str:
    """Return a file name for a session that no other of the same import has."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:100] or "session"
    free, number = plain, 1
    while free in taken:
        number += 1
        free = f"{plain}-{number}"
    taken.add(free)
    return free
