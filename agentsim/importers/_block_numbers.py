"""Block hashes that are small numbers: batches of rows looked up at once, in an array by number.

A block's entry is the generation in which it was last met; of the generation before it is still known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

MOST = 2**27
"""Numbers from here on are no longer kept in an array: it takes a byte for each that was met."""
_LAST = 255
_DIGITS = b"0123456789, "
_FIRST_SIZE, _GROWTH = 2**16, 4

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def numbers_in(rows: Sequence[str]) -> tuple[Numbers, Numbers] | None:
    """Return the hashes of rows and how many each has; None unless all are whole numbers below `MOST`.

    A number must be written as JSON would: `07` is not the same text as `7`.
    """
    text = ", ".join(rows)
    commas = text.count(",")
    if commas != text.count(", ") or commas != text.count(" ") or ", ," in text:
        return None
    if not text[-1:].isdigit() or text.encode().translate(None, _DIGITS):
        return None
    found = np.fromstring(text, dtype=np.int64, sep=",")
    digits = len(found) + sum(int(np.count_nonzero(found >= 10**k)) for k in range(1, len(str(MOST))))
    if int(found.max()) >= MOST or digits != len(text) - 2 * commas:
        return None
    return found, np.array([row.count(",") + 1 for row in rows])


class NumberedBlocks:
    """The blocks that were met, `most` of them for certain and at most twice as many."""

    __slots__ = ("age", "count", "met", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.met = np.zeros(_FIRST_SIZE, np.uint8)
        self.age, self.count = 2, 0

    def leading_each(self, blocks: Numbers, sizes: Numbers) -> list[int]:
        """Return of each row how many blocks from the first on were met before, row after row."""
        self._make_room(int(blocks.max()) + 1)
        ends, counts, done = np.cumsum(sizes), list[int](), 0
        while len(counts) < len(sizes):
            rows = sizes[len(counts) :]
            counts += self._some(blocks[done:], rows, ends[len(counts) :] - done)
            done = int(ends[len(counts) - 1])
        return counts

    def _some(self, blocks: Numbers, sizes: Numbers, ends: Numbers) -> list[int]:
        """Do the rows up to the one that fills this generation."""
        starts, before = ends - sizes, self.met[blocks]
        known = before >= self.age - 1
        fresh = np.flatnonzero(before != self.age)
        first = _first_places(blocks[fresh], fresh)
        row_starts = np.repeat(starts, sizes)[fresh]
        known[fresh] |= first < row_starts
        rows = self._remember(blocks, fresh[first == fresh], ends)
        unknown = np.append(np.flatnonzero(~known), len(blocks))
        leading = np.minimum(unknown[np.searchsorted(unknown, starts[:rows])] - starts[:rows], sizes[:rows])
        found: list[int] = leading.tolist()
        return found

    def _remember(self, blocks: Numbers, fresh: Numbers, ends: Numbers) -> int:
        """Note the blocks of the rows up to the one that fills this generation; return how many rows."""
        grown = self.count + np.searchsorted(fresh, ends)
        full = int(np.searchsorted(grown, self.most, side="right"))
        if full == len(ends):
            self.met[blocks] = self.age
            self.count = int(grown[-1])
            return full
        self.met[blocks[: ends[full]]] = self.age
        self.count = 0
        self.age += 1
        if self.age == _LAST:
            self._begin_again()
        return full + 1

    def _begin_again(self) -> None:
        """Count the generations from the first again, keeping the one before."""
        self.met[self.met < self.age - 1] = 0
        self.met[self.met == self.age - 1] = 1
        self.age = 2

    def _make_room(self, size: int) -> None:
        if size > len(self.met):
            wanted = len(self.met)
            while wanted < size:
                wanted *= _GROWTH
            larger = np.zeros(wanted, np.uint8)  # takes room only where it is written to
            larger[: len(self.met)] = self.met
            self.met = larger

    def as_texts(self) -> tuple[set[str], set[str]]:
        """Return the blocks of this generation and of the one before as text."""
        young, old = (
            set(map(str, np.flatnonzero(self.met == age).tolist())) for age in (self.age, self.age - 1)
        )
        return young, old


def _first_places(blocks: Numbers, places: Numbers) -> Numbers:
    """Return for each block the first of `places` at which it stands; `places` ascend."""
    if not len(blocks):
        return places
    least = int(blocks.min())
    width = int(blocks.max()) - least + 1
    if width <= 16 * len(blocks) + 4096:
        first = np.empty(width, np.int64)
        first[blocks[::-1] - least] = places[::-1]  # of the same block, the first is written last
        return first[blocks - least]
    order = np.argsort(blocks, kind="stable")
    ordered = blocks[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    runs = np.diff(np.append(begins, len(ordered)))
    found = np.empty_like(places)
    found[order] = np.repeat(places[order[begins]], runs)
    return found
