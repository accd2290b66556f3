"""A model as the compiler sees it: its kinds of layers, and what one layer of each holds and does.

Sizes are totals over all chips of a stage; `programs.py` divides them. MLA is taken in its absorbed form:
queries are projected into the compressed space, and attention runs there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentsim.errors import SpecError
from agentsim.specs.model import AttentionGroup, Shape


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention of one layer: weights of each product, elements that it yields for a token, KV.

    `down` (MLA only) comes before the projection `project`, `up` (MLA only) before `out`. `held` is how
    many chips keep a copy of one KV head, so that each serves some of its query heads alone.
    """

    heads: int
    kv_heads: int
    down_weights: int
    down_elements: int
    query_weights: int
    kv_weights: int
    query_elements: int
    kv_elements: int
    score_flops: float
    value_flops: float
    up_weights: int
    mixed_elements: int
    out_elements: int
    out_weights: int
    window: int | None
    held: float = 1.0

    def head_chips(self, chips: int) -> float:
        """Return how many chips share one head's context; they exchange queries and merge results."""
        return max(1.0, chips / (self.kv_heads * self.held))

    def copied(self, chips: int) -> Attention:
        """Return the same with each KV head on as many chips as its query heads allow."""
        return replace(self, held=max(1.0, min(chips, self.heads) / self.kv_heads))

    @property
    def weights(self) -> float:
        """Weights of one layer, copies included."""
        own = self.down_weights + self.query_weights + self.up_weights + self.out_weights
        return own + self.kv_weights * self.held


@dataclass(frozen=True, slots=True)
class FeedForward:
    """The MLP of one layer; of `experts`, each of `expert_weights`, a token uses `active`."""

    inner: int
    weights: int
    router_elements: int = 0
    experts: int = 0
    active: int = 0
    expert_inner: int = 0
    expert_weights: int = 0

    def read(self, rows: int) -> float:
        """Return the weights that `rows` tokens read at most.

        A static schedule reserves the worst case, every token choosing experts of its own.
        """
        return self.weights + min(self.experts, rows * self.active) * self.expert_weights

    @property
    def used(self) -> float:
        """Weights that one token multiplies."""
        return self.weights + self.active * self.expert_weights

    @property
    def elements(self) -> int:
        """Inner elements of one token."""
        return self.inner + self.active * self.expert_inner

    @property
    def resident(self) -> float:
        return self.weights + self.experts * self.expert_weights


@dataclass(frozen=True, slots=True)
class Layer:
    """One kind of layer. Layers of one kind are equal, so that one is scheduled for all."""

    hidden: int
    attention: Attention
    feed_forward: FeedForward

    @property
    def weights(self) -> float:
        """Weights that are resident, copies included."""
        router = self.hidden * self.feed_forward.router_elements
        return self.attention.weights + self.feed_forward.resident + router


def layers_of(shape: Shape, copied: bool, chips: int) -> list[Layer]:
    """Return the layers in order: kinds of attention evenly interleaved, dense MLPs before experts.

    `copied`: KV heads are kept by as many chips as have query heads of them, which spends SRAM on
    copies and saves two exchanges a layer.
    """
    kinds = [_attention(group, shape.hidden) for group in shape.attention]
    if copied:
        kinds = [kind.copied(chips) for kind in kinds]
    dense = shape.layers if shape.dense_layers is None else shape.dense_layers
    experts = shape.experts.layers if shape.experts else 0
    order = _interleaved([group.layers for group in shape.attention])
    if len(order) != shape.layers:
        raise SpecError(f"a model of {shape.layers} layers has attention for {len(order)}")
    if experts > shape.layers:
        raise SpecError(f"a model of {shape.layers} layers has experts in {experts}")
    found = []
    for index, kind in enumerate(order):
        mlp = _feed_forward(shape, index < dense, index >= shape.layers - experts)
        found.append(Layer(shape.hidden, kinds[kind], mlp))
    return found


def _interleaved(counts: list[int]) -> list[int]:
    """Return the kind of each layer, such that every kind is spread evenly; rare ones end a period."""
    places = [((n + 1) / count, kind) for kind, count in enumerate(counts) for n in range(count)]
    return [kind for _, kind in sorted(places)]


def _attention(group: AttentionGroup, hidden: int) -> Attention:
    if group.kind == "mla":
        return _latent_attention(group, hidden)
    width = group.heads * group.head_dim
    kv_width = group.kv_heads * group.head_dim
    projections = 0 if not group.projects_kv else 1 if group.key_is_value else 2
    return Attention(
        heads=group.heads,
        kv_heads=group.kv_heads,
        down_weights=0,
        down_elements=0,
        query_weights=hidden * width,
        kv_weights=hidden * kv_width * projections,
        query_elements=width + kv_width * projections,
        kv_elements=group.kv_elements(),
        score_flops=2.0 * width,
        value_flops=2.0 * width,
        up_weights=0,
        mixed_elements=width,
        out_elements=width,
        out_weights=width * hidden,
        window=group.window_tokens if group.kind == "window" else None,
    )


def _latent_attention(group: AttentionGroup, hidden: int) -> Attention:
    latent = group.kv_rank + group.rope_dim
    width, query_width = group.heads * group.value_dim, group.heads * (group.head_dim + group.rope_dim)
    absorbed = group.kv_rank * group.heads
    return Attention(
        heads=group.heads,
        kv_heads=1,
        down_weights=hidden * (group.query_rank + latent),
        down_elements=(group.query_rank or hidden) + latent,
        query_weights=(group.query_rank or hidden) * query_width + absorbed * group.head_dim,
        kv_weights=0,
        query_elements=group.heads * latent,
        kv_elements=group.kv_elements(),
        score_flops=2.0 * group.heads * latent,
        value_flops=2.0 * absorbed,
        up_weights=absorbed * group.value_dim,
        mixed_elements=absorbed,
        out_elements=width,
        out_weights=width * hidden,
        window=None,
    )


def _feed_forward(shape: Shape, dense: bool, routed: bool) -> FeedForward:
    inner = shape.ffn if dense else 0
    experts = shape.experts if routed else None
    if experts is None:
        return FeedForward(inner, 3 * shape.hidden * inner)
    inner += (experts.shared_ffn or experts.ffn) * experts.shared
    return FeedForward(
        inner=inner,
        weights=3 * shape.hidden * inner,
        router_elements=experts.count,
        experts=experts.count,
        active=experts.active,
        expert_inner=experts.ffn,
        expert_weights=3 * shape.hidden * experts.ffn,
    )
