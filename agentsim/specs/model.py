"""What a language model is: its shape, and the sizes that follow from it.

Parameters, FLOPs and KV-cache bytes are derived from the shape here, and held against the published
totals by the tests.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agentsim.fields import Count, Line, Number, PositiveCount, Probability, Strict, Tokens
from agentsim.specs.sourced import Datum


class AttentionGroup(Strict):
    """Layers that share one kind of attention.

    `full` reads the whole context, `window` the last `window_tokens` of it, `mla` one compressed
    vector a token; `linear` (gated delta rule) keeps a state of fixed size in place of a cache: its
    `kv_heads` are key heads, its `heads` value heads. `key_is_value` marks layers that project keys and
    values with one matrix; layers without `projects_kv` attend to another model's KV, whose heads and
    widths they name. With `index_tokens` attention is sparse: an indexer reads a small key of every token
    and picks that many for a query.
    """

    kind: Literal["full", "window", "mla", "linear"]
    layers: PositiveCount
    heads: PositiveCount
    kv_heads: Count = 0
    head_dim: PositiveCount
    window_tokens: Tokens | None = None
    key_is_value: bool = False
    projects_kv: bool = True
    gated: Annotated[
        bool, Field(description="the output is gated: the query projection is twice as wide")
    ] = False
    kv_rank: Annotated[Count, Field(description="MLA: width of the compressed KV")] = 0
    rope_dim: Annotated[Count, Field(description="MLA: width of the positional part")] = 0
    query_rank: Annotated[Count, Field(description="MLA: width of the compressed query")] = 0
    value_dim: Annotated[Count, Field(description="MLA and linear: width of a value head")] = 0
    index_heads: Annotated[Count, Field(description="sparse: query heads of the indexer")] = 0
    index_dim: Annotated[Count, Field(description="sparse: width of the indexer's key")] = 0
    index_tokens: Annotated[Tokens | None, Field(description="sparse: keys that a query attends to")] = None

    def kv_elements(self) -> int:
        """KV elements that one token leaves in one layer, the indexer's key not counted."""
        if self.kind == "linear":
            return 0
        return self.kv_rank + self.rope_dim if self.kind == "mla" else 2 * self.kv_heads * self.head_dim

    def state_elements(self) -> int:
        """Elements of one sequence's state in one layer, whatever its context."""
        return self.heads * self.head_dim * self.value_dim if self.kind == "linear" else 0

    def parameters(self, hidden: int) -> int:
        """Weights of one layer's projections."""
        if self.kind == "mla":
            return self._mla_parameters(hidden) + self._index_parameters(hidden)
        if self.kind == "linear":
            return self._linear_parameters(hidden)
        projections = 0 if not self.projects_kv else 1 if self.key_is_value else 2
        return hidden * self.head_dim * ((2 + self.gated) * self.heads + projections * self.kv_heads)

    def _linear_parameters(self, hidden: int) -> int:
        """Query and key, value and output gate, decay and write strength of each head, output."""
        inward = 2 * self.kv_heads * self.head_dim + 2 * self.heads * self.value_dim + 2 * self.heads
        return hidden * (inward + self.heads * self.value_dim)

    def _index_parameters(self, hidden: int) -> int:
        queries = self.query_rank * self.index_heads * self.index_dim
        return queries + hidden * (self.index_dim + self.index_heads)

    def _mla_parameters(self, hidden: int) -> int:
        query_width = self.heads * (self.head_dim + self.rope_dim)
        query = hidden * self.query_rank + self.query_rank * query_width
        if not self.query_rank:
            query = hidden * query_width
        down = hidden * (self.kv_rank + self.rope_dim)
        up = self.kv_rank * self.heads * (self.head_dim + self.value_dim)
        return query + down + up + self.heads * self.value_dim * hidden

    def flops_per_pair(self) -> float:
        """FLOPs of one layer for one query token meeting one cached token in prefill."""
        if self.kind == "linear":
            return 0.0
        if self.kind == "mla":
            return 2.0 * self.heads * (self.head_dim + self.rope_dim + self.value_dim)
        return 4.0 * self.heads * self.head_dim

    def decode_flops_per_pair(self) -> float:
        """The same in decode, where MLA attends to the compressed vector itself."""
        if self.kind == "mla":
            return 2.0 * self.heads * (2 * self.kv_rank + self.rope_dim)
        return self.flops_per_pair()

    def index_flops_per_pair(self) -> float:
        """FLOPs of one layer's indexer for one query token meeting one cached token."""
        return 2.0 * self.index_heads * self.index_dim


