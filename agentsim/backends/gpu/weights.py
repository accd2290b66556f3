"""What a model keeps in memory on an engine: weights by format, KV cache, and whether it fits."""

from __future__ import annotations

from dataclasses import dataclass

from agentsim.backends.gpu.group import Group
from agentsim.errors import InfeasibleError
from agentsim.specs import model as shapes
from agentsim.specs.hardware import KV_BYTES, WEIGHT_BYTES, Precision
from agentsim.specs.model import AttentionGroup, Model, Shape
from agentsim.specs.sourced import Ledger
from agentsim.units import bytes_text, count_text


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a model by format, those that every token reads and the routed experts.

    `fp4_bytes` is the size of a weight in the model's own fp4 format, its scales included.
    """

    dense: dict[Precision, float]
    routed: dict[Precision, float]
    table: float
    fp4_bytes: float

    def size(self, precision: Precision) -> float:
        """Bytes of one weight."""
        return self.fp4_bytes if precision == "fp4" else WEIGHT_BYTES[precision]

    def total_bytes(self) -> float:
        """Bytes of the whole checkpoint; the embedding table that no step reads stays in bf16 or better."""
        parts = (self.dense, self.routed)
        table = self.table * min(self.size(p) if p != "fp4" else WEIGHT_BYTES["bf16"] for p in self.dense)
        return table + sum(n * self.size(p) for part in parts for p, n in part.items())


def weights_of(model: Model, precision: Precision, ledger: Ledger, borrowed: bool = False) -> Weights:
    """Return the weights; an fp4 checkpoint keeps a stated share of them in bf16.

    What it keeps is taken from the dense weights first, as published checkpoints do: attention and
    embeddings stay, experts are converted. A drafter whose embeddings are `borrowed` from its target
    reads them, but holds no copy.
    """
    shape = ledger.take(model.shape)
    routed = float(shapes.routed_parameters(shape))
    table = 0.0 if borrowed else float(shapes.unread_parameters(shape))
    dense = float(shapes.total_parameters(shape) - routed - shapes.unread_parameters(shape))
    if precision != "fp4":
        return Weights({precision: dense}, {precision: routed}, table, 0.0)
    if model.fp4 is None:
        raise InfeasibleError(f"no fp4 checkpoint of {model.title} is known; use bf16 or fp8")
    checkpoint = ledger.take(model.fp4)
    kept = (1.0 - checkpoint.share) * shapes.total_parameters(shape)
    kept = min(max(kept - shapes.unread_parameters(shape), 0.0), dense)
    return Weights({"fp4": dense - kept, "bf16": kept}, {"fp4": routed}, table, 0.5 + 1 / checkpoint.group)


def kv_copies(attention: AttentionGroup, chips: int) -> float:
    """Return how many times tensor parallelism stores one token's KV of a layer.

    Heads are divided among the chips; MLA's compressed vector cannot be, and fewer KV heads than
    chips are repeated.
    """
    heads = 1 if attention.kind == "mla" else attention.kv_heads
    return max(1.0, chips / heads)


def kv_bytes(shape: Shape, group: Group) -> tuple[float, float]:
    """Return the bytes of one token's KV over all chips: in layers that keep everything, in windowed ones."""
    size = KV_BYTES[group.engine.precision.kv]
    sums = {True: 0.0, False: 0.0}
    for a in shape.attention:
        sums[a.kind == "window"] += size * a.kv_elements() * a.layers * kv_copies(a, group.chips)
    return sums[False], sums[True]


def kv_capacity_bytes(model: Model, drafter: Model | None, group: Group) -> float:
    """Return the room for KV over all chips; `InfeasibleError` with what would fit where there is none."""
    weights = weights_of(model, group.engine.precision.weights, group.ledger).total_bytes()
    if drafter is not None:
        weights += drafter_bytes(drafter, group.ledger)
    room = _room(weights, group.chips, group)
    if room > 0:
        return room
    raise InfeasibleError(
        f"{model.title} in {group.engine.precision.weights} takes {bytes_text(weights)} of weights; "
        f"{group.label} hold {bytes_text(_usable(group) * group.chips)}. {_what_fits(model, weights, group)}"
    )


def drafter_bytes(drafter: Model, ledger: Ledger) -> float:
    """Return the bytes that a drafter in bf16 adds; embeddings that are its target's add none."""
    assert drafter.drafting is not None
    borrowed = drafter.drafting.shares_embeddings
    whole = weights_of(drafter, "bf16", ledger, borrowed).total_bytes()
    shape = ledger.take(drafter.shape)
    return whole - (shape.vocab * shape.hidden * WEIGHT_BYTES["bf16"] if borrowed else 0.0)


def _usable(group: Group) -> float:
    """Bytes of one chip that weights and KV may fill."""
    share = group.ledger.take(group.profile.memory_share)
    memory = group.ledger.take(group.chip.memory)
    return memory if group.profile.memory_share_of == "free" else memory * share


def _room(weights: float, chips: int, group: Group) -> float:
    """Bytes for KV: what is left of the usable memory, or the engine's share of what is left."""
    left = _usable(group) * chips - weights
    share = group.ledger.take(group.profile.memory_share)
    return left * share if group.profile.memory_share_of == "free" else left


def _what_fits(model: Model, weights: float, group: Group) -> str:
    sizes = [1, *sorted(map(int, group.profile.all_reduce))]
    enough = next((n for n in sizes if _room(weights, n, group) > 0), None)
    answers = [f"{enough} x {group.chip.title}"] if enough else []
    for smaller in ("fp8", "fp4"):
        if WEIGHT_BYTES[smaller] < WEIGHT_BYTES[group.engine.precision.weights]:
            answers += _smaller_precision(model, smaller, group)
    return f"It would fit on {', or in '.join(answers)}" if answers else _too_large(weights, group)


def _smaller_precision(model: Model, precision: Precision, group: Group) -> list[str]:
    if precision not in group.chip.dense_compute or (precision == "fp4" and model.fp4 is None):
        return []
    needed = weights_of(model, precision, Ledger()).total_bytes()
    return [f"{precision} ({bytes_text(needed)})"] if _room(needed, group.chips, group) > 0 else []


def _too_large(weights: float, group: Group) -> str:
    chips = count_text(-(-weights // _usable(group)))
    return f"It needs {chips} of these GPUs, more than the profile has measured"
