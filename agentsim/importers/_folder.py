"""Every session of a log or a folder of logs, one at a time; what cannot be read is said and passed over."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from agentsim.errors import ImportFormatError
from agentsim.importers._forks import Histories
from agentsim.importers.base import PartAware, importer_of, open_sessions, sessions_of
from agentsim.recorded import RecordedSession

REMEMBERED = 10**6
"""So many sessions are remembered, to tell copies; a folder of more holds traces, not anybody's sessions."""

ELSEWHERE = "a session that another file holds, too"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass
class Walk:
    """What was passed over on the way, by reason, and the places with it; the first file `written` of it."""

    passed_over: dict[str, list[str]] = field(default_factory=dict)
    written: str | None = None

    def pass_over(self, path: str, reason: str) -> None:
        self.passed_over.setdefault(reason, []).append(path)


def sessions_below(
    path: str,
    walk: Walk,
    log_format: str | None = None,
    step: Callable[[], None] = lambda: None,
    keep_text: bool = False,
) -> Iterator[RecordedSession]:
    """Yield the sessions of a file, or of every file below a folder, in the order of their paths.

    A single file that cannot be read raises `ImportFormatError`; one of many is noted in `walk`. Links
    to folders are not followed.
    """
    if not os.path.isdir(path):
        yield from open_sessions(path, log_format, keep_text)
        return
    told: set[int] = set()
    histories = Histories()
    for file in _files(path, walk):
        try:
            yield from _new_ones(file, walk, log_format, told, histories, keep_text)
        except ImportFormatError as bad:
            walk.pass_over(file, _reason(str(bad), file))
        step()


def _new_ones(
    file: str, walk: Walk, log_format: str | None, told: set[int], histories: Histories, keep_text: bool
) -> Iterator[RecordedSession]:
    """Yield the sessions of one of many files that no other file has told already."""
    importer = importer_of(file, log_format)
    if isinstance(importer, PartAware) and importer.main_file_of(file) is not None:
        walk.pass_over(file, "part of another file's session")
        return
    for session in sessions_of(importer, file, keep_text):
        identities = _identities(session)
        if not told.isdisjoint(identities):
            walk.pass_over(file, ELSEWHERE)
            continue
        if len(told) < REMEMBERED:
            told.update(identities)
        own = histories.own_part(session)
        if own is None:
            walk.pass_over(file, ELSEWHERE)
        else:
            yield own


def _identities(session: RecordedSession) -> list[int]:
    """Return what two files that hold the same session share: its id, else a name and all its calls.

    A name alone says little: two runs of a benchmark give their sessions the same ones. Nor does an id
    within a log: a session that was resumed begins with the rows, and so the id, of the one before.
    """
    if _UUID.search(session.name):
        found = [hash((session.format, session.name))]
    else:
        found = [_of_calls(session, session.name)]
    return [*found, _of_calls(session, session.id)] if session.id else found


def _of_calls(session: RecordedSession, name: str) -> int:
    calls = [(c.start_s, c.prompt_tokens, c.cached_tokens, c.output_tokens) for c in session.calls]
    return hash((session.format, name, *calls))


def count_files(path: str) -> int:
    """Return how many files a walk of `path` will look at."""
    return sum(1 for _ in _files(path, Walk())) if os.path.isdir(path) else 1


def _files(folder: str, walk: Walk) -> Iterator[str]:
    for place, folders, names in os.walk(
        folder, onerror=lambda bad: walk.pass_over(str(bad.filename), str(bad.strerror).lower())
    ):
        folders.sort()
        for linked in filter(os.path.islink, (os.path.join(place, name) for name in folders)):
            walk.pass_over(linked, "a link to a folder, not followed")
        for name in sorted(names):
            path = os.path.join(place, name)
            if _is_plain(path):
                yield path
            else:
                walk.pass_over(path, "not a plain file")


def _is_plain(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _reason(message: str, path: str) -> str:
    """Return why a file was passed over, without its place and what differs from file to file."""
    said = re.sub(r"^(:\d+)?: ", "", message.removeprefix(path)).partition("; ")[0]
    known = ("not a log of a known format", "not JSON", "not text")
    return next((reason for reason in known if said.startswith(reason)), said)
