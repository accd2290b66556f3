"""JSON values of span and trace files, one a line or one over the whole file, and the names in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from sys import intern
from typing import Any

from agentsim.errors import ImportFormatError
from agentsim.importers.base import STRICT_JSON, decoded, joined, lines_of

DAMAGED = "damaged rows left out"
_LONGEST_NAME = 200


def text(value: Any) -> str:
    """Return an identifier or a name, empty where there is none; equal ones share memory."""
    return intern(value[:_LONGEST_NAME]) if type(value) is str else plain_text(value)


def plain_text(value: Any) -> str:
    """Return the same of what stands there once: to share it would take more memory than it saves."""
    if type(value) is str:
        return value[:_LONGEST_NAME]
    if type(value) is int and abs(value) < 10**40:
        return str(value)
    return ""


def json_value(source: str) -> Any:
    """Return what JSON text holds; `ValueError` where it is none, or nested too deep to be read."""
    try:
        return decoded(source, STRICT_JSON)
    except RecursionError:
        raise ValueError("nested too deep") from None


def json_values(
    path: str, odd: Counter[str], decode: Callable[[str], Any] = json_value
) -> Iterator[tuple[int, Any]]:
    """Return (line, value) of JSON lines, or of one JSON value over the whole file.

    Lines that are no JSON are left out and counted in `odd`; where no line is, that is an error.
    `decode` reads a line and raises `ValueError` where it cannot.
    """
    lines = lines_of(path)
    head = [line for line in (next(lines, None), next(lines, None)) if line]
    if len(head) < 2 or any(_is_row(source) for _, source in head):
        return _rows(path, chain(head, lines), odd, decode)
    return iter([(1, _whole(path, chain(head, lines)))])


def _is_row(source: str) -> bool:
    try:
        return bool(json_value(source)) and source.lstrip()[0] in "{["
    except ValueError:
        return False


def _rows(
    path: str, lines: Iterable[tuple[int, str]], odd: Counter[str], decode: Callable[[str], Any]
) -> Iterator[tuple[int, Any]]:
    first_problem, found = "", False
    for number_, source in lines:
        try:
            value = decode(source)
        except ValueError as bad:
            first_problem = first_problem or f"{path}:{number_}: not JSON: {bad}"
            odd[DAMAGED] += 1
        else:
            found = True
            yield number_, value
    if not found:
        raise ImportFormatError(first_problem or f"{path}:1: the file is empty")


def _whole(path: str, lines: Iterable[tuple[int, str]]) -> Any:
    try:
        return json_value(joined(lines, path))
    except ValueError as bad:
        raise ImportFormatError(f"{path}:1: not JSON: {bad}") from None
