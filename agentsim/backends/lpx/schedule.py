"""A static schedule: operations and transfers placed on units and links at exact times, before the run.

The compiler knows every duration, so that nothing is arbitrated: an operation starts at the picosecond
at which its operands have arrived and its unit is free, in program order. Tensors are lists of blocks of
320-byte vectors, each with the moment it is there. For one token a block is one vector; for more tokens at
once it is a run of vectors, in which the slices of several tokens are packed.

All chips of a stage do the same at the same time, since each sees the same links (see `fabric.py`). One
chip is laid out and stands for all: its ports of one level carry equal traffic, and what its peers send
arrives when what it sends itself arrives there. The laws of such a schedule are in `laws.py`.

Overlap, which is what determinism allows: a result leaves the moment it is computed, and a consumer
starts with the first vector that arrived. `Options` turns that off, or adds a start-up to each transfer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agentsim.backends.lpx.chip import to_ps
from agentsim.backends.lpx.fabric import Level, Span

PARTS = ("compute", "sram", "first_bit", "serialisation", "idle", "overhead")
"""Where time on the critical path goes; `first_bit` is the latency of hops, `overhead` start-ups."""
START = -1
"""The event before all: the operands that are there at time 0."""


class Options(NamedTuple):
    """What the compiler may do: overlap by vectors, and the start-up (ps) that every transfer pays."""

    overlap: bool = True
    transfer_start_ps: int = 0


COMPILED = Options()
"""What the hardware is for."""


class Ready(NamedTuple):
    """`blocks` blocks, each of `vectors`, that are there at `time`.

    `part` names the lag behind the event that made them. Where it stands for several blocks, `others` are
    those that it joins: what consumes it needs them all.
    """

    time: int
    event: int = START
    part: str = "idle"
    blocks: int = 1
    vectors: int = 1
    others: tuple[Ready, ...] = ()

    def producers(self) -> set[int]:
        """Return the events that made all that this stands for."""
        found, queue, seen = {self.event}, list(self.others), set[int]()
        while queue:
            block = queue.pop()
            if id(block) not in seen:
                seen.add(id(block))
                found.add(block.event)
                queue += block.others
        return found - {START}


class Slice(NamedTuple):
    """One chip's part of a tensor: its blocks, and the vectors of each."""

    blocks: int
    vectors: int


class Event(NamedTuple):
    """Something that occupies a unit from `start` to `end` (ps).

    `needs` is the last operand that it waited for, `after` the event that kept its unit busy until
    `start`, if that was later. `sram_ps` is how long it reads SRAM, from its start. A transfer names the
    `senders` that do it at once, the `ports` of each, and the vectors that cross one port. `operands` are
    all that it consumes, and what it makes is there `lag_ps` after its end: for the laws, which trust no
    other time.
    """

    unit: str
    start: int
    end: int
    part: str
    label: str
    needs: Ready
    after: int
    sram_ps: int = 0
    senders: int = 0
    ports: int = 0
    vectors: int = 0
    operands: tuple[Ready, ...] = ()
    lag_ps: int = 0

    def consumed(self) -> set[int]:
        """Return the events whose results this one consumes."""
        return set[int]().union(*(block.producers() for block in self.operands))


class Work(NamedTuple):
    """What an operation takes of its unit and of SRAM, and the latency of its last result (ps)."""

    unit_ps: int
    sram_ps: int
    lag_ps: int


class Schedule(NamedTuple):
    """A finished layout. `parts_ps` follows the critical path and sums to `makespan_ps`.

    `received_vectors` is reckoned from the sizes of tensors, not from the transfers. `results` are what
    the schedule is for.
    """

    events: tuple[Event, ...]
    makespan_ps: int
    parts_ps: dict[str, int]
    received_vectors: int
    results: tuple[Ready, ...] = ()


