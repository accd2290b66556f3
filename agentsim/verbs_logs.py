"""What the verbs on recorded logs do: observe and import, one session or a folder of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsim import yaml_file
from agentsim.errors import ImportFormatError, InputError
from agentsim.importers._build import MARK, workflow_document
from agentsim.importers._folder import Walk, count_files, sessions_below
from agentsim.importers._observe import Observation, observe
from agentsim.importers._split import observed_split
from agentsim.recorded import RecordedSession
from agentsim.workflow.load import check_document

Step = Callable[[], None]


@dataclass(frozen=True)
class Observed:
    """What the sessions at a path tell of themselves, and what there could not be read."""

    path: str
    sessions: tuple[Observation, ...]
    passed_over: Mapping[str, Sequence[str]]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the list that `observe --format json` prints."""
        return [observation.to_json() for observation in self.sessions]


def observe_logs(path: str, log_format: str | None = None, step: Step = lambda: None) -> Observed:
    """Observe every session of a log or of the folder at `path`; `step` is called after each file."""
    walk = Walk()
    seen = tuple(observe(session) for session in sessions_below(path, walk, log_format, step))
    if not seen:
        why = "; ".join(f"{len(places)} {reason}" for reason, places in walk.passed_over.items())
        raise ImportFormatError(f"{path}: no session in it" + (f" ({why})" if why else ""))
    return Observed(path, seen, walk.passed_over)


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
        _write(session, output)
    return Imported(session, observed_split(session), output)


def import_folder(path: str, folder: str, log_format: str | None, step: Step = lambda: None) -> Observed:
    """Write every session of a log or folder as a workflow of its own into `folder`."""
    walk, seen, names = Walk(), [], set[str]()
    os.makedirs(folder, exist_ok=True)
    for session in sessions_below(path, walk, log_format, step):
        name = _free_name(session.name, names)
        try:
            _write(session, os.path.join(folder, f"{name}.yaml"))
        except InputError as bad:
            walk.pass_over(session.name, str(bad).split(": ", 1)[-1])
            continue
        seen.append(observe(session))
    if not seen:
        raise InputError(f"{path}: no session in it that could be written")
    return Observed(path, tuple(seen), walk.passed_over)


def _write(session: RecordedSession, output: str) -> None:
    from agentsim.exports.base import refuse_foreign, write_file

    text = workflow_document(session)
    check_document(yaml_file.parse(text, output))
    refuse_foreign(output, MARK)
    write_file(output, text)


def _free_name(name: str, taken: set[str]) -> str:
    """Return a file name for a session that no other of the same import has."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:100] or "session"
    free, number = plain, 1
    while free in taken:
        number += 1
        free = f"{plain}-{number}"
    taken.add(free)
    return free
