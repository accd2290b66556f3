"""One step of a mapped model: schedules of all its stages put together.

A step of one sequence passes every stage: look-up, layers, hand-overs, output head. With a drafter, the
drafts come first, one by one on the last stage, where head, target state and shared KV lie. Times of
schedules add up exactly (see `programs.py`).

Several sequences, or the tokens of a prompt, are cut into micro-batches that follow one another through
the stages: the first takes the whole way, each other one the time of the slowest stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from agentsim.backends.lpx.chip import Lpu
from agentsim.backends.lpx.fabric import Fabric, Level
from agentsim.backends.lpx.mapping import Load, Mapping
from agentsim.backends.lpx.programs import Stage, entry_schedule, exit_schedule, join_schedule, layer_schedule
from agentsim.backends.lpx.schedule import PARTS, Options, Schedule
from agentsim.backends.lpx.shapes import Layer, layers_of

Parts = dict[str, float]
"""Seconds by what was waited for; keys are `schedule.PARTS`."""
PIECES = tuple(2**n for n in range(7))
"""Numbers of micro-batches that are tried."""


@dataclass(frozen=True)
class Step:
    """A model on its chips, and how its schedules are laid out."""

    load: Load
    mapping: Mapping
    stage: Stage
    drafts: int

    @property
    def rows(self) -> int:
        """Tokens of one sequence that the target works on in a step."""
        return self.drafts + 1

    def forward_ps(self, rows: int, context: float, window: float) -> list[dict[str, int]]:
        """Return the time of each stage, by parts, for `rows` tokens: look-up and layers."""
        stages = []
        for index, layers in enumerate(self.mapping.stages):
            schedules = self._layer_schedules(layers, rows, context, window, self.onward(index))
            if index == 0:
                schedules.append((self.entry(rows), 1))
            stages.append(add(schedules))
        return stages

    def onward(self, index: int) -> tuple[Level, ...]:
        """Return the hops from a stage to the next; none from the last."""
        return self.mapping.onward[index] if index < len(self.mapping.onward) else ()

    def entry(self, rows: int) -> Schedule:
        """Lay out the look-up of `rows` tokens."""
        shape, mapping = self.load.shape, self.mapping
        onward = mapping.onward[0] if not mapping.stages[0] else ()
        return entry_schedule(self.stage, shape.hidden, rows, mapping.back, onward, shape.tied_embeddings)

    def exit(self, rows: int) -> Schedule:
        """Lay out the output head for `rows` tokens."""
        return exit_schedule(self.stage, self.load.shape.hidden, self.load.shape.vocab, rows)

    def draft_schedules(self, rows: int, context: float, window: float) -> list[tuple[Schedule, int]]:
        """Lay out one draft for `rows` sequences: each schedule with how often it occurs."""
        drafter, target = self.load.drafter, self.load.shape
        if drafter is None:
            return []
        layers = layers_of(drafter, self.mapping.division.copied, self.mapping.width)
        found = [(entry_schedule(self.stage, target.hidden, rows, (), (), tied=True), 1)]
        if drafter.input_projections:
            found.append((join_schedule(self.stage, drafter.input_projections, drafter.hidden, rows), 1))
        found += self._layer_schedules(layers, rows, context, window, ())
        found.append((exit_schedule(self.stage, drafter.hidden, drafter.vocab, rows), 1))
        return found

    def draft_ps(self, rows: int, context: float, window: float) -> dict[str, int]:
        """Return the time, by parts, of all drafts of a step."""
        return scaled(add(self.draft_schedules(rows, context, window)), self.drafts)

    def decode_ps(self, users: int, context: float, window: float) -> float:
        """Return the time of a step of `users` sequences of equal context, as mappings are judged."""
        one = self._sequence_ps(context, window)
        if users == 1:
            return one + self.exit(self.rows).makespan_ps
        # The context of each costs what it costs one (see `cost.py`).
        alone = one - self._sequence_ps(0.0, 0.0)
        rows, together = users * self.rows, total(self.draft_ps(users, 0.0, 0.0))
        return total(self.pipelined_ps(rows)) + together + users * alone + self.exit(rows).makespan_ps

    def _sequence_ps(self, context: float, window: float) -> int:
        forward = self.forward_ps(self.rows, context, window)
        return total(sum_parts([*forward, self.draft_ps(1, context, window)]))

    def pipelined_ps(self, rows: int) -> dict[str, int]:
        """Return the time of `rows` tokens without context, in the number of micro-batches that is best.

        A micro-batch is at least the tokens of one sequence.
        """
        stages = len(self.mapping.stages)
        pieces = [n for n in PIECES if n == 1 or (stages > 1 and rows >= n * self.rows)]
        return min((self._pieces_ps(-(-rows // n), n) for n in pieces), key=total)

    def _pieces_ps(self, rows: int, pieces: int) -> dict[str, int]:
        if rows not in self._bare:
            self._bare[rows] = self.forward_ps(rows, 0, 0)
        stages = self._bare[rows]
        slowest = max(stages, key=total)
        return sum_parts([*stages, scaled(slowest, pieces - 1)])

    @cached_property
    def _bare(self) -> dict[int, list[dict[str, int]]]:
        return {}

    def _layer_schedules(
        self, layers: Iterable[Layer], rows: int, context: float, window: float, onward: tuple[Level, ...]
    ) -> list[tuple[Schedule, int]]:
        """Return the schedule of each kind of layer and its number; the last one hands over."""
        layers = list(layers)
        kinds = Counter(layers[:-1] if onward else layers)
        found = [(self.layer(kind, rows, context, window), count) for kind, count in kinds.items()]
        if onward and layers:
            found.append((self.layer(layers[-1], rows, context, window, onward), 1))
        return found

    def layer(
        self, layer: Layer, rows: int, context: float, window: float, onward: tuple[Level, ...] = ()
    ) -> Schedule:
        """Lay out one layer, which hands over by `onward`; each is laid out once."""
        key = (layer, rows, context, window, tuple(level.name for level in onward))
        if key not in self._known:
            self._known[key] = layer_schedule(self.stage, layer, rows, context, window, onward)
        return self._known[key]

    @cached_property
    def _known(self) -> dict[tuple[Layer, int, float, float, tuple[str, ...]], Schedule]:
        return {}


def build_step(load: Load, mapping: Mapping, lpu: Lpu, fabric: Fabric, drafts: int, options: Options) -> Step:
    """Return the step of a mapping."""
    spans, lenders = fabric.spans(mapping.width), mapping.division.lenders
    stage = Stage(lpu, spans, mapping.width, load.weight_bytes, load.kv_bytes, lenders, options)
    return Step(load, mapping, stage, drafts)


def add(schedules: Iterable[tuple[Schedule, int]]) -> dict[str, int]:
    """Return the sum of schedules, each a number of times, by parts."""
    found = dict.fromkeys(PARTS, 0)
    for schedule, count in schedules:
        for part, time in schedule.parts_ps.items():
            found[part] += time * count
    return found


def sum_parts(many: Iterable[dict[str, int]]) -> dict[str, int]:
    """Return the sum, part by part."""
    found = dict.fromkeys(PARTS, 0)
    for parts in many:
        for part, time in parts.items():
            found[part] += time
    return found


def scaled(parts: dict[str, int], factor: int) -> dict[str, int]:
    """Return the parts a number of times."""
    return {part: time * factor for part, time in parts.items()}


def total(parts: dict[str, int]) -> int:
    """Return the whole time of parts (ps)."""
    return sum(parts.values())
