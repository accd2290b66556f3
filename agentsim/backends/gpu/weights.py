"""What a model keeps in memory on an engine: weights by format, KV cache, and whether it fits."""

from __future__ import annotations

from dataclasses import dataclass

from agentsim.backends.gpu.group import Group
from agentsim.errors import InfeasibleError
from agentsim.specs import model as shapes
from agentsim.specs.hardware import KV_BYTES, SCALE_BYTES, WEIGHT_BYTES, Precision
from agentsim.specs.model import AttentionGroup, FourBitCheckpoint, Model, Shape
from agentsim.specs.sourced import Datum, Ledger
from agentsim.units import bytes_text, count_text

_FP4: dict[int, Precision] = {16: "nvfp4", 32: "mxfp4"}
"""The formats of FP4 checkpoints by their group (OCP Microscaling 1.0; NVIDIA's NVFP4)."""
_INDEX_BYTES = WEIGHT_BYTES["fp8"]
"""Sparse attention keeps the keys of its indexer in FP8 (DeepSeek-V3.2)."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Numbers of weights: in the checkpoint's format the `packed` that every token reads and the routed
    experts, in bf16 the others (`kept`), the output head and the embedding table that is only looked up.
    """

    stored: Precision
    packed_bytes: float
    packed: float
    kept: float
    head: float
    routed: float
    table: float

    def total_bytes(self) -> float:
        """Bytes of the whole checkpoint."""
        wide = self.kept + self.head + self.table
        return wide * WEIGHT_BYTES["bf16"] + (self.packed + self.routed) * self.packed_bytes

    def repeated_bytes(self) -> float:
        """Bytes that every copy of the attention holds: all but the routed experts."""
        return self.total_bytes() - self.routed * self.packed_bytes


def format_of(model: Model, precision: Precision) -> Precision:
    """Return the format that weights are stored in; `InfeasibleError` where no checkpoint is known."""
    if precision in ("bf16", "fp8"):
        return precision
    checkpoint = _checkpoint(model, precision)
    if checkpoint is None or checkpoint.value is None:
        raise InfeasibleError(f"no {precision} checkpoint of {model.title} is known; use bf16 or fp8")
    stored = "int4" if precision == "int4" else _FP4.get(checkpoint.value.group, "nvfp4")
    if precision not in ("fp4", stored):
        raise InfeasibleError(f"the FP4 checkpoint of {model.title} is {stored}, not {precision}")
    return stored


def _checkpoint(model: Model, precision: Precision) -> Datum[FourBitCheckpoint] | None:
    return model.int4 if precision == "int4" else model.fp4


def weights_of(model: Model, precision: Precision, ledger: Ledger, borrowed: bool = False) -> Weights:
    """Return the weights; a 4-bit checkpoint keeps a stated share of them in bf16.

    What it keeps is taken from the weights that every token reads, as published checkpoints do: attention
    and embeddings stay, experts are converted. Checkpoints in FP8 leave the output head in bf16. A drafter
    whose embeddings are `borrowed` from its target reads them, but holds no copy.
    """
    shape, stored = ledger.take(model.shape), format_of(model, precision)
    routed, head = float(shapes.routed_parameters(shape)), float(shape.vocab * shape.hidden)
    unread = float(shapes.unread_parameters(shape))
    rest = shapes.total_parameters(shape) - routed - unread - head
    kept, size = 0.0, WEIGHT_BYTES[stored]
    checkpoint = _checkpoint(model, precision)
    if stored in SCALE_BYTES and checkpoint is not None:
        taken = ledger.take(checkpoint)
        size += SCALE_BYTES[stored] / taken.group
        left = (1.0 - taken.share) * shapes.total_parameters(shape) - unread - head
        kept = min(max(left, 0.0), rest)
    return Weights(stored, size, rest - kept, kept, head, routed, 0.0 if borrowed else unread)


def kv_copies(attention: AttentionGroup, width: int) -> float:
    """Return how many times tensor parallelism over `width` chips stores one token's KV of a layer.

    Heads are divided among the chips; MLA's compressed vector cannot be, and fewer KV heads than
    chips are repeated.
    """
    heads = 1 if attention.kind == "mla" else attention.kv_heads
    return max(1.0, width / heads) if heads else 1.0


