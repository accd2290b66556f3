"""Every session of a log or a folder of logs, one at a time; what cannot be read is said and passed over."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from agentsim.errors import ImportFormatError
from agentsim.importers.base import PartAware, importer_of, open_sessions
from agentsim.recorded import RecordedSession


@dataclass
class Walk:
    """What was passed over on the way, by reason, and the first few places with it."""

    passed_over: dict[str, list[str]] = field(default_factory=dict)

    def pass_over(self, path: str, reason: str) -> None:
        self.passed_over.setdefault(reason, []).append(path)


def sessions_below(
    path: str, walk: Walk, log_format: str | None = None, step: Callable[[], None] = lambda: None
) -> Iterator[RecordedSession]:
    """Yield the sessions of a file, or of every file below a folder, in the order of their paths.

    A single file that cannot be read raises `ImportFormatError`; one of many is noted in `walk`. Links
    to folders are not followed.
    """
    if not os.path.isdir(path):
        yield from open_sessions(path, log_format)
        return
    told: set[tuple[str, str]] = set()
    for file in _files(path, walk):
        try:
            yield from _new_ones(file, walk, log_format, told)
        except ImportFormatError as bad:
            walk.pass_over(file, _reason(str(bad)))
        step()


def _new_ones(
    file: str, walk: Walk, log_format: str | None, told: set[tuple[str, str]]
) -> Iterator[RecordedSession]:
    """Yield the sessions of one of many files that no other file has told already."""
    importer = importer_of(file, log_format)
    if isinstance(importer, PartAware) and importer.main_file_of(file) is not None:
        walk.pass_over(file, "part of another file's session")
        return
    for session in importer.sessions(file):
        if (session.format, session.name) in told:
            walk.pass_over(file, "a session that another file holds, too")
            continue
        told.add((session.format, session.name))
        yield session


def count_files(path: str) -> int:
    """Return how many files a walk of `path` will look at."""
    return sum(1 for _ in _files(path, Walk())) if os.path.isdir(path) else 1


def _files(folder: str, walk: Walk) -> Iterator[str]:
    for place, folders, names in os.walk(
        folder, onerror=lambda bad: walk.pass_over(folder, str(bad.strerror))
    ):
        folders.sort()
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


def _reason(message: str) -> str:
    """Return why a file was passed over, without its place."""
    return (
        "not a log of a known format"
        if "not a log of a known format" in message
        else message.split(": ", 1)[-1]
    )
