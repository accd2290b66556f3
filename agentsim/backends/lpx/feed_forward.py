"""The feed-forward half of a model alone on LPUs, for an engine elsewhere that does the attention.

SRAM holds the MLPs or all experts, and no KV. A layer's input is taken to be in every chip of its stage
when the link to the other engine delivers it; the layer has two exchanges, inner and output, and one more
where there is a router. Nothing passes from stage to stage, since every layer's result goes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentsim.backends.base import EngineParts
from agentsim.backends.lpx.chip import Lpu, build_lpu, to_s
from agentsim.backends.lpx.compiler import MOST_RACKS, check_width, note_levels
from agentsim.backends.lpx.cost import Curve, counts_to, curve_through
from agentsim.backends.lpx.fabric import Fabric, build_fabric, check_room
from agentsim.backends.lpx.mapping import fill_stages
from agentsim.backends.lpx.programs import Stage, feed_forward_schedule
from agentsim.backends.lpx.shapes import Layer, layers_of
from agentsim.backends.lpx.step import Parts, add
from agentsim.errors import InfeasibleError
from agentsim.specs.deployment import Engine
from agentsim.specs.hardware import WEIGHT_BYTES
from agentsim.specs.sourced import Ledger
from agentsim.units import bytes_text


@dataclass(frozen=True, slots=True)
class FeedForwardCost:
    """All layers' MLPs one after another, by the tokens that pass together."""

    passes: Curve
    most_tokens: int
    weight_bytes: float
    tensor_parallel: int
    pipeline_stages: int

    @property
    def lpus(self) -> int:
        return self.tensor_parallel * self.pipeline_stages

    def pass_s(self, tokens: int) -> float:
        """Return the seconds of one pass of `tokens`, at least one, through all layers."""
        return self.passes.at(tokens)

    def parts(self, tokens: int) -> Parts:
        """Return where a pass's time goes; the values sum to `pass_s`."""
        return self.passes.parts_at(tokens)


@dataclass(frozen=True)
class _Site:
    """The chips, the layers, and the bytes of each layer."""

    lpu: Lpu
    fabric: Fabric
    layers: Sequence[Layer]
    sizes: Sequence[float]
    engine: Engine

    def stages(self, width: int) -> int | None:
        """Return the fewest stages of a width that hold all layers (or those asked for), or None."""
        cut = fill_stages(self.sizes, width * self.lpu.memory_bytes)
        asked = self.engine.pipeline_stages
        if cut is None or (asked is not None and len(cut) > asked):
            return None
        return asked or len(cut)

    def mappings(self, chips: int) -> Iterator[tuple[int, int]]:
        """Yield (width, stages) of all that fits on `chips` LPUs."""
        asked = self.engine.tensor_parallel
        for width in [asked] if asked else self.fabric.widths():
            stages = self.stages(width)
            if stages is not None and width * stages <= chips:
                yield width, stages

    def stage(self, width: int) -> Stage:
        return Stage(
            self.lpu, self.fabric.spans(width), width, WEIGHT_BYTES[self.engine.precision.weights], 0.0
        )

    def times(self, width: int, tokens: int) -> Parts:
        """Return the time of all layers for `tokens`, by parts."""
        stage = self.stage(width)
        kinds = Counter((layer.hidden, layer.feed_forward) for layer in self.layers)
        sums = add(
            (feed_forward_schedule(stage, hidden, mlp, tokens), count)
            for (hidden, mlp), count in kinds.items()
        )
        return {part: to_s(time) for part, time in sums.items()}


def compile_feed_forward(parts: EngineParts) -> FeedForwardCost:
    """Return the time of the MLPs on the mapping that is fastest for the sequences planned for.

    Raises `InfeasibleError` with what would fit, `SpecError` for a chip that is no LPU.
    """
    site, ledger = _site(parts), parts.ledger
    found = sorted(site.mappings(parts.engine.chips), key=lambda mapping: mapping[0] * mapping[1])
    if not found:
        raise InfeasibleError(_what_fits(site, parts.model.title))
    planned = max(parts.engine.users, 1)
    width, stages = min(found, key=lambda mapping: sum(site.times(mapping[0], planned).values()))
    assert parts.chip.lpu is not None, "checked when the chip's units were built"
    most = ledger.take(parts.chip.lpu.batched_tokens)
    note_levels((span.level for span in site.fabric.spans(width)), ledger)
    return FeedForwardCost(
        passes=curve_through({tokens: site.times(width, tokens) for tokens in counts_to(1, most)}),
        most_tokens=most,
        weight_bytes=sum(site.sizes),
        tensor_parallel=width,
        pipeline_stages=stages,
    )


def _site(parts: EngineParts) -> _Site:
    engine, ledger = parts.engine, parts.ledger
    lpu = build_lpu(parts.chip, engine.precision.weights, Ledger())
    _note_units(parts)
    fabric = build_fabric(parts.chip, engine.racks, ledger)
    check_room(engine.chips, engine.racks, parts.chip)
    check_width(engine, fabric)
    layers = layers_of(ledger.take(parts.model.shape), False, 1)
    size = WEIGHT_BYTES[engine.precision.weights]
    return _Site(lpu, fabric, layers, [_weights(layer) * size for layer in layers], engine)


def _note_units(parts: EngineParts) -> None:
    """Note the facts of a chip that MLPs rest on; there is no softmax among them."""
    chip, take = parts.chip, parts.ledger.take
    assert chip.lpu is not None, "checked when the chip's units were built"
    assert chip.vector is not None, "checked when the chip's units were built"
    for amount in (chip.memory, chip.memory_bandwidth, chip.vector):
        take(amount)
    take(chip.dense_compute[parts.engine.precision.weights])
    for fact in (chip.lpu.vector_compute, chip.lpu.matrix_fill, chip.lpu.vector_start):
        take(fact)


def _weights(layer: Layer) -> float:
    return layer.weights - layer.attention.weights


def _what_fits(site: _Site, title: str) -> str:
    engine, one = site.engine, site.fabric.chips // site.engine.racks
    said = (
        f"the feed-forward weights of {title}, {bytes_text(sum(site.sizes))}, do not fit {engine.chips} LPUs "
        f"of {bytes_text(site.lpu.memory_bytes)}: "
    )
    enough = min((width * stages for width, stages in site.mappings(MOST_RACKS * one)), default=None)
    if enough is None:
        return f"{said}they would with other tensor_parallel or pipeline_stages, if at all"
    racks = -(-enough // one)
    return f"{said}they would with chips: {enough}" + (f" and racks: {racks}" if racks > engine.racks else "")
