"""A GPU engine: what an iteration reads, multiplies and sends, at the rates that engines reach.

    t = max(weights read, FLOPs) + KV read + attention of the prefill + all-reduces + layer overhead

Physics: bytes over HBM bandwidth, FLOPs over dense peak, two all-reduces a layer. Calibrated: the
share of each peak that the engine's kernels reach, and the fixed time a layer takes whatever it works
on (launches, norms, the floor of small kernels), which dominates at batch 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentsim.backends.base import Batch, EngineParts, expected_tokens
from agentsim.errors import InfeasibleError, MeasurementMissing, SpecError, unknown_name
from agentsim.specs import catalog
from agentsim.specs import model as shapes
from agentsim.specs.deployment import Engine
from agentsim.specs.engine import AllReduce, EngineProfile
from agentsim.specs.hardware import WEIGHT_BYTES, Chip, Precision
from agentsim.specs.model import AttentionGroup, Model, Shape
from agentsim.specs.sourced import Datum, Ledger
from agentsim.units import bytes_text, count_text

ACTIVATION_BYTES = 2.0
"""Activations cross the all-reduce in bf16, whatever the weights are."""
ALL_REDUCES_PER_LAYER = 2
"""Megatron tensor parallelism: one behind the attention, one behind the MLP (Shoeybi et al. 2019)."""


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts: the time to read all of them, and the chance that a token skips a given one.

    A batch reads the distinct experts that its tokens choose, with even routing.
    """

    read_all_s: float
    skip: float


@dataclass(frozen=True, slots=True)
class Collective:
    """All all-reduces of one forward pass, small and large protocol: start-up and time per token."""

    small_s: float
    small_token_s: float
    large_s: float
    large_token_s: float

    def time_s(self, tokens: float) -> float:
        return min(
            self.small_s + tokens * self.small_token_s,
            self.large_s + tokens * self.large_token_s,
        )


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """One model's forward pass on one engine: times per token, per KV token, per attention pair."""

    read_s: float
    decode_token_s: float
    prefill_token_s: float
    context_s: float
    window_s: float
    pair_s: float
    window_pair_s: float
    overhead_s: float
    collective: Collective | None
    experts: Experts | None

    def time_s(self, decode_tokens: float, batch: Batch) -> float:
        """Return the time of a pass over `decode_tokens` and the prefill of `batch`."""
        tokens = decode_tokens + batch.prefill_tokens
        read = self.read_s
        if self.experts is not None:
            read += self.experts.read_all_s * (1.0 - self.experts.skip**tokens)
        multiply = decode_tokens * self.decode_token_s + batch.prefill_tokens * self.prefill_token_s
        time = read if read > multiply else multiply
        time += self.overhead_s + batch.context * self.context_s + batch.window * self.window_s
        if batch.prefill_tokens:
            time += batch.prefill_pairs * self.pair_s + batch.prefill_window_pairs * self.window_pair_s
        if self.collective is not None:
            time += self.collective.time_s(tokens)
        return time


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafter that proposes `tokens` one after another before each verification."""

    forward: ForwardPass
    tokens: int


@dataclass(frozen=True, slots=True)
class GpuCost:
    """`IterationCost` of one GPU engine; see `backends/base.py` for the contract."""

    target: ForwardPass
    draft: Draft | None
    tokens_per_step: float
    window_tokens: int | None
    kv_bytes_per_token: float
    window_bytes_per_token: float
    kv_capacity_bytes: float
    batched_tokens: int
    max_sequences: int
    request_s: float

    def iteration_s(self, batch: Batch) -> float:
        """Return the time of one iteration: the drafts one by one, then the target's pass over all."""
        draft = self.draft
        if draft is None or not batch.sequences:
            return self.target.time_s(batch.sequences, batch)
        alone = Batch(batch.sequences, batch.context, batch.window)
        drafting = draft.tokens * draft.forward.time_s(batch.sequences, alone)
        return drafting + self.target.time_s(batch.sequences * (draft.tokens + 1), batch)

    def kv_bytes(self, context: float, window: float) -> float:
        """Return the bytes that sequences hold whose contexts and windows sum to these."""
        return context * self.kv_bytes_per_token + window * self.window_bytes_per_token