class Timeline:
    """Places events; units are held in program order, each by one event at a time."""

    def __init__(self, vector_bytes: float, rows: int, chips: int, options: Options) -> None:
        self.rows, self._chips = rows, chips
        self._vector_bytes, self._options = vector_bytes, options
        self.events: list[Event] = []
        self._last: dict[str, int] = {}
        self._received = 0

    def finish(self, tensor: Sequence[Ready]) -> Schedule:
        """Return the schedule that ends when `tensor` is complete."""
        last = _latest(tensor)
        parts = _critical_parts(self.events, last)
        return Schedule(tuple(self.events), last.time, parts, self._received, tuple(tensor))

    def stream(self, unit: str, tensor: Sequence[Ready], work: Work, label: str) -> list[Ready]:
        """Work through a tensor block by block, in the order of arrival; each block gives one block."""
        tensor, total = self._arrivals(tensor), _count(tensor)
        found, done = [], 0
        for block in tensor:
            share = _share(work, done, done + block.blocks, total)
            done += block.blocks
            event = self._place(unit, block, share, label, (block,))
            found.append(
                Ready(self.events[event].end + work.lag_ps, event, "compute", block.blocks, block.vectors)
            )
        return found

    def contract(self, tensor: Sequence[Ready], result: Slice, work: Work, label: str) -> list[Ready]:
        """Multiply a replicated tensor by this chip's slice of a matrix.

        A result needs all operands. So all that has arrived is multiplied at once, again and again, and
        the last such part result by result, each of which may leave before the next is computed.
        """
        tensor, total, done = self._arrivals(tensor), _count(tensor), 0
        operands = list(tensor)
        free = self._free("matrix")
        while tensor:
            begin = max(free, tensor[0].time)
            here = [block for block in tensor if block.time <= begin]
            tensor = tensor[len(here) :]
            upto = done + _count(here)
            share = _share(work, done, upto, total)
            if not tensor:
                return self._results(here[-1], result, share, label, tuple(operands))
            event = self._place("matrix", here[-1], share, label, tuple(here), lags=False)
            free = self.events[event].end
            operands.append(Ready(free, event))
            done = upto
        raise ValueError("a product needs at least one operand")

    def gather(self, spans: Sequence[Span], own: Sequence[Ready], label: str) -> list[Ready]:
        """Give every chip of a stage the slices of all: each vector is sent on when it is there.

        Over the far links goes the own slice alone; what came over them is copied over the nearer ones,
        so that every slice reaches every chip once, on a shortest route.
        """
        if not spans:
            return list(own)
        queue = self._started(self._arrivals(own), label)
        for span in spans:
            arrived = [
                self._send(span.level, block._replace(blocks=1), span.size - 1, self._chips, label)
                for block in queue
                for _ in range(block.blocks)
            ]
            queue = sorted([*queue, *arrived])
        self._received += _vectors(own) * (_members(spans) - 1) * self._chips
        return queue

    def spread(self, spans: Sequence[Span], own: Sequence[Ready], label: str) -> list[Ready]:
        """Give every chip of a stage what one chip holds; the slowest chip's arrival is returned."""
        if not spans:
            return list(own)
        tensor, holders = self._started(self._arrivals(own), label), 1
        for span in spans:
            tensor = [
                self._send(span.level, b, span.size - 1, holders, label)._replace(blocks=b.blocks)
                for b in tensor
            ]
            self._received += _vectors(own) * (span.size - 1) * holders
            holders *= span.size
        return tensor

    def pass_on(self, hops: Sequence[Level], own: Sequence[Ready], senders: int, label: str) -> list[Ready]:
        """Send a tensor along a route, vector by vector, from each of `senders` to its counterpart."""
        if not hops:
            return list(own)
        tensor = self._started(self._arrivals(own), label)
        for hop in hops:
            tensor = [self._send(hop, block, 1, senders, label) for block in tensor]
            self._received += _vectors(own) * senders
        return tensor

    def lend(self, span: Span, own: Sequence[Ready], label: str) -> list[Ready]:
        """Send the same from each chip to all its counterparts in the stages beside its own."""
        tensor = self._started(self._arrivals(own), label)
        found = [
            self._send(span.level, b, span.size - 1, self._chips, label)._replace(blocks=b.blocks)
            for b in tensor
        ]
        self._received += _vectors(own) * (span.size - 1) * self._chips
        return found

    def collect(self, span: Span, theirs: Sequence[Ready], label: str) -> list[Ready]:
        """Bring back what each counterpart made of it, over a link of its own."""
        tensor = self._started(self._arrivals(theirs), label)
        found = [self._send(span.level, b, 1, self._chips * (span.size - 1), label) for b in tensor]
        self._received += _vectors(theirs) * (span.size - 1) * self._chips
        return found

    def exchange(self, spans: Sequence[Span], own: Sequence[Ready], each: Slice, label: str) -> list[Ready]:
        """Give every chip its own part, `each`, of what the others hold: all to all."""
        start = self._started([joined(own)._replace(vectors=each.vectors)], label)[0]
        members, beyond = _members(spans), 1
        arrived = [start._replace(blocks=each.blocks)]
        held = [start]
        for span in spans:
            # A vector for a chip beyond this level crosses it once, at its place in the others.
            blocks = each.blocks * members // span.size
            sent = [
                self._send(span.level, held[-1], span.size - 1, self._chips, label) for _ in range(blocks)
            ]
            self._received += blocks * each.vectors * (span.size - 1) * self._chips
            held = [joined(sent)]
            arrived.append(joined(sent)._replace(blocks=each.blocks * (span.size - 1) * beyond))
            beyond *= span.size
        return sorted(arrived)

    def _results(
        self, last: Ready, result: Slice, work: Work, label: str, operands: tuple[Ready, ...]
    ) -> list[Ready]:
        found = []
        for index in range(result.blocks):
            share = _share(work, index, index + 1, result.blocks)
            event = self._place("matrix", last, share, label, operands)
            end = self.events[event].end + work.lag_ps
            found.append(Ready(end, event, "compute", 1, result.vectors))
        return self._whole(found)

    def _send(self, level: Level, block: Ready, ports: int, senders: int, label: str) -> Ready:
        """Send one block over the ports of a level; return when it is in the receivers' SRAM."""
        vectors = block.blocks * block.vectors
        duration = to_ps(vectors * self._vector_bytes / level.bytes_per_s)
        traffic, hop = (senders, ports, vectors), level.hop_ps
        event = self._occupy(
            f"{level.name} links", block, duration, "serialisation", label, traffic, (block,), hop
        )
        return Ready(self.events[event].end + hop, event, "first_bit", block.blocks * ports, block.vectors)

    def _started(self, tensor: list[Ready], label: str) -> list[Ready]:
        """Put the start-up of a transfer, where there is one, before its first vector."""
        start = self._options.transfer_start_ps
        if not start:
            return tensor
        event = self._occupy("start-up", tensor[0], start, "overhead", label, operands=(tensor[0],))
        begun = Ready(self.events[event].end, event, "overhead")
        return [
            joined([begun, block])._replace(blocks=block.blocks, vectors=block.vectors) for block in tensor
        ]

    def _place(
        self, unit: str, block: Ready, work: Work, label: str, operands: tuple[Ready, ...], lags: bool = True
    ) -> int:
        duration = max(work.unit_ps, work.sram_ps)
        part = "sram" if work.sram_ps > work.unit_ps else "compute"
        lag = work.lag_ps if lags else 0
        return self._occupy(unit, block, duration, part, label, (0, 0, 0), operands, lag, work.sram_ps)

    def _occupy(
        self,
        unit: str,
        needs: Ready,
        duration: int,
        part: str,
        label: str,
        traffic: tuple[int, int, int] = (0, 0, 0),
        operands: tuple[Ready, ...] = (),
        lag_ps: int = 0,
        sram_ps: int = 0,
    ) -> int:
        free, after = self._free(unit), START
        start = needs.time
        if free > start:
            start, after = free, self._last[unit]
        end = start + duration
        self.events.append(
            Event(unit, start, end, part, label, needs, after, sram_ps, *traffic, operands, lag_ps)
        )
        self._last[unit] = len(self.events) - 1
        return self._last[unit]

    def _free(self, unit: str) -> int:
        last = self._last.get(unit, START)
        return 0 if last == START else self.events[last].end

    def _arrivals(self, tensor: Iterable[Ready]) -> list[Ready]:
        return self._whole(sorted(tensor))

    def _whole(self, tensor: list[Ready]) -> list[Ready]:
        """Without overlap a tensor is there when its last vector is."""
        if self._options.overlap:
            return tensor
        whole = joined(tensor)
        return [whole._replace(blocks=block.blocks, vectors=block.vectors) for block in tensor]


