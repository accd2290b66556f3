"""What the compiler lays out for one layer, and for what comes before and after all of them.

Tensor parallelism by slices of the output: every chip holds some rows of each matrix, computes its slice
from a whole copy of the input, and sends it to all others, each vector when it is computed. A layer has
four such exchanges (attention, its output, inner MLP, its output), two more where several chips share
a head's context. (Sums of partial results instead need two exchanges a layer, of larger tensors in a wider
format. For steps of one row they would be cheaper: on 16 LPUs about 2 x (0.35 + 0.215) us a layer against
four times 0.35 us and more. The bytes grow with the rows, and what is saved in hops is lost once a step
checks drafts. They are not laid out, so that one-row steps, of the target without drafts and of the
drafter, are upper bounds in this respect.)

Experts are sliced over all chips of a stage like dense MLPs, not placed whole: a schedule made before the
run cannot depend on which experts a token will choose, and this way it does not.

Products read operands of the weights' width; residual sums cross the links in 16 bit. Norms are done by
every chip, and end one layer's overlap with the next, since they need the whole tensor: so the times of
layers add up exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentsim.backends.lpx import chip as units
from agentsim.backends.lpx.chip import FLOPS_PER_WEIGHT, Lpu
from agentsim.backends.lpx.fabric import Level, Span
from agentsim.backends.lpx.schedule import COMPILED, Options, Ready, Schedule, Slice, Timeline, Work, joined
from agentsim.backends.lpx.shapes import Attention, FeedForward, Layer
from agentsim.specs.hardware import WEIGHT_BYTES

RESIDUAL_BYTES = WEIGHT_BYTES["bf16"]
"""Partial attention and residual sums keep 16 bit."""
CANDIDATE_BYTES = 8
"""A candidate token on its way to the others: its logit and its number, four bytes each."""
ATTENTION_BLOCKS = 8
"""Pieces in which the context passes from scores to softmax to values; finer ones change little."""

Tensor = list[Ready]


@dataclass(frozen=True)
class Stage:
    """What all programs of a stage share: the chips it spreads over, sizes of formats, the compiler.

    `lenders`: where the KV of layers that see everything is spread over the stages beside this one, each
    of which attends to its piece of the context; queries go out to them and partial results come back.
    """

    lpu: Lpu
    spans: tuple[Span, ...]
    chips: int
    weight_bytes: float
    kv_bytes: float
    lenders: Span | None = None
    options: Options = COMPILED

    def timeline(self, rows: int) -> Timeline:
        """Return an empty layout for `rows` tokens at once."""
        return Timeline(self.lpu.vector_bytes, rows, self.chips, self.options)

    def part(self, elements: float, size: float, rows: int) -> Slice:
        """Return one chip's slice of a tensor of `rows` times `elements`.

        It leaves in as many blocks as it has vectors for one row; slices of several rows are packed.
        """
        one_row = elements * size / self.chips
        blocks = self.lpu.vectors(one_row)
        return Slice(blocks, self.lpu.vectors(one_row * rows / blocks))

    def whole(self, elements: float, size: float, rows: int) -> Ready:
        """Return `rows` times `elements` that one chip holds from the start."""
        blocks = self.lpu.vectors(elements * size)
        return Ready(0, blocks=blocks, vectors=self.lpu.vectors(elements * size * rows / blocks))

    def head_spans(self, chips: float) -> tuple[Span, ...]:
        """Return what the chips that share one head spread over, near levels first filled."""
        left, found = round(chips), []
        for span in reversed(self.spans):
            size = min(span.size, left)
            left = -(-left // size)
            if size > 1:
                found.append(Span(span.level, size))
        return tuple(reversed(found))

    def product(self, read: float, used: float, rows: int) -> Work:
        """Return the work of this chip's share of a matrix: weights read once, used by each row."""
        flops = FLOPS_PER_WEIGHT * used * rows / self.chips
        read_ps = self.lpu.read_ps(read * self.weight_bytes / self.chips)
        return Work(self.lpu.multiply_ps(flops), read_ps, self.lpu.matrix_fill_ps)

    def elementwise(self, operations: float) -> Work:
        return Work(self.lpu.elementwise_ps(operations), 0, self.lpu.vector_start_ps)


def layer_schedule(
    stage: Stage, layer: Layer, rows: int, context: float, window: float, onward: Sequence[Level] = ()
) -> Schedule:
    """Lay out one layer for `rows` tokens that attend to `context` (or `window`) tokens each.

    `onward`: the hops to the next stage, where the result is gathered instead of here.
    """
    time = stage.timeline(rows)
    norm = stage.elementwise(units.NORM_OPERATIONS * layer.hidden * rows)
    state = time.stream("vector", [Ready(0)], norm, "norm")
    seen = context if layer.attention.window is None else window
    mixed = _attend(stage, time, layer.attention, state, seen)
    update = _multiply_and_gather(stage, time, mixed, layer.attention.out_weights, layer.hidden, "output")
    state = time.stream("vector", _whole(update), norm, "norm")
    result = _mlp(stage, time, layer.hidden, layer.feed_forward, state)
    result = time.pass_on(onward, result, stage.chips, "to the next stage")
    return time.finish(time.gather(stage.spans, result, "down"))