@dataclass(frozen=True)
class _Group:
    """The engine at hand, as every derivation below needs it."""

    chip: Chip
    engine: Engine
    profile: EngineProfile
    ledger: Ledger

    @property
    def label(self) -> str:
        return f"{self.engine.chips} x {self.chip.title}"

    @property
    def chips(self) -> int:
        return self.engine.chips

    @property
    def kv_precision(self) -> Precision:
        """The stated one; else bf16 beside bf16 weights and fp8 beside smaller ones, as engines default."""
        weights = self.engine.precision.weights
        return self.engine.precision.kv or ("bf16" if weights == "bf16" else "fp8")

    def bandwidth(self) -> float:
        return self.ledger.take(self.chip.memory_bandwidth) * self.chips

    def flops(self, precision: Precision) -> float:
        peak = self.ledger.take(self._of(self.chip.dense_compute, precision, self.chip.title))
        reached = self._of(self.profile.gemm_efficiency, precision, self.profile.title)
        return peak * self.ledger.take(reached) * self.chips

    def weight_rate(self, precision: Precision) -> float:
        """Weight bytes per second, all chips together."""
        reached = self._of(self.profile.weight_read_efficiency, precision, self.profile.title)
        return self.bandwidth() * self.ledger.take(reached)

    def _of(self, table: dict[Precision, Datum[float]], precision: Precision, title: str) -> Datum[float]:
        if precision not in table:
            raise InfeasibleError(f"{title} has no {precision}; it has {', '.join(table)}")
        return table[precision]


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a model by format: those that every token reads, and the routed experts."""

    dense: dict[Precision, float]
    routed: dict[Precision, float]


def weights_of(model: Model, precision: Precision, ledger: Ledger) -> Weights:
    """Return the numbers of weights; an fp4 checkpoint keeps a stated share of them in bf16.

    What it keeps is taken from the dense weights first, as published checkpoints do: attention and
    embeddings stay, experts are converted.
    """
    shape = ledger.take(model.shape)
    routed = float(shapes.routed_parameters(shape))
    dense = float(shapes.total_parameters(shape) - routed - shapes.unread_parameters(shape))
    if precision != "fp4":
        return Weights({precision: dense}, {precision: routed})
    if model.fp4_share is None:
        raise InfeasibleError(f"no fp4 checkpoint of {model.title} is known; use bf16 or fp8")
    kept = (1.0 - ledger.take(model.fp4_share)) * shapes.total_parameters(shape)
    kept = min(max(kept - shapes.unread_parameters(shape), 0.0), dense)
    return Weights({"fp4": dense - kept, "bf16": kept}, {"fp4": routed})


def compile_gpu(parts: EngineParts) -> GpuCost:
    """Return the cost model of one engine.

    Raises `InfeasibleError` with what would fit, `MeasurementMissing` for a tensor-parallel size that the
    profile has no all-reduce for, `SpecError` or `UnknownNameError` for an engine without a profile.
    """
    model, chip, engine, drafter, ledger, _ = parts
    group = _Group(chip, engine, find_profile(parts), ledger)
    profile, shape = group.profile, ledger.take(model.shape)
    target = _forward_pass(model, group)
    draft = Draft(_draft_pass(drafter.model, shape, group), drafter.tokens) if drafter else None
    per_token, per_window = _kv_bytes(shape, group)
    return GpuCost(
        target=target,
        draft=draft,
        tokens_per_step=expected_tokens(drafter.acceptance(ledger)) if drafter else 1.0,
        window_tokens=window_of(shape),
        kv_bytes_per_token=per_token,
        window_bytes_per_token=per_window,
        kv_capacity_bytes=_kv_capacity(model, drafter.model if drafter else None, group),
        batched_tokens=ledger.take(profile.batched_tokens),
        max_sequences=ledger.take(profile.sequences),
        request_s=ledger.take(profile.request_overhead),
    )


def find_profile(parts: EngineParts) -> EngineProfile:
    """Return the profile of the engine's software on its hardware; the choice is never silent."""
    software, hardware = parts.engine.software, parts.engine.hardware
    known = [n for n in catalog.names("engines") if n.endswith(f"-{hardware}")]
    choices = [name.removesuffix(f"-{hardware}") for name in known]
    if software is None:
        raise SpecError(f"engine on {parts.chip.title}: say which software runs it: {', '.join(choices)}")
    if software.endswith(".yaml"):
        return catalog.load(EngineProfile, software, parts.near)
    if software not in choices:
        raise unknown_name(f"engine profile for {hardware}", software, choices)
    return catalog.load(EngineProfile, f"{software}-{hardware}")


