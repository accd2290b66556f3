"""The two shapes of a cost model. Read this before any backend.

An engine that we model runs *iterations*: each works on a batch of decoding sequences and at most a
token budget of prefill, and the server advances it from batch to batch (`IterationCost`). A service
that we only see from outside answers *calls*, each on its own (`ServiceCost`).

A backend module exposes `PLUGIN`, a function that compiles specs into a cost model:

    compile(EngineParts) -> IterationCost             (engines: gpu, ...)
    compile(Endpoint, Ledger) -> ServiceCost          (endpoint)
    compile() -> ReplayCost                           (recorded: each call takes what it took)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from agentsim.backends.recorded import ReplayCost

if TYPE_CHECKING:  # an endpoint needs none of these schemas
    from agentsim.specs.deployment import Engine
    from agentsim.specs.hardware import Chip
    from agentsim.specs.model import Model
    from agentsim.specs.sourced import Ledger


class Drafter(NamedTuple):
    """A small model that proposes `tokens` a step, and the kind of text its acceptance is taken for."""

    model: Model
    tokens: int
    text: str

    def acceptance(self, ledger: Ledger) -> tuple[float, ...]:
        """Return the chance that draft 1, 2, ... is accepted, given that all before it were."""
        assert self.model.drafting is not None, "checked when the deployment was compiled"
        return ledger.take(self.model.drafting.acceptance[self.text])[: self.tokens]


class EngineParts(NamedTuple):
    """What an engine is made of. Data are read through the ledger, so that the run can list them.

    `near` is the folder of the deployment's file: references that end in `.yaml` start there.
    """

    model: Model
    chip: Chip
    engine: Engine
    drafter: Drafter | None
    ledger: Ledger
    near: str


class Batch(NamedTuple):
    """What one iteration works on. Sums run over the decoding sequences.

    `window` sums min(context, window of the model); it is 0 where the model has no window.
    `prefill_pairs` counts (query, key) pairs that the prefill's attention forms over a full context,
    `prefill_window_pairs` those inside the model's window. `prefill_requests` counts the prompts that the
    prefill tokens belong to.
    """

    sequences: int
    context: float
    window: float
    prefill_tokens: int = 0
    prefill_pairs: float = 0.0
    prefill_window_pairs: float = 0.0
    prefill_requests: int = 0

    @property
    def of_decode(self) -> Batch:
        """The same without its prefill."""
        return Batch(self.sequences, self.context, self.window)

    @property
    def of_prefill(self) -> Batch:
        """The same without its decoding sequences."""
        return self._replace(sequences=0, context=0.0, window=0.0)


class Tier(NamedTuple):
    """A memory behind the engine's own that evicted KV goes to: what it holds, how fast it gives it back."""

    name: str
    capacity_bytes: float
    bytes_per_s: float


class Hold(NamedTuple):
    """How long calls wait beside sequences that decode before the engine lets them in.

    Plain: at every `iterations`-th decode iteration after the last prefill or the last time, and whenever an
    iteration prefilled or nothing decodes. With `copies` of the attention: as soon as one waits for each of
    them or fewer sequences decode. With `share`: counted from the first that waits, or as soon as prompts
    that fit the token budget fill that share of it.
    """

    iterations: int
    copies: int = 0
    share: float | None = None

    @property
    def from_first(self) -> bool:
        return self.share is not None

    @property
    def again(self) -> bool:
        """Whether a call that was let in and found no room must wait again."""
        return bool(self.copies) or self.from_first