@dataclass(frozen=True, slots=True)
class KvBytes:
    """Bytes of one token's KV over all chips that hold it.

    `full` in layers that read everything, `window` in windowed ones, `sparse` where an indexer, of which
    `index` bytes are kept, chooses what is read; `state` is a sequence's, whatever its length.
    """

    full: float = 0.0
    window: float = 0.0
    sparse: float = 0.0
    index: float = 0.0
    state: float = 0.0

    def kept(self) -> tuple[float, float]:
        """Return the bytes that a token leaves: for good, and while it is in the window."""
        return self.full + self.sparse + self.index, self.window

    def plus(self, other: KvBytes) -> KvBytes:
        """Return the sum of both."""
        return KvBytes(
            self.full + other.full,
            self.window + other.window,
            self.sparse + other.sparse,
            self.index + other.index,
            self.state + other.state,
        )


def kv_bytes(shape: Shape, group: Group) -> KvBytes:
    """Return what the layers of a model keep; a linear layer's state is kept in FP32."""
    size, width, found = KV_BYTES[group.engine.precision.kv], group.tensor_parallel, KvBytes()
    for a in shape.attention:
        copies = a.layers * kv_copies(a, width)
        part = size * a.kv_elements() * copies
        if a.kind == "window":
            found = found.plus(KvBytes(window=part))
        elif a.index_tokens is not None:
            found = found.plus(KvBytes(sparse=part, index=_INDEX_BYTES * a.index_dim * copies))
        else:
            found = found.plus(
                KvBytes(full=part, state=2 * WEIGHT_BYTES["bf16"] * a.layers * a.state_elements())
            )
    return found


def kv_capacity_bytes(model: Model, drafter: Model | None, group: Group) -> float:
    """Return the room for KV over all chips; `InfeasibleError` with what would fit where there is none."""
    weights = held_bytes(model, group.engine.precision.weights, group)
    if drafter is not None:
        weights += drafter_bytes(drafter, group.ledger) * group.copies
    room = _room(weights, group.chips, group)
    if room > 0:
        return room
    raise InfeasibleError(
        f"{model.title} in {group.engine.precision.weights} takes {bytes_text(weights)} of weights; "
        f"{group.label} hold {bytes_text(_usable(group) * group.chips)}. {_what_fits(model, weights, group)}"
    )


def held_bytes(model: Model, precision: Precision, group: Group) -> float:
    """Return the bytes of the weights over all chips: each copy of the attention holds its own."""
    weights = weights_of(model, precision, group.ledger)
    return weights.total_bytes() + (group.copies - 1) * weights.repeated_bytes()


def drafter_bytes(drafter: Model, ledger: Ledger) -> float:
    """Return the bytes that a drafter in bf16 adds; embeddings that are its target's add none."""
    assert drafter.drafting is not None
    borrowed = drafter.drafting.shares_embeddings
    weights = weights_of(drafter, "bf16", ledger, borrowed)
    return weights.total_bytes() - (weights.head * WEIGHT_BYTES["bf16"] if borrowed else 0.0)


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
    enough = next((n for n in sizes if _room(weights, n, group) > 0), None) if group.chips in sizes else None
    answers = [f"{enough} x {group.chip.title}"] if enough else []
    for smaller in ("fp8", "fp4"):
        if WEIGHT_BYTES[smaller] < WEIGHT_BYTES[group.engine.precision.weights]:
            answers += _smaller_precision(model, smaller, group)
    return f"It would fit on {', or in '.join(answers)}" if answers else _too_large(weights, group)


def _smaller_precision(model: Model, precision: Precision, group: Group) -> list[str]:
    if precision not in group.chip.dense_compute or (precision == "fp4" and model.fp4 is None):
        return []
    needed = held_bytes(model, precision, group)
    return [f"{precision} ({bytes_text(needed)})"] if _room(needed, group.chips, group) > 0 else []


def _too_large(weights: float, group: Group) -> str:
    chips = count_text(-(-weights // _usable(group)))
    return f"It needs {chips} of these GPUs, more than the profile has measured"