def feed_forward_schedule(stage: Stage, hidden: int, shape: FeedForward, rows: int) -> Schedule:
    """Lay out the norm and the MLP of one layer alone, for `rows` tokens that every chip has received.

    Two exchanges, three where there is a router; the last one brings the result to where it leaves.
    """
    time = stage.timeline(rows)
    norm = stage.elementwise(units.NORM_OPERATIONS * hidden * rows)
    state = time.stream("vector", [Ready(0)], norm, "norm")
    return time.finish(time.gather(stage.spans, _mlp(stage, time, hidden, shape, state), "down"))


def entry_schedule(
    stage: Stage, hidden: int, rows: int, back: Sequence[Level], onward: Sequence[Level], tied: bool
) -> Schedule:
    """Lay out the look-up of `rows` tokens: from the last stage, one chip's rows to all of the first.

    A tied table lies with the output head, so that whole rows return; else the tokens' numbers do.
    `onward`: the way to the first layers, where the first stage holds the table alone.
    """
    time = stage.timeline(rows)
    row = [stage.whole(hidden, RESIDUAL_BYTES, rows)]
    if tied:
        row = time.pass_on([*back, *onward], row, 1, "embedding")
        return time.finish(time.spread(stage.spans, row, "embedding"))
    number = time.pass_on(back, [stage.whole(CANDIDATE_BYTES, 1, rows)], 1, "token")
    row = [joined(number)._replace(blocks=row[0].blocks, vectors=row[0].vectors)]
    row = time.pass_on(onward, row, 1, "embedding")
    return time.finish(time.spread(stage.spans, row, "embedding"))


def exit_schedule(stage: Stage, hidden: int, vocab: int, rows: int) -> Schedule:
    """Lay out the last norm, the output head and the choice of the next token by every chip."""
    time = stage.timeline(rows)
    norm = stage.elementwise(units.NORM_OPERATIONS * hidden * rows)
    state = time.stream("vector", [Ready(0)], norm, "norm")
    head = float(hidden) * vocab
    size = stage.part(vocab, RESIDUAL_BYTES, rows)
    logits = time.contract(state, size, stage.product(head, head, rows), "head")
    sample = stage.elementwise(units.SAMPLE_OPERATIONS * vocab * rows / stage.chips)
    best = time.stream("vector", logits, sample, "sample")
    each = stage.lpu.vectors(CANDIDATE_BYTES * rows)
    own = [joined(best)._replace(vectors=each)]
    chosen = time.gather(stage.spans, own, "candidates")
    pick = stage.elementwise(units.SAMPLE_OPERATIONS * stage.chips * rows)
    return time.finish(time.stream("vector", _whole(chosen), pick, "pick"))


def join_schedule(stage: Stage, weights: int, hidden: int, rows: int) -> Schedule:
    """Lay out a drafter's input: the target's state beside the token's embedding, projected and shared."""
    time = stage.timeline(rows)
    gathered = _multiply_and_gather(stage, time, [Ready(0)], weights, hidden, "join")
    return time.finish(gathered)


def _multiply_and_gather(
    stage: Stage, time: Timeline, state: Tensor, weights: int, elements: int, label: str
) -> Tensor:
    work = stage.product(weights, weights, time.rows)
    slices = time.contract(state, stage.part(elements, RESIDUAL_BYTES, time.rows), work, label)
    return time.gather(stage.spans, slices, label)


def _attend(stage: Stage, time: Timeline, shape: Attention, state: Tensor, context: float) -> Tensor:
    """Project, attend to the cached context, and gather the heads' results."""
    rows, shared = time.rows, stage.head_spans(shape.head_chips(stage.chips))
    query = _query(stage, time, shape, state, shared)
    if stage.lenders is not None and shape.window is None:
        mixed = _mix_apart(stage, stage.lenders, time, shape, query, context)
    else:
        mixed = _mix(stage, time, shape, query, context)
    if shared:
        part = stage.part(shape.mixed_elements, RESIDUAL_BYTES, rows)
        partial = shape.mixed_elements * shape.head_chips(stage.chips) / stage.chips
        mixed = time.exchange(shared, mixed, part, "merge")
        mixed = time.stream("vector", _whole(mixed), stage.elementwise(2.0 * partial * rows), "merge")
    size = stage.part(shape.out_elements, stage.weight_bytes, rows)
    if shape.up_weights:
        work = stage.product(shape.up_weights, shape.up_weights, rows)
        mixed = time.contract(mixed, size, work, "value up")
    elif shared:
        mixed = [mixed[0]._replace(blocks=size.blocks, vectors=size.vectors)]
    return time.gather(stage.spans, mixed, "attention")


