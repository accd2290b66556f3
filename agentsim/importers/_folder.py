"""Every session of a log or a folder of logs, one at a time; what cannot be read is said and passed over."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from agentsim.errors import ImportFormatError
from agentsim.importers.base import open_sessions
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
    for file in _files(path, walk):
        try:
            yield from open_sessions(file, log_format)
        except ImportFormatError as bad:
            walk.pass_over(file, _reason(str(bad)))
        step()


def count_files(path: str) -> int:
    """Return how many files a walk of `path` will look at."""
    return sum(1 for _ in _files(path, Walk())) if os.path.isdir(path) else 1


def _files(folder: str, walk: Walk) -> Iterator[str]:
    for place, folders, names in os.walk(
        folder, onerror=lambda bad: walk.pass_over(folder, str(bad.strerror))
    ):
        folders[:] = sorted(name for name in folders if not _is_part_of_a_session(place, name))
        for name in sorted(names):
            path = os.path.join(place, name)
            if _is_plain(path):
                yield path
            else:
                walk.pass_over(path, "not a plain file")


def _is_part_of_a_session(place: str, name: str) -> bool:
    """A folder beside a session's file, of the same name, holds its sub-agents: the file speaks for them."""
    return os.path.isfile(os.path.join(place, f"{name}.jsonl"))


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
