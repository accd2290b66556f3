"""What the chips of an engine send one another in a forward pass."""

from __future__ import annotations

from dataclasses import dataclass

from agentsim.backends.gpu.group import Group
from agentsim.errors import MeasurementMissing
from agentsim.specs.engine import AllReduce
from agentsim.specs.model import Shape

ACTIVATION_BYTES = 2.0
"""Activations cross the all-reduce in bf16, whatever the weights are."""
ALL_REDUCES_PER_LAYER = 2
"""Megatron tensor parallelism: one behind the attention, one behind the MLP (Shoeybi et al. 2019)."""


@dataclass(frozen=True, slots=True)
class Collective:
    """All that is sent in one forward pass, by the small and the large protocol: start-up, time per token."""

    small_s: float = 0.0
    small_token_s: float = 0.0
    large_s: float = 0.0
    large_token_s: float = 0.0

    def time_s(self, tokens: float) -> float:
        """Return the time over `tokens`, by the faster protocol."""
        return min(
            self.small_s + tokens * self.small_token_s,
            self.large_s + tokens * self.large_token_s,
        )

    def times(self, factor: float) -> Collective:
        """Return so many times of all that is sent."""
        found = (self.small_s, self.small_token_s, self.large_s, self.large_token_s)
        return Collective(*(factor * part for part in found))

    def plus(self, start_s: float, token_s: float) -> Collective:
        """Return the same and what is sent besides, whatever the protocol."""
        return Collective(
            self.small_s + start_s,
            self.small_token_s + token_s,
            self.large_s + start_s,
            self.large_token_s + token_s,
        )


def collective_of(shape: Shape, group: Group) -> Collective | None:
    """Return what one pass sends, or None on one chip.

    Copies of the attention send each token to its experts and back, two all-to-alls a layer; chips that
    share a copy reduce its attention once. A pipeline's stage hands its activations to the next.
    """
    if group.chips == 1:
        return None
    found = Collective()
    if group.tensor_parallel > 1:
        calls = (ALL_REDUCES_PER_LAYER if group.copies == 1 else 1) * shape.layers
        found = _all_reduce(shape, group).times(calls)
        if group.copies > 1:  # each copy reduces its own tokens
            found = Collective(
                found.small_s,
                found.small_token_s / group.copies,
                found.large_s,
                found.large_token_s / group.copies,
            )
    if group.copies > 1:
        found = found.plus(*_all_to_all(shape, group))
    if group.stages > 1:
        _warn_of_domains(group)
        hop = _entry(group, 2)
        wire = shape.hidden * ACTIVATION_BYTES / group.ledger.take(hop.bandwidth)
        boundaries = group.stages - 1
        found = found.plus(boundaries * group.ledger.take(hop.latency), boundaries * wire)
    return found


def _warn_of_domains(group: Group) -> None:
    joined = group.chip.scale_up
    most = None if joined is None else group.ledger.take_or_none(joined.chips)
    if most is not None and group.chips > most:
        group.ledger.warn(
            f"extrapolated: {group.chips} GPUs are more than the {most} that one NVLink domain joins; what a "
            "stage hands to the next is timed as within one"
        )


def _all_reduce(shape: Shape, group: Group) -> Collective:
    take, entry = group.ledger.take, _entry(group, group.tensor_parallel)
    token_bytes = shape.hidden * ACTIVATION_BYTES
    return Collective(
        small_s=take(entry.latency),
        small_token_s=token_bytes / take(entry.bandwidth),
        large_s=take(entry.large_latency),
        large_token_s=token_bytes / take(entry.large_bandwidth),
    )


def _all_to_all(shape: Shape, group: Group) -> tuple[float, float]:
    """Start-up and time per token of all dispatches and combines of a pass.

    A token is sent to all chips of as many groups of experts as hold some of its own.
    """
    take, law, table = group.ledger.take, group.law, group.profile.all_reduce
    size = group.stage_chips
    if str(size) not in table and table:
        size = max(int(n) for n in table if int(n) <= size)
        group.ledger.warn(
            f"extrapolated: the exchange among {group.stage_chips} GPUs is timed as one among {size}, the "
            "most that were measured"
        )
    entry = _entry(group, size)
    groups = group.engine.expert_parallel
    chosen = min(shape.experts.active, groups) * group.stage_chips / groups if shape.experts else 1.0
    sent = chosen * shape.hidden * take(law.dispatch_bytes) / group.copies
    token_s = sent * take(law.all_to_all_share) / take(entry.large_bandwidth)
    calls = ALL_REDUCES_PER_LAYER * shape.layers
    return calls * take(entry.large_latency), calls * token_s


def _entry(group: Group, size: int) -> AllReduce:
    entry = group.profile.all_reduce.get(str(size))
    if entry is None:
        sizes = ", ".join(["1", *group.profile.all_reduce])
        raise MeasurementMissing(
            f"{group.profile.title}: no all-reduce was measured over {size} GPUs; measured: {sizes}"
        )
    return entry