def _query(stage: Stage, time: Timeline, shape: Attention, state: Tensor, shared: Sequence[Span]) -> Tensor:
    rows, size = time.rows, stage.weight_bytes
    if shape.down_weights:
        state = _multiply_and_gather(stage, time, state, shape.down_weights, shape.down_elements, "down")
    weights = shape.query_weights + shape.kv_weights * shape.held
    part = stage.part(shape.query_elements, size, rows)
    query = time.contract(state, part, stage.product(weights, weights, rows), "query, key, value")
    rotate = units.ROTATE_OPERATIONS * shape.query_elements * rows / stage.chips
    query = time.stream("vector", query, stage.elementwise(rotate), "rotate")
    return time.gather(shared, query, "query") if shared else query


def _mix(stage: Stage, time: Timeline, shape: Attention, query: Tensor, context: float) -> Tensor:
    """Scores, softmax and values over the context, block by block; each KV byte is read once."""
    lpu, pairs = stage.lpu, context * time.rows / stage.chips
    read_ps = lpu.read_ps(context * shape.kv_elements * stage.kv_bytes * shape.held / stage.chips / 2)
    blocks = [_whole(query)[0]._replace(blocks=1)] * ATTENTION_BLOCKS
    score = Work(lpu.multiply_ps(pairs * shape.score_flops), read_ps, lpu.matrix_fill_ps)
    blocks = time.stream("matrix", blocks, score, "scores")
    operations = units.SOFTMAX_OPERATIONS * shape.heads * pairs
    softmax = Work(lpu.elementwise_ps(operations), 0, lpu.softmax_start_ps)
    blocks = time.stream("vector", blocks, softmax, "softmax")
    value = Work(lpu.multiply_ps(pairs * shape.value_flops), read_ps, lpu.matrix_fill_ps)
    part = stage.part(shape.mixed_elements, stage.weight_bytes, time.rows)
    return time.contract(blocks, part, value, "values")


def _mix_apart(
    stage: Stage, lenders: Span, time: Timeline, shape: Attention, query: Tensor, context: float
) -> Tensor:
    """As `_mix`, with the context in equal pieces on this stage and those beside it."""
    copies = shape.head_chips(stage.chips)
    own = stage.part(shape.query_elements * copies, stage.weight_bytes, time.rows)
    begin = _whole(query)[0]._replace(blocks=own.blocks, vectors=own.vectors)
    sent = time.lend(lenders, [begin], "query to other stages")
    partial = shape.mixed_elements * copies
    found = _mix(stage, time, shape, sent, context / lenders.size)
    part = stage.part(partial, RESIDUAL_BYTES, time.rows)
    found = [_whole(found)[0]._replace(blocks=part.blocks, vectors=part.vectors)]
    back = _whole(time.collect(lenders, found, "values of other stages"))
    merge = stage.elementwise(2.0 * lenders.size * partial * time.rows / stage.chips)
    merged = time.stream("vector", back, merge, "merge stages")
    final = stage.part(shape.mixed_elements, stage.weight_bytes, time.rows)
    return [merged[-1]._replace(blocks=final.blocks, vectors=final.vectors)]


def _feed_forward(stage: Stage, time: Timeline, hidden: int, shape: FeedForward, state: Tensor) -> Tensor:
    """Choose experts where there are any, multiply by gate and up, and gather the products."""
    rows = time.rows
    if shape.experts:
        router = hidden * shape.router_elements
        scores = _multiply_and_gather(stage, time, state, router, shape.router_elements, "router")
        pick = stage.elementwise(units.SAMPLE_OPERATIONS * shape.router_elements * rows)
        state = time.stream("vector", _whole(scores), pick, "router")
    work = stage.product(shape.read(rows) * 2 / 3, shape.used * 2 / 3, rows)
    size = stage.part(shape.elements, stage.weight_bytes, rows)
    inner = time.contract(state, size, work, "gate and up")
    gate = stage.elementwise(units.GATE_OPERATIONS * shape.elements * rows / stage.chips)
    return time.gather(stage.spans, time.stream("vector", inner, gate, "gate"), "inner")


def _mlp(stage: Stage, time: Timeline, hidden: int, shape: FeedForward, state: Tensor) -> Tensor:
    """Return each chip's slice of what the MLP makes of a normed state."""
    inner = _feed_forward(stage, time, hidden, shape, state)
    work = stage.product(shape.read(time.rows) / 3, shape.used / 3, time.rows)
    return time.contract(inner, stage.part(hidden, RESIDUAL_BYTES, time.rows), work, "down")


def _whole(tensor: Tensor) -> Tensor:
    """Return one block that is there when the whole tensor is: what follows needs all of it."""
    return [joined(tensor)]
