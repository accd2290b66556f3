"""What an export is, and how files are written: whole or not at all.

An export module exposes `PLUGIN`, an `Export`: a file name, how its files begin, and a function from a
`Result` to the pieces of the file's text.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from agentsim.errors import OutputError
from agentsim.result import Result

BEGINNING = 20
"""A file that stands is the tool's own where its first characters are those of the one to be written."""

Render = Callable[[Result], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Export:
    """One kind of output file.

    `mark` is how each begins, whatever the result: a file that begins so is the tool's own. `in_folder` tells
    whether every output folder has one.
    """

    file_name: str
    mark: str
    render: Render
    in_folder: bool = False


def csv_line(row: Sequence[object]) -> str:
    """Return one line of a CSV file, quoted as RFC 4180 asks."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(row)
    return text.getvalue()


@contextmanager
def output_folder(folder: str) -> Iterator[Callable[[Mapping[str, Iterable[str]]], list[str]]]:
    """Open a folder before the work starts; yield the function that writes the files into it.

    Files appear in the folder only once all are complete. Whatever ends the work early, an error or an
    interrupt, leaves neither partial files nor a folder that was not there before.
    """
    new = _missing_folders(folder)
    staging = _staging(folder)
    try:
        yield lambda files: _write_all(folder, staging, files)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        for made in new:
            if os.path.isdir(made) and not os.listdir(made):
                os.rmdir(made)


def _missing_folders(folder: str) -> list[str]:
    """Return the folders that do not exist yet, the innermost first."""
    missing = []
    while folder and not os.path.exists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


def _staging(folder: str) -> str:
    try:
        os.makedirs(folder, exist_ok=True)
        return tempfile.mkdtemp(prefix=".agentsim-", dir=folder)
    except OSError as bad:
        raise OutputError(f"{folder}: cannot write there ({(bad.strerror or str(bad)).lower()})") from None


def _write_all(folder: str, staging: str, files: Mapping[str, Iterable[str]]) -> list[str]:
    blocked = [name for name in files if os.path.isdir(os.path.join(folder, name))]
    if blocked:
        raise OutputError(f"{os.path.join(folder, blocked[0])}: is a folder; nothing was written")
    try:
        for name, pieces in files.items():
            with open(os.path.join(staging, name), "w", encoding="utf-8", newline="") as file:
                file.writelines(pieces)
        for name in files:
            os.replace(os.path.join(staging, name), os.path.join(folder, name))
    except OSError as bad:
        raise OutputError(f"{folder}: cannot write there ({(bad.strerror or str(bad)).lower()})") from None
    return [os.path.join(folder, name) for name in files]


def write_file(path: str, text: str, mark: str | None = None) -> None:
    """Write one file whole or not at all, through a link and with the rights of the file that stands there.

    Raises `OutputError` where it cannot be written, or stands and is not the tool's own: one that begins
    with `mark`, or as the text does.
    """
    temporary = None
    refuse_foreign(path, text[:BEGINNING] if mark is None else mark)
    try:
        if os.path.isdir(path) or not path:
            raise IsADirectoryError(21, "is a folder" if path else "no name is given")
        target = os.path.realpath(path)
        folder = os.path.dirname(target)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, delete=False) as file:
            temporary = file.name
            file.write(text)
        os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode) if os.path.exists(target) else 0o644)
        os.replace(temporary, target)
        temporary = None
    except OSError as bad:
        raise OutputError(f"{path}: cannot write there ({(bad.strerror or str(bad)).lower()})") from None
    finally:
        if temporary is not None:
            os.unlink(temporary)


def check_target(path: str, mark: str) -> None:
    """Raise `OutputError`, before the work, where `write_file` would raise it after the work."""
    folder = os.path.dirname(os.path.realpath(path))
    if not path or os.path.isdir(path) or not os.path.isdir(folder):
        why = "no name is given" if not path else "is a folder" if os.path.isdir(path) else "no such folder"
        raise OutputError(f"{path}: cannot write there ({why})")
    refuse_foreign(path, mark)


def refuse_foreign(path: str, mark: str) -> None:
    """Raise `OutputError` where a file stands that was not written by agentsim: nothing of others is lost.

    `mark` is how the tool's own files of that kind begin; an empty file is no loss. A device or a pipe is
    no file that could be put in place whole.
    """
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise OutputError(f"{path}: is no plain file")
    try:
        with open(path, "rb") as file:
            head = file.read(len(mark.encode()))
    except OSError:
        return
    if head and head != mark.encode():
        raise OutputError(f"{path}: exists and was not written by this command; choose another name")