def window_of(shape: Shape) -> int | None:
    """Return the width of the sliding window, or None where every layer sees the whole context."""
    widths = {g.window_tokens for g in shape.attention if g.kind == "window"}
    if len(widths) > 1:
        raise InfeasibleError(f"windows of different widths ({sorted(map(str, widths))}) are not modelled")
    return next(iter(widths)) if widths else None


def _forward_pass(model: Model, group: _Group) -> ForwardPass:
    shape = group.ledger.take(model.shape)
    weights = weights_of(model, group.engine.precision.weights, group.ledger)
    active_share = shape.experts.active / shape.experts.count if shape.experts else 0.0
    multiply = _multiply_time(weights.dense, group) + active_share * _multiply_time(weights.routed, group)
    prefilled = 1.0 - shape.vocab * shape.hidden / shapes.active_parameters(shape)
    context_s, window_s = _kv_times(shape, group)
    pair_s, window_pair_s = _pair_times(shape, group)
    return ForwardPass(
        read_s=_read_time(weights.dense, group),
        decode_token_s=multiply,
        prefill_token_s=multiply * prefilled,
        context_s=context_s,
        window_s=window_s,
        pair_s=pair_s,
        window_pair_s=window_pair_s,
        overhead_s=shape.layers * group.ledger.take(group.profile.layer_overhead),
        collective=_collective(shape, group),
        experts=_experts(shape, _read_time(weights.routed, group)),
    )


def _draft_pass(drafter: Model, target: Shape, group: _Group) -> ForwardPass:
    """A drafter runs in bf16 beside its target and, where it shares the target's KV, reads that."""
    own = replace(group, engine=group.engine.model_copy(update={"precision": _BF16}))
    own_pass = _forward_pass(drafter, own)
    assert drafter.drafting is not None, "checked when the deployment was compiled"
    if not drafter.drafting.shares_kv:
        return own_pass
    shape = group.ledger.take(drafter.shape)
    scaled = {g.kind: g.layers for g in shape.attention}
    groups = tuple(g.model_copy(update={"layers": scaled.get(g.kind, 0)}) for g in target.attention)
    context_s, window_s = _kv_times(target.model_copy(update={"attention": groups}), group)
    return replace(own_pass, context_s=context_s, window_s=window_s)


_BF16 = Engine.model_validate({"hardware": "", "precision": {"weights": "bf16"}}).precision


def _read_time(weights: dict[Precision, float], group: _Group) -> float:
    """Seconds to read these weights once, all chips together."""
    return sum(n * WEIGHT_BYTES[p] / group.weight_rate(p) for p, n in weights.items() if n)


def _multiply_time(weights: dict[Precision, float], group: _Group) -> float:
    """Seconds to take one token through these weights: two FLOPs each."""
    return sum(2.0 * n / group.flops(p) for p, n in weights.items() if n)


def _experts(shape: Shape, read_all_s: float) -> Experts | None:
    experts = shape.experts
    if experts is None:
        return None
    return Experts(read_all_s, 1.0 - experts.active / experts.count)


def kv_copies(attention: AttentionGroup, chips: int) -> float:
    """Return how many times tensor parallelism stores one token's KV of a layer.

    Heads are divided among the chips; MLA's compressed vector cannot be, and fewer KV heads than
    chips are repeated.
    """
    heads = 1 if attention.kind == "mla" else attention.kv_heads
    return max(1.0, chips / heads)


def _kv_bytes(shape: Shape, group: _Group) -> tuple[float, float]:
    """Bytes of one token's KV over all chips: in layers that keep everything, and in windowed ones."""
    size = WEIGHT_BYTES[group.kv_precision]
    sums = {True: 0.0, False: 0.0}
    for a in shape.attention:
        sums[a.kind == "window"] += size * a.kv_elements() * a.layers * kv_copies(a, group.chips)
    return sums[False], sums[True]


