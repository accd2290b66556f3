"""Places a model on LPUs: how many chips share a layer, which layers share a stage, what fits in SRAM.

A stage is a run of layers on chips as near to one another as their number allows (16 chips: one tray).
A stage's SRAM holds its weights and the KV of its layers, for the users and the context planned for.
Not counted, because their size is unknown: instructions and buffers for activations.

For each width the fewest stages that hold the model are taken: one more stage is one more hop for a token.
Two choices are tried with each: copies of KV heads (`shapes.py`), which save exchanges; and KV of the
layers that see the whole context spread over all stages and, beside them, chips that hold nothing else,
which shortens attention to a long context for two more hops a layer. The caller picks what decodes fastest
at the context planned for; no mapping of a real run is published, and how flat speed is over context
depends on this choice: a figure of flatness holds for the mapping that is chosen, and for no other.
(Gemma 4 31B at 262,144 tokens is near a tie: `compiler.runner_up` gives the other side of it.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from agentsim.backends.lpx.fabric import Fabric, Level, Span
from agentsim.backends.lpx.shapes import Layer, layers_of
from agentsim.specs.model import Shape


@dataclass(frozen=True, slots=True)
class Load:
    """What has to be held: the model, its drafter, and KV for `users` at `context` tokens.

    `drafter_kv` says that the drafter keeps KV of its own, in the last stage, and does not read the
    target's.
    """

    shape: Shape
    drafter: Shape | None
    drafter_kv: bool
    weight_bytes: float
    kv_bytes: float
    users: int
    context: int

    def drafter_layers(self) -> list[Layer]:
        """Return the layers of a drafter that keeps KV of its own; else none."""
        return layers_of(self.drafter, False, 1) if self.drafter and self.drafter_kv else []

    def drafter_bytes(self) -> float:
        """Bytes of the drafter, its own output head included; it looks tokens up in the target's table.

        It is taken in the target's format: the chip has no published peak for the 16 bit it ships in.
        """
        if self.drafter is None:
            return 0.0
        weights = sum(layer.weights for layer in layers_of(self.drafter, False, 1))
        head = self.drafter.vocab * self.drafter.hidden
        return (weights + head + self.drafter.input_projections) * self.weight_bytes


@dataclass(frozen=True, slots=True)
class Mapping:
    """A division, and the hops from stage to stage and back from the last to the first."""

    division: Division
    onward: tuple[tuple[Level, ...], ...]
    back: tuple[Level, ...]

    @property
    def width(self) -> int:
        return self.division.width

    @property
    def stages(self) -> tuple[tuple[Layer, ...], ...]:
        return self.division.stages

    @property
    def kind(self) -> tuple[bool, bool]:
        """Whether KV heads are copied, and whether KV is spread over stages."""
        return self.division.copied, self.division.lenders is not None


@dataclass(frozen=True, slots=True)
class Division:
    """Layers divided among stages of one width.

    `copied`: KV heads are kept by several chips; `lenders`: over how many stages the KV is spread.
    """

    width: int
    copied: bool
    lenders: Span | None
    stages: tuple[tuple[Layer, ...], ...]

    @property
    def lpus(self) -> int:
        """Chips that are used, those that hold KV alone included."""
        return self.width * (self.lenders.size if self.lenders else len(self.stages))

    @property
    def computing(self) -> int:
        """Chips that hold layers; the others of `lpus` hold KV alone and attend to it."""
        return self.width * len(self.stages)


def divisions(
    load: Load,
    fabric: Fabric,
    widths: Sequence[int],
    memory_bytes: float,
    chips: int,
    stages: int | None = None,
) -> Iterator[Division]:
    """Yield, for every width and choice, the fewest stages (or `stages`) that fit on `chips` LPUs."""
    for width in widths:
        plain = layers_of(load.shape, False, width)
        copied = layers_of(load.shape, True, width)
        for layers in (plain, copied) if copied != plain else (plain,):
            for lenders in (None, *fabric.lenders(width)):
                if width * (lenders.size if lenders else 1) > chips:
                    continue
                most = lenders.size if lenders else chips // width
                cut = divide(load, layers, lenders, width * memory_bytes, most, stages)
                if cut is not None:
                    yield Division(width, layers is copied, lenders, _runs(load, layers, cut))


def divide(
    load: Load, layers: Sequence[Layer], lenders: Span | None, room: float, most: int, stages: int | None
) -> list[tuple[int, int]] | None:
    """Return runs of what `_sizes` lists, the fewest that fit `room` bytes (or `stages`); or None."""
    sizes = _sizes(load, layers, lenders is not None)
    if lenders is not None:
        room -= _spread_kv(load, layers) / lenders.size
    fewest = fill_stages(sizes, room)
    if fewest is None or len(fewest) > (stages or most) or (stages or 0) > min(most, len(sizes)):
        return None
    return _even(sizes, room, stages or len(fewest))


def place(division: Division, fabric: Fabric) -> Mapping:
    """Return the division on the chips of a fabric, with the routes between its stages."""
    width, count = division.width, len(division.stages)
    chips = [chip for chip, _ in zip(fabric.stage_chips(width), range(count), strict=False)]
    onward = tuple(fabric.crossing(here, there, width) for here, there in pairwise(chips))
    back = fabric.crossing(chips[-1], chips[0], 1) if count > 1 else ()
    return Mapping(division, onward, back)


def fewest_lpus(
    load: Load, fabric: Fabric, widths: Sequence[int], memory_bytes: float, most: int
) -> int | None:
    """Return the fewest LPUs, up to `most`, on which the load fits in some mapping."""
    found = [division.lpus for division in divisions(load, fabric, widths, memory_bytes, most)]
    return min(found, default=None)


def largest_context(
    load: Load, fabric: Fabric, widths: Sequence[int], memory_bytes: float, chips: int
) -> int | None:
    """Return the longest context, in whole thousands of tokens, whose KV fits; None: not even none."""
    low, high = -1, load.context // 1000 + 1
    while high - low > 1:
        middle = (low + high) // 2
        shorter = replace(load, context=middle * 1000)
        fits = fewest_lpus(shorter, fabric, widths, memory_bytes, chips) is not None
        low, high = (middle, high) if fits else (low, middle)
    return low * 1000 if low >= 0 else None


def kv_needed(load: Load) -> float:
    """Return the KV bytes of the users and the context planned for, each head held once."""
    layers = [*layers_of(load.shape, False, 1), *load.drafter_layers()]
    return sum(_kv(layer, load, False) for layer in layers)


def kv_per_token(layers: Sequence[Layer], kv_bytes: float) -> tuple[float, float]:
    """Return the bytes that one token keeps in layers that see everything, and in windowed ones."""
    sums = [0.0, 0.0]
    for layer in layers:
        held = layer.attention
        sums[held.window is not None] += held.kv_elements * held.held * kv_bytes
    return sums[0], sums[1]


def kv_capacity(load: Load, mapping: Mapping, memory_bytes: float, window: int | None) -> float:
    """Return the KV bytes that all stages hold once the fullest is full.

    Layers of one kind lie in several stages, which fill at different contexts; windows are counted full.
    """
    own, count = load.drafter_layers(), len(mapping.stages)
    whole = [layer for stage in mapping.stages for layer in stage] + own
    full, windowed = kv_per_token(whole, load.kv_bytes)
    kept = windowed * (window or 0) * load.users
    contexts, lenders = [], mapping.division.lenders
    for index, stage in enumerate(mapping.stages):
        held = [*stage, *own] if index == count - 1 else stage
        stage_full, stage_windowed = kv_per_token(held, load.kv_bytes)
        if lenders is not None:
            stage_full = full / lenders.size
        free = mapping.width * memory_bytes - _held(load, stage, index, count)
        if stage_full:
            contexts.append((free - stage_windowed * (window or 0) * load.users) / stage_full)
    return min(contexts) * full + kept if contexts else kept


def _held(load: Load, stage: Sequence[Layer], index: int, count: int) -> float:
    """Bytes of weights in one stage: its layers, the table in the first, head and drafter in the last."""
    held = sum(layer.weights for layer in stage) * load.weight_bytes
    if index == 0:
        held += _table(load)
    return held + (_tail(load) if index == count - 1 else 0.0)


def _table(load: Load) -> float:
    table = 0 if load.shape.tied_embeddings else load.shape.vocab * load.shape.hidden
    return table * load.weight_bytes


def _tail(load: Load) -> float:
    return load.shape.vocab * load.shape.hidden * load.weight_bytes + load.drafter_bytes()


def _sizes(load: Load, layers: Sequence[Layer], spread: bool) -> list[float]:
    """Bytes of the table where it is not tied, of each layer, and of the head and what goes with it.

    KV is included, but for that of layers that see everything where it is `spread`.
    """
    table = [] if load.shape.tied_embeddings else [_table(load)]
    tail = _tail(load) + sum(_kv(layer, load, spread) for layer in load.drafter_layers())
    return [*table, *(layer.weights * load.weight_bytes + _kv(layer, load, spread) for layer in layers), tail]


def _runs(
    load: Load, layers: Sequence[Layer], cut: Sequence[tuple[int, int]]
) -> tuple[tuple[Layer, ...], ...]:
    """Return the layers of each stage; the first may hold the table alone, the last the head."""
    before = 0 if load.shape.tied_embeddings else 1
    return tuple(tuple(layers[max(start - before, 0) : max(end - before, 0)]) for start, end in cut)


def _spread_kv(load: Load, layers: Sequence[Layer]) -> float:
    """KV bytes of all layers that see everything."""
    many = [*layers, *load.drafter_layers()]
    return sum(_kv(layer, load, False) for layer in many if layer.attention.window is None)


def _kv(layer: Layer, load: Load, spread: bool) -> float:
    held = layer.attention
    if spread and held.window is None:
        return 0.0
    seen = load.context if held.window is None else min(load.context, held.window)
    return load.users * seen * held.kv_elements * held.held * load.kv_bytes


def fill_stages(sizes: Sequence[float], room: float) -> list[tuple[int, int]] | None:
    """Fill stage after stage; None where one layer alone is too large."""
    cuts, start, filled = [], 0, 0.0
    for index, size in enumerate(sizes):
        if size > room:
            return None
        if filled + size > room:
            cuts.append((start, index))
            start, filled = index, 0.0
        filled += size
    return [*cuts, (start, len(sizes))]


def _even(sizes: Sequence[float], room: float, stages: int) -> list[tuple[int, int]]:
    """Return exactly `stages` runs whose fullest is as small as it can be. Precondition: they exist."""
    low, high = max(sizes), room
    for _ in range(30):  # to a billionth of the room
        middle = (low + high) / 2
        cut = fill_stages(sizes, middle)
        low, high = (low, middle) if cut and len(cut) <= stages else (middle, high)
    cut = fill_stages(sizes, high) or []
    while len(cut) < stages:
        widest = max(range(len(cut)), key=lambda i: (cut[i][1] - cut[i][0], -i))
        start, end = cut[widest]
        cut[widest : widest + 1] = [(start, (start + end) // 2), ((start + end) // 2, end)]
    return cut
