"""The links of a rack: who reaches whom over which hops, and how far memory lies.

Published (Hot Chips 2026, second hand): SRAM-to-SRAM latency of 0.35 us within 8 GB, 0.75 within 64 GB,
1.15 within the rack of 128 GB, and 0.45 more for every two racks. Estimated (SemiAnalysis): the lanes, 4
to each of 15 peers in a tray, 2 to one chip in each other tray, 4 to other racks, 100 Gb/s of data each.
Assumed, because it explains the table: trays are linked all to all within groups of 128 chips, chip i
of a tray to chip i of the others; each tray has a twin in the rack's other group; racks form a chain.
The lane map alone (every tray to every tray) would make the rack two hops wide; the table says three.

So a rack is a product of complete graphs, tray x trays of a group x groups, and every chip sees the same
fabric: a stage of chips can be scheduled once for all of them. The announced packaging (`lp30-announced`,
32 trays of 8) is the same code with other counts; its tray holds 4 GB, so that the row of 8 GB cannot hold.
GroqChip1's nodes share their global links: a chip reaches half of the other nodes itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import product
from typing import Any

from agentsim.backends.lpx.chip import to_ps
from agentsim.errors import InfeasibleError, SpecError
from agentsim.specs.hardware import Chip, Rack
from agentsim.specs.sourced import Datum, Ledger


@dataclass(frozen=True)
class Level:
    """One kind of link, which joins `size` chips that differ in one coordinate.

    `share` > 1: only every `share`-th pair of trays has a link at a given position. `data` are the facts
    that a schedule over this level rests on.
    """

    name: str
    size: int
    hop_ps: int
    bytes_per_s: float
    data: tuple[Datum[Any], ...] = ()
    chain: bool = False
    share: int = 1


@dataclass(frozen=True)
class Span:
    """A level as part of a stage: how many of its chips the stage spreads over."""

    level: Level
    size: int


@dataclass(frozen=True)
class Fabric:
    """Chips numbered by their coordinates: position in the tray first, then tray, group, rack."""

    levels: tuple[Level, ...]

    @property
    def chips(self) -> int:
        return math.prod(level.size for level in self.levels)

    def coordinates(self, chip: int) -> list[int]:
        """Return position, tray, group and rack of a chip."""
        found = []
        for level in self.levels:
            chip, place = divmod(chip, level.size)
            found.append(place)
        return found

    def chip_at(self, coordinates: Sequence[int]) -> int:
        """Return the number of the chip at these coordinates."""
        chip = 0
        for level, place in zip(reversed(self.levels), reversed(coordinates), strict=True):
            chip = chip * level.size + place
        return chip

    def links(self, chip: int) -> Iterator[tuple[int, int]]:
        """Yield (peer, level's index) of every link of a chip."""
        here, stride = self.coordinates(chip), 1
        for index, level in enumerate(self.levels):
            for place in _peers(level, here, index):
                yield chip + (place - here[index]) * stride, index
            stride *= level.size

    def route(self, source: int, target: int) -> tuple[Level, ...]:
        """Return the hops of the shortest route; of equals, the one that takes the longest links first.

        Far links first, because a tensor spread that way crosses the few far links once and is copied
        over the many near ones.
        """
        for _, path, chip in self._nearest(source):
            if chip == target:
                return tuple(self.levels[-step] for step in path)
        raise SpecError(f"no route from chip {source} to chip {target}")

    def distances_ps(self, source: int) -> list[int]:
        """Return the latency of the shortest route from `source` to every chip."""
        found = [0] * self.chips
        for distance, _, chip in self._nearest(source):
            found[chip] = distance
        return found

    def reach_ps(self, centres: Sequence[int], chips: int) -> int:
        """Return the latency within which the best placed of `centres` reaches the first `chips` chips."""
        return min(max(self.distances_ps(centre)[:chips]) for centre in centres)

    def _nearest(self, source: int) -> Iterator[tuple[int, tuple[int, ...], int]]:
        """Yield (distance, path, chip) in order of distance (Dijkstra), ties broken by the path."""
        queue: list[tuple[int, tuple[int, ...], int]] = [(0, (), source)]
        done: set[int] = set()
        while queue:
            distance, path, chip = heappop(queue)
            if chip in done:
                continue
            done.add(chip)
            yield distance, path, chip
            for peer, index in self.links(chip):
                if peer not in done:
                    # Levels count from the far end, so that of equal routes the far link first sorts first.
                    step = (*path, len(self.levels) - index)
                    heappush(queue, (distance + self.levels[index].hop_ps, step, peer))

    def widths(self) -> list[int]:
        """Return the tensor-parallel widths for which all chips of a stage see the same links."""
        tray, group, groups = self.levels[0].size, self.levels[1], self.levels[2]
        found = set(_divisors(tray))
        if group.share == 1:
            found |= {tray * n for n in _divisors(group.size)}
            found |= {tray * group.size * n for n in _divisors(groups.size)}
        return sorted(found)

    def spans(self, width: int) -> tuple[Span, ...]:
        """Return what a stage of `width` chips spreads over, far levels first."""
        found = []
        for level in self.levels:
            size = min(width, level.size)
            width //= size
            if size > 1:
                found.append(Span(level, size))
        return tuple(reversed(found))

    def lenders(self, width: int) -> list[Span]:
        """Return over what a stage can lend work to stages beside it, each chip to its counterparts.

        They differ in one coordinate alone, so that each is one hop away.
        """
        found, mine = [], {span.level.name: span.size for span in self.spans(width)}
        for level in self.levels[:3]:
            for size in _divisors(level.size):
                held = mine.get(level.name, 1)
                theirs = {**mine, level.name: held * size}
                wide = {span.level.name: span.size for span in self.spans(width * size)}
                if size > 1 and level.share == 1 and theirs == wide:
                    found.append(Span(level, size))
        return found

    def stage_chips(self, width: int) -> Iterator[int]:
        """Yield the first chip of each stage, so that neighbours in the pipeline are near.

        A snake through the coordinates (reflected Gray code): from one stage to the next, one coordinate
        changes by one step.
        """
        sizes, steps = [], []
        for level in self.levels:
            steps.append(min(width, level.size))
            sizes.append(level.size // steps[-1])
            width = max(width // level.size, 1)
        for places in _snake(sizes):
            yield self.chip_at([place * step for place, step in zip(places, steps, strict=True)])

    def crossing(self, source: int, target: int, width: int) -> tuple[Level, ...]:
        """Return the hops from each chip of one stage to its counterpart: the slowest of them."""
        # Only where trays share links do the chips of a stage differ: some have none of their own.
        count = min(width, self.levels[0].size) if self.levels[1].share > 1 else 1
        direct = [self._direct(source + i, target + i) for i in range(count)]
        if None in direct:
            far = direct.index(None)
            return self.route(source + far, target + far)
        return direct[0] or ()

    def _direct(self, source: int, target: int) -> tuple[Level, ...] | None:
        return next((((self.levels[i],)) for peer, i in self.links(source) if peer == target), None)


def _peers(level: Level, here: list[int], index: int) -> Iterator[int]:
    place = here[index]
    if level.chain:
        yield from (p for p in (place - 1, place + 1) if 0 <= p < level.size)
    elif level.share == 1:
        yield from (p for p in range(level.size) if p != place)
    else:
        for there in range(level.size):
            apart = abs(there - place)
            around = min(apart, level.size - apart)
            if around and (around + here[0]) % level.share == 0:
                yield there


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _snake(sizes: list[int]) -> Iterator[list[int]]:
    """Yield all coordinates, the first fastest, so that neighbours differ by one step in one of them."""
    for far in product(*(range(size) for size in reversed(sizes))):
        index, places = 0, []
        for place, size in zip(far, reversed(sizes), strict=True):
            places.append(size - 1 - place if index % 2 else place)
            index = index * size + place
        yield places[::-1]


def build_fabric(chip: Chip, racks: int, ledger: Ledger) -> Fabric:
    """Return the fabric of one rack or of several in a chain; notes what any schedule on it needs."""
    rack = chip.rack
    if rack is None or rack.trays is None:
        raise SpecError(f"{chip.title} has no rack: the lpx backend needs its trays, lanes and hops")
    count, trays = ledger.take(rack.chips), ledger.take(rack.trays)
    if not trays or count % trays:
        raise SpecError(f"{chip.title}: {count} chips cannot be divided among {trays} trays")
    tray = count // trays
    group = min(max(ledger.value(rack.chips_in_group or rack.chips) or count, tray), count)
    in_group = group // tray
    peers = ledger.value(rack.peers_between_trays) if rack.peers_between_trays else None
    share = max(1, round((in_group - 1) / peers)) if peers else 1
    groups = (rack.chips_in_group,) if rack.chips_in_group and group < count else ()
    link = partial(_level, rack, ledger, groups)
    levels = (
        link("tray", tray, rack.hop_in_tray, rack.lanes_in_tray),
        link("group", in_group, rack.hop_between_trays, rack.lanes_between_trays, share=share),
        link("rack", count // group, rack.hop_between_groups, rack.lanes_between_groups),
        link("racks", racks, rack.hop_between_racks, rack.lanes_between_racks, chain=True),
    )
    return Fabric(levels)


def _level(
    rack: Rack,
    ledger: Ledger,
    groups: tuple[Datum[int], ...],
    name: str,
    size: int,
    hop: Datum[float] | None,
    lanes: Datum[int] | None,
    *,
    chain: bool = False,
    share: int = 1,
) -> Level:
    if size == 1:  # nothing to link; the level keeps the coordinates alike
        return Level(name, 1, 0, 1.0)
    if hop is None or lanes is None or None in (hop.value, lanes.value):
        raise SpecError(f"the rack's level '{name}' has {size} members, but no hop latency or lanes")
    lane = rack.lane_bandwidth
    if lane is None or lane.value is None:
        raise SpecError("the rack has no lane_bandwidth")
    hop_s, rate = (ledger.value(datum) or 0.0 for datum in (hop, lane))
    count = ledger.value(lanes) or 0
    data: tuple[Datum[Any], ...] = (hop, lanes, lane, *(groups if name in ("group", "rack") else ()))
    return Level(name, size, to_ps(hop_s), count * rate, data, chain, share)


def check_room(chips: int, racks: int, chip: Chip) -> None:
    """Refuse more chips than the racks hold, with the racks that would hold them."""
    assert chip.rack is not None, "build_fabric was called before"
    one = chip.rack.chips.value or 1
    if chips > one * racks:
        raise InfeasibleError(
            f"{chips} LPUs are more than {racks} rack{'s' if racks > 1 else ''} of {chip.title} "
            f"hold{'' if racks > 1 else 's'} ({one * racks}): set racks to {-(-chips // one)}"
        )
