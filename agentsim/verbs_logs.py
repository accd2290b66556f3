"""What the verbs on recorded logs do: observe and import, one session or a folder of them."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsim import plugins, yaml_file
from agentsim.errors import ImportFormatError, InputError, OutputError, WorkflowError, suggestion
from agentsim.importers._build import MARK, workflow_document
from agentsim.importers._folder import Walk, count_files, sessions_below
from agentsim.importers._observe import Observation, Totals, observe
from agentsim.importers._readable import is_readable, least_bytes
from agentsim.recorded import RecordedSession
from agentsim.workflow.load import check_document

LARGE_BYTES = 20 * 10**6
_SEAL = "# Checksum of the other lines, to tell edits by: "
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


def steps_at(path: str) -> int:
    """Return what a progress bar counts up to: the bytes of a large file, else the files at `path`."""
    return size_of_large(path) or count_files(path)


def size_of_large(path: str) -> int:
    """Return the bytes of a file that takes more than a moment to read, 0 for any other and for folders."""
    size = os.path.getsize(path) if os.path.isfile(path) else 0
    return size if size > LARGE_BYTES else 0


def log_format_named(name: str) -> str:
    """Return the importer that a log's format is called by, with hyphens or without."""
    known = plugins.names("importers")
    found = name.replace("-", "_")
    if found not in known:
        listed = f"Of the output: table, json. Of logs: {', '.join(known)}"
        raise InputError(f"unknown format '{name}'{suggestion(name, known) or '.'} {listed}")
    return found


@dataclass(frozen=True)
class Reading:
    """How logs are imported: as which format, with their text or without, over edited files or not."""

    log_format: str | None = None
    keep_text: bool = False
    force: bool = False


@dataclass(frozen=True)
class Imported:
    """A recorded session, what it tells of itself, and the workflow file that was written."""

    session: RecordedSession
    seen: Observation
    written: str | None
    text_asked: bool = False

    @property
    def has_text(self) -> bool:
        """Tell whether any of what was said came out of the log."""
        calls = any(call.said or call.text for call in self.session.calls)
        events = (event for lane in self.session.lanes for event in lane.events)
        return calls or any(getattr(event, "text", "") for event in events)

    def to_json(self) -> dict[str, Any]:
        """Return the object that `import --format json` prints; seconds and counts."""
        calls, split = list(self.session.calls), self.seen.split
        return {
            "session": self.session.name,
            "format": self.session.format,
            "observed": {name: getattr(split, name) for name in split.__slots__}
            | {"compaction_s": self.seen.compaction_s},
            "durations": dict(self.seen.durations),
            "text": self.has_text,
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


def import_session(path: str, output: str | None, how: Reading = Reading()) -> Imported:
    """Read the one session of a log; write it as a workflow where `output` says so."""
    if output is not None:
        refuse_edited(output, how.force)
    sessions = sessions_below(path, Walk(), how.log_format, keep_text=how.keep_text)
    session = next(sessions, None)
    if session is None:
        raise InputError(f"{path}: no session in it")
    if next(sessions, None) is not None:
        raise InputError(f"{path}: holds several sessions; give -o FOLDER/ to write one file for each")
    if output is not None:
        _write(session, output, path, how.force)
    return Imported(session, observe(session), output, how.keep_text)


def import_folder(
    path: str, folder: str, walk: Walk, how: Reading = Reading(), step: Step = lambda: None
) -> Iterator[RecordedSession]:
    """Write every session of a log or folder as a workflow of its own into `folder`, and yield it."""
    names: set[str] = set()
    for session in sessions_below(path, walk, how.log_format, step, how.keep_text):
        _make_folder(folder)
        output = os.path.join(folder, f"{_free_name(session.name, names)}.yaml")
        try:
            _write(session, output, path, how.force)
        except (InputError, OutputError) as bad:
            walk.pass_over(session.name, str(bad).split(": ", 1)[-1])
            continue
        walk.written = walk.written or output
        yield session
    if walk.written is None:
        first = next((f" ({names[0]}: {reason})" for reason, names in walk.passed_over.items()), "")
        raise InputError(f"{path}: no session in it that could be written{first}")


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as bad:
        raise InputError(f"{folder}: {(bad.strerror or str(bad)).lower()}") from None


def _write(session: RecordedSession, output: str, log: str, force: bool) -> None:
    from agentsim.exports.base import write_file

    _refuse_large(least_bytes(session), output)
    text = _sealed(workflow_document(session))
    _refuse_large(len(text.encode()), output)
    if not is_readable(session):
        _check(text, output, log)
    refuse_edited(output, force)
    write_file(output, text)


def _refuse_large(size: int, output: str) -> None:
    if size > yaml_file.MAX_BYTES:
        most = yaml_file.MAX_BYTES / 2**20
        raise InputError(
            f"{output}: not written: over {most:.0f} MiB as a workflow, the most that is read; "
            "observe and compare take the log itself"
        )


def _check(text: str, output: str, log: str) -> None:
    try:
        for part in _parts_of(text):
            check_document(yaml_file.parse(part, output))
    except WorkflowError as bad:
        problem = str(bad).split(": ", 1)[-1]
        raise ImportFormatError(f"{log}:1: cannot be a workflow: {problem}") from None


def _sealed(text: str) -> str:
    """Return a workflow with the checksum of all its other lines below the first, to tell edits by."""
    first, _, rest = text.partition("\n")
    return f"{first}\n{_SEAL}{_checksum(first, rest)}\n{rest}"


def _checksum(first: str, rest: str) -> str:
    return f"{zlib.crc32((first + rest).encode()):08x}"


def refuse_edited(path: str, force: bool) -> None:
    """Raise `OutputError` where a file is foreign, or was edited and `force` is not given."""
    from agentsim.exports.base import refuse_foreign

    refuse_foreign(path, MARK)
    if force or not os.path.isfile(path) or not os.path.getsize(path):
        return
    first, _, below = yaml_file.read_text(path, InputError).partition("\n")
    seal, _, rest = below.partition("\n")
    if seal != _SEAL + _checksum(first, rest):
        raise OutputError(f"{path}: was edited since it was imported; --force writes over it")


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