def _kv_times(shape: Shape, group: _Group) -> tuple[float, float]:
    """Seconds to read one token's KV in decode, in full and in windowed layers."""
    rate = group.bandwidth() * group.ledger.take(group.profile.kv_read_efficiency)
    full, window = _kv_bytes(shape, group)
    return full / rate, window / rate


def _pair_times(shape: Shape, group: _Group) -> tuple[float, float]:
    """Seconds for one query-key pair in prefill, over all full and all windowed layers."""
    peak = group.ledger.take(group.chip.dense_compute["bf16"]) * group.chips
    rate = peak * group.ledger.take(group.profile.attention_efficiency)
    sums = {True: 0.0, False: 0.0}
    for a in shape.attention:
        sums[a.kind == "window"] += a.flops_per_pair() * a.layers / rate
    return sums[False], sums[True]


def _collective(shape: Shape, group: _Group) -> Collective | None:
    if group.chips == 1:
        return None
    table = group.profile.all_reduce
    entry: AllReduce | None = table.get(str(group.chips))
    if entry is None:
        sizes = ", ".join(["1", *table])
        raise MeasurementMissing(
            f"{group.profile.title}: no all-reduce was measured over {group.chips} GPUs; measured: {sizes}"
        )
    take, calls = group.ledger.take, ALL_REDUCES_PER_LAYER * shape.layers
    token_bytes = shape.hidden * ACTIVATION_BYTES
    return Collective(
        small_s=calls * take(entry.latency),
        small_token_s=calls * token_bytes / take(entry.bandwidth),
        large_s=calls * take(entry.large_latency),
        large_token_s=calls * token_bytes / take(entry.large_bandwidth),
    )


def _weight_bytes(model: Model, precision: Precision, ledger: Ledger) -> float:
    """Bytes of the whole checkpoint, the embedding table that no step reads included."""
    weights = weights_of(model, precision, ledger)
    table = shapes.unread_parameters(ledger.take(model.shape))
    kept: Precision = "bf16" if precision == "fp4" else precision
    sizes = [n * WEIGHT_BYTES[p] for part in (weights.dense, weights.routed) for p, n in part.items()]
    return sum(sizes) + table * WEIGHT_BYTES[kept]


def _kv_capacity(model: Model, drafter: Model | None, group: _Group) -> float:
    """Bytes left for KV over all chips; `InfeasibleError` with what would fit where there are none."""
    precision = group.engine.precision.weights
    weights = _weight_bytes(model, precision, group.ledger)
    if drafter is not None:
        weights += _weight_bytes(drafter, "bf16", group.ledger)
    usable = group.ledger.take(group.chip.memory) * group.ledger.take(group.profile.memory_share)
    if weights < usable * group.chips:
        return usable * group.chips - weights
    raise InfeasibleError(
        f"{model.title} in {precision} takes {bytes_text(weights)} of weights; {group.label} hold "
        f"{bytes_text(usable * group.chips)}. {_what_fits(model, weights, usable, group)}"
    )


def _what_fits(model: Model, weights: float, usable: float, group: _Group) -> str:
    sizes = [1, *sorted(map(int, group.profile.all_reduce))]
    enough = next((n for n in sizes if n * usable > weights), None)
    answers = [f"{enough} x {group.chip.title}"] if enough else []
    for smaller in ("fp8", "fp4"):
        if WEIGHT_BYTES[smaller] < WEIGHT_BYTES[group.engine.precision.weights]:
            answers += _smaller_precision(model, smaller, usable * group.chips, group)
    return f"It would fit on {', or in '.join(answers)}" if answers else _too_large(weights, usable)


def _smaller_precision(model: Model, precision: Precision, room: float, group: _Group) -> list[str]:
    if precision not in group.chip.dense_compute or (precision == "fp4" and model.fp4_share is None):
        return []
    needed = _weight_bytes(model, precision, Ledger())
    return [f"{precision} ({bytes_text(needed)})"] if needed < room else []


def _too_large(weights: float, usable: float) -> str:
    chips = count_text(-(-weights // usable))
    return f"It needs {chips} of these GPUs, more than the profile has measured"


PLUGIN = compile_gpu