class Experts(Strict):
    """A mixture of experts: `active` of `count` are read for a token, `shared` ones always."""

    count: PositiveCount
    active: PositiveCount
    shared: Count = 0
    ffn: Annotated[PositiveCount, Field(description="inner width of one expert")]
    shared_ffn: Annotated[Count | None, Field(description="inner width of a shared expert")] = None
    layers: Annotated[PositiveCount, Field(description="layers that have experts")]


class Shape(Strict):
    """The published configuration. `ffn` is the inner width of the dense layers' gated MLP."""

    layers: PositiveCount
    hidden: PositiveCount
    ffn: Count
    dense_layers: Annotated[Count | None, Field(description="layers with the dense MLP; default all")] = None
    vocab: PositiveCount
    tied_embeddings: bool = False
    attention: tuple[AttentionGroup, ...]
    experts: Experts | None = None
    input_projections: Annotated[
        Count, Field(description="a drafter's: weights that take in the target's state")
    ] = 0


class Parameters(Strict):
    """Published totals, in parameters."""

    total: Number
    active: Number


class FourBitCheckpoint(Strict):
    """A published 4-bit checkpoint: the share of weights in 4 bits (the rest is BF16), values per scale.

    NVFP4 has a scale byte for 16 values, MXFP4 one for 32; INT4 has scales of two bytes.
    """

    share: Probability
    group: PositiveCount


class Drafting(Strict):
    """How a drafter's proposals fare: share accepted at position 1, 2, ... given all before were.

    `spread` is the sigma of the logarithm of a request's tokens per step about their median.
    `shares_kv`: it reads its target's KV cache and keeps none. `shares_embeddings`: embedding and output
    head are its target's.
    """

    target: str
    acceptance: dict[str, Datum[tuple[Probability, ...]]]
    spread: Datum[Number] | None = None
    shares_kv: bool = False
    shares_embeddings: bool = False


class Model(Strict):
    """One model; a drafter has a `drafting` section."""

    title: Line
    also: Annotated[tuple[str, ...], Field(description="other models of the same shape")] = ()
    vendor: str
    sources: dict[str, str] = Field(default_factory=dict)
    shape: Datum[Shape]
    parameters: Datum[Parameters]
    context: Datum[Tokens] | None = None
    fp4: Datum[FourBitCheckpoint] | None = None
    int4: Datum[FourBitCheckpoint] | None = None
    drafting: Drafting | None = None


def embedding_parameters(shape: Shape) -> int:
    """Weights of the embedding table and, where it is not tied, of the output head."""
    return shape.vocab * shape.hidden * (1 if shape.tied_embeddings else 2)


def attention_parameters(shape: Shape) -> int:
    """Weights of all attention projections."""
    return sum(group.layers * group.parameters(shape.hidden) for group in shape.attention)


def dense_ffn_parameters(shape: Shape) -> int:
    """Weights of the dense gated MLPs and the shared experts: read for every token."""
    dense = shape.layers if shape.dense_layers is None else shape.dense_layers
    weights = 3 * shape.hidden * shape.ffn * dense
    if shape.experts:
        width = shape.experts.shared_ffn or shape.experts.ffn
        weights += 3 * shape.hidden * width * shape.experts.shared * shape.experts.layers
    return weights


def expert_parameters(shape: Shape) -> int:
    """Weights of one routed expert in one layer; 0 without experts."""
    return 3 * shape.hidden * shape.experts.ffn if shape.experts else 0


def routed_parameters(shape: Shape) -> int:
    """Weights of all routed experts."""
    experts = shape.experts
    return expert_parameters(shape) * experts.count * experts.layers if experts else 0


def unread_parameters(shape: Shape) -> int:
    """Weights that no step multiplies: an untied embedding table is only looked up."""
    return 0 if shape.tied_embeddings else shape.vocab * shape.hidden


def total_parameters(shape: Shape) -> int:
    """All weights, without norms and biases."""
    router = shape.hidden * shape.experts.count * shape.experts.layers if shape.experts else 0
    return (
        embedding_parameters(shape)
        + attention_parameters(shape)
        + dense_ffn_parameters(shape)
        + routed_parameters(shape)
        + router
        + shape.input_projections
    )


def active_parameters(shape: Shape) -> int:
    """Weights that one token's forward pass multiplies."""
    experts = shape.experts
    idle = experts.count - experts.active if experts else 0
    inactive = expert_parameters(shape) * idle * experts.layers if experts else 0
    return total_parameters(shape) - inactive - unread_parameters(shape)
