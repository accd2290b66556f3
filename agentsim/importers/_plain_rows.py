"""Rows of a serving trace that hold a time, lengths and block hashes, as published ones do, read in bulk.

Of such rows there are millions. Where every line of some hundred is one, they are taken out of the text at
once; any other lines are read one by one, with the same result.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from agentsim.importers._json_values import DAMAGED, json_values
from agentsim.importers._serving import NUMBERS, json_row, plain_hashes
from agentsim.importers.base import blocks_of, lines_in

_ROW_TEXT = (
    r'\{"timestamp": ?\d{1,15}, ?"input_length": ?(\d{1,8}), ?"output_length": ?(\d{1,8}), ?'
    rf'"hash_ids": ?\[{NUMBERS}(?<=\d)\]\}}'
)
_ROW = re.compile(rf"{_ROW_TEXT}\s*+", re.ASCII)
_ROWS = re.compile(rf"^{_ROW_TEXT}[ \t\r]*+$", re.ASCII | re.MULTILINE)

Plain = tuple[int, int, str]
"""Prompt tokens, output tokens and hashes of a row that holds nothing else but its time."""


class Bulk(NamedTuple):
    """Plain rows that stand one below the other, no line between them, by column."""

    prompts: list[int]
    outputs: list[int]
    hashes: list[str]


def bulk_of(row: Plain) -> Bulk:
    """Return one row as a bulk of its own."""
    return Bulk([row[0]], [row[1]], [row[2]])


def plain_row(source: str) -> Any:
    """Return what a line of JSON holds, a plain row as `Plain`."""
    plain = _ROW.fullmatch(source)
    hashes = None if plain is None else plain_hashes(plain[3])
    if plain is None or hashes is None:
        return json_row(source)
    return int(plain[1]), int(plain[2]), hashes


def bulk_values(path: str, odd: Counter[str]) -> Iterator[tuple[int, Any]]:
    """Yield (line, value) of JSON lines, or of one JSON value over the whole file; of plain rows `Bulk`.

    What is no JSON is counted in `odd`, as `json_values` does.
    """
    blocks = blocks_of(path)
    first = next(blocks, None)
    if first is None or _bulk(first[1]) is None:
        blocks.close()
        yield from json_values(path, odd, plain_row)
        return
    for line, block in chain([first], blocks):
        rows = _bulk(block)
        if rows is None:
            yield from _one_by_one(path, line, block, odd)
        else:
            yield line, rows


def _bulk(block: bytes) -> Bulk | None:
    """Return the rows of whole lines; None where one of them is no plain row."""
    if not block.isascii():
        return None
    found = _ROWS.findall(block.decode("ascii"))
    if not found or len(found) != block.count(b"\n") + (not block.endswith(b"\n")):
        return None
    prompts, outputs, listed = zip(*found, strict=True)
    hashes = plain_hashes("\n".join(listed))
    if hashes is None:
        return None
    return Bulk(list(map(int, prompts)), list(map(int, outputs)), hashes.split("\n"))


def _one_by_one(path: str, line: int, block: bytes, odd: Counter[str]) -> Iterator[tuple[int, Any]]:
    for number, source in lines_in(block, path, line):
        try:
            yield number, plain_row(source)
        except ValueError:
            odd[DAMAGED] += 1
