"""Which blocks of a prompt were seen before: a cache of block hashes that remembers so many of them.

What is remembered is the same however it is kept. Published traces number their blocks from 0 on: whole
batches of rows are then looked up at once, in an array. Any other hashes are text in sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentsim.importers._block_numbers import NumberedBlocks

GENERATION = 500_000
"""So many blocks are remembered for certain, and at most twice as many: what is older has left the cache."""
KEPT_CHARS = 16 * 2**20
"""So much text of hashes is kept, to compare the next prompt with."""
SINGLE_ROWS = 1000
"""So many rows may come one by one before an array of numbers is given up: it is for batches."""
_DEPTHS = (8192, 2048, 512, 128)
"""Lengths of beginnings, in characters, that prompts are told by; a short one is faster looked up whole."""
_SHORT = 256


class SeenBlocks:
    """The block hashes seen so far, written `7, 8, 9`; memory is bounded, for old ones are forgotten."""

    __slots__ = ("numbers", "singles", "texts")

    def __init__(self) -> None:
        self.texts = TextBlocks()
        self.numbers: NumberedBlocks | None = None
        self.singles = 0

    def leading(self, hashes: str) -> int:
        """Return how many blocks from the first on were seen before, and remember all of them."""
        if self.numbers is None:
            return self.texts.leading(hashes)
        self.singles += 1
        if self.singles > SINGLE_ROWS:
            self._give_up_numbers()
        return self.leading_each([hashes])[0]

    def leading_each(self, rows: Sequence[str]) -> list[int]:
        """Return the same of several rows, one after another; of a large batch in much less time."""
        from agentsim.importers._block_numbers import NumberedBlocks, numbers_in

        if self.numbers is None and not (self.texts.young or self.texts.old or self.singles):
            self.numbers = NumberedBlocks(GENERATION)
        if self.numbers is not None:
            found = numbers_in(rows)
            if found is not None:
                return self.numbers.leading_each(*found)
            self._give_up_numbers()
        return [self.texts.leading(hashes) for hashes in rows]

    def _give_up_numbers(self) -> None:
        if self.numbers is not None:
            self.texts.young, self.texts.old = self.numbers.as_texts()
            self.numbers, self.singles = None, SINGLE_ROWS


class TextBlocks:
    """Block hashes as text. Most prompts go on with one before.

    `last` holds the latest hashes behind beginnings of several lengths, so that only what follows the
    common part is taken apart. Whatever `last` holds is in `young`.
    """

    __slots__ = ("kept", "last", "old", "young")

    def __init__(self) -> None:
        self.young: set[str] = set()
        self.old: set[str] = set()
        self.last: dict[int, str] = {}
        self.kept = 0

    def leading(self, hashes: str) -> int:
        """Return how many blocks from the first on were seen before, and remember all of them."""
        size, common, last = len(hashes), 0, self.last
        if size < _SHORT:
            return self._look_up(hashes.split(", "))
        for depth in _DEPTHS:
            if depth < size:
                key = hash(hashes[:depth])
                if not common and (before := last.get(key)) is not None:
                    common = _common(before, hashes)
                last[key] = hashes
        self.kept += size
        count = hashes.count(",", 0, common)
        return count + 1 if common == size else count + self._look_up(hashes[common:].split(", "))

    def _look_up(self, blocks: list[str]) -> int:
        young, old = self.young, self.old
        known = (lambda block: block in young or block in old) if old else young.__contains__
        count = len(list(takewhile(known, blocks)))
        young.update(blocks if old else blocks[count:])
        full = len(young) > GENERATION
        if full:
            self.old, self.young = young, set()
        if full or self.kept > KEPT_CHARS:
            self.last, self.kept = {}, 0
        return count


def _common(before: str, hashes: str) -> int:
    """Return up to where `hashes` has the same blocks as `before`: where its next one begins, or its end."""
    size = min(len(before), len(hashes))
    one, other = before[:size].encode(), hashes[:size].encode()
    differing = int.from_bytes(one, "big") ^ int.from_bytes(other, "big")  # far faster than a loop
    same = size - (differing.bit_length() + 7) // 8
    if same == size and (before[size : size + 1] or ",") == "," == (hashes[size : size + 1] or ","):
        return min(size + 2, len(hashes))
    end = hashes.rfind(",", 0, same)
    return end + 2 if end > 0 else 0