def _share(work: Work, start: int, end: int, total: int) -> Work:
    """Return the work on vectors `start` to `end` of `total`, so that all shares sum exactly."""
    unit = work.unit_ps * end // total - work.unit_ps * start // total
    sram = work.sram_ps * end // total - work.sram_ps * start // total
    return Work(unit, sram, work.lag_ps)


def _critical_parts(events: Sequence[Event], last: Ready) -> dict[str, int]:
    """Walk back from the last arrival; every picosecond goes to what was waited for then."""
    parts = dict.fromkeys(PARTS, 0)
    ready = last
    while ready.event != START:
        event = events[ready.event]
        parts[ready.part] += ready.time - event.end
        parts[event.part] += event.end - event.start
        ready = Ready(event.start, event.after) if event.after != START else event.needs
    parts["idle"] += ready.time
    return parts


def _members(spans: Sequence[Span]) -> int:
    members = 1
    for span in spans:
        members *= span.size
    return members


def _count(tensor: Iterable[Ready]) -> int:
    return sum(block.blocks for block in tensor)


def _vectors(tensor: Iterable[Ready]) -> int:
    return sum(block.blocks * block.vectors for block in tensor)


def _time(block: Ready) -> int:
    return block.time


def joined(tensor: Sequence[Ready]) -> Ready:
    """Return one block that is there when the whole tensor is, and stands for all of it."""
    last = _latest(tensor)
    return last._replace(blocks=1, others=tuple(tensor) if len(tensor) > 1 else last.others)


def _latest(tensor: Sequence[Ready]) -> Ready:
    return max(tensor, key=_time)