class ServingRules(NamedTuple):
    """What an engine's software does with its queue and its KV memory.

    KV is held in blocks of `block_tokens`, and only whole ones are reused. `prefill_first`: while prompts
    wait, iterations prefill and decode nothing; otherwise decode comes first, and prompts get what is left
    of the token budget. `reserve`: a call is admitted when its prompt and all its output fit, and is never
    interrupted; otherwise when its prompt fits, and when blocks run out the call admitted last is put back
    and its KV computed again. `whole_prompts`: a prompt is not split over iterations unless it is longer than
    all of the budget. `hold`: None where calls are looked at before every iteration. `tiers`: nearest first.
    `copies` of the attention have each their share of the KV memory, and a call lies on one of them.
    """

    block_tokens: int = 1
    prefill_first: bool = False
    reserve: bool = True
    whole_prompts: bool = False
    hold: Hold | None = None
    tiers: tuple[Tier, ...] = ()
    copies: int = 1


@runtime_checkable
class IterationCost(Protocol):
    """What an iteration of one engine costs.

    Contract: pure; `iteration_s` > 0 for a batch that is not empty (a clock that stands still would
    never end); affine in `context`, `window` and the pairs while the rest is held and the KV stays on one
    side of `kv_knee_bytes` (the server sums runs of iterations as arithmetic series); never falls when any
    field grows, but for `prefill_requests` (as many tokens of more prompts find more chips to lie on) and
    for `sequences` of a pipeline or of copies of the attention (more of them share out the same context).
    """

    @property
    def window_tokens(self) -> int | None:
        """Width of the model's sliding window, or None."""
        ...

    @property
    def kv_capacity_bytes(self) -> float:
        """Room for KV beside the weights, over all chips."""
        ...

    @property
    def kv_knee_bytes(self) -> float:
        """KV in near memory; what goes beyond costs more to read. Infinite where there is one memory."""
        ...

    @property
    def batched_tokens(self) -> int:
        """Token budget of one iteration."""
        ...

    @property
    def max_sequences(self) -> int:
        """Sequences that run at once."""
        ...

    @property
    def rules(self) -> ServingRules:
        """How the engine schedules calls and keeps their KV."""
        ...

    @property
    def tokens_per_step(self) -> float:
        """Tokens that one sequence gains in one decode iteration, on average; 1 without speculation."""
        ...

    @property
    def verified_tokens(self) -> int:
        """Tokens of one sequence that an iteration checks: 1, or the drafts and one more."""
        ...

    @property
    def request_s(self) -> float:
        """Fixed time of a request before its prefill may start."""
        ...

    def iteration_s(self, batch: Batch) -> float:
        """Return the seconds that one iteration over `batch` takes."""
        ...

    def kv_bytes(self, context: float, window: float) -> float:
        """Return the bytes held by sequences whose contexts and windows sum to these."""
        ...


class ServiceTime(NamedTuple):
    """What one call to a service costs, and whether a measured table had to be stretched for it."""

    prefill_s: float
    decode_s: float
    extrapolated: bool


@runtime_checkable
class ServiceCost(Protocol):
    """What a call to a service costs, whatever else it serves.

    Contract: pure; never falls when any argument grows, but for a published decode speed that rises
    with context.
    """

    @property
    def cache_lifetime_s(self) -> float | None:
        """How long an unused prefix stays cached; None: no limit is known."""
        ...

    def call(self, uncached_tokens: int, cached_tokens: int, output_tokens: int) -> ServiceTime:
        """Return the time of one call; decode covers `output_tokens`."""
        ...


def expected_tokens(acceptance: tuple[float, ...]) -> float:
    """Return the mean tokens a step yields: 1 + the sum over positions of the product of acceptances."""
    total = running = 1.0
    for rate in acceptance:
        running *= rate
        total += running
    return total


def prefill_s(cost: IterationCost, start: int, end: int) -> float:
    """Return the seconds that an idle engine takes for tokens `start` to `end` of a prompt."""
    total, window = 0.0, cost.window_tokens or 0
    while start < end:
        chunk = min(end - start, cost.batched_tokens)
        pairs = chunk * start + chunk * (chunk + 1) / 2
        total += cost.iteration_s(Batch(0, 0.0, 0.0, chunk, pairs, min(pairs, float(chunk * window))))
        start += chunk
    return total


CostModel = IterationCost | ServiceCost | ReplayCost
