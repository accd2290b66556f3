"""The chips of one engine and the rates that its software reaches on them."""

from __future__ import annotations

from dataclasses import dataclass

from agentsim.backends.base import EngineParts
from agentsim.errors import InfeasibleError, SpecError
from agentsim.specs import catalog
from agentsim.specs.deployment import Engine
from agentsim.specs.engine import EngineProfile
from agentsim.specs.hardware import Chip, Precision
from agentsim.specs.sourced import Datum, Ledger


@dataclass(frozen=True)
class Group:
    """The chips, the engine's profile on them, and the ledger that notes what is read."""

    chip: Chip
    engine: Engine
    profile: EngineProfile
    ledger: Ledger

    @property
    def label(self) -> str:
        """The group in words, such as `2 x NVIDIA H200 SXM`."""
        return f"{self.engine.chips} x {self.chip.title}"

    @property
    def chips(self) -> int:
        """How many chips share every layer."""
        return self.engine.chips

    def bandwidth(self) -> float:
        """Memory bytes per second, all chips together, as published."""
        return self.ledger.take(self.chip.memory_bandwidth) * self.chips

    def flops(self, precision: Precision) -> float:
        """FLOPs per second that matrix products reach, all chips together."""
        peak = self.ledger.take(_of(self.chip.dense_compute, precision, self.chip.title))
        reached = _of(self.profile.gemm_efficiency, precision, self.profile.title)
        return peak * self.ledger.take(reached) * self.chips

    def attention_flops(self) -> float:
        """FLOPs per second that the prefill's attention reaches, all chips together."""
        peak = self.ledger.take(_of(self.chip.dense_compute, "bf16", self.chip.title))
        return peak * self.ledger.take(self.profile.attention_efficiency) * self.chips

    def weight_rate(self, precision: Precision) -> float:
        """Weight bytes per second in decode, all chips together."""
        reached = _of(self.profile.weight_read_efficiency, precision, self.profile.title)
        return self.bandwidth() * self.ledger.take(reached)


def _of(table: dict[Precision, Datum[float]], precision: Precision, title: str) -> Datum[float]:
    if precision not in table:
        raise InfeasibleError(f"{title} has no {precision}; it has {', '.join(table)}")
    return table[precision]


def group_of(parts: EngineParts) -> Group:
    """Return the group of an engine; the choice of its software is never silent."""
    if parts.chip.kind != "gpu":
        raise SpecError(
            f"{parts.chip.title} is no GPU: backend 'gpu' does not model it (kind: {parts.chip.kind})"
        )
    return Group(parts.chip, parts.engine, _profile(parts), parts.ledger)


def _profile(parts: EngineParts) -> EngineProfile:
    software, hardware = parts.engine.software, parts.engine.hardware
    known = [n for n in catalog.names("engines") if n.endswith(f"-{hardware}")]
    choices = [name.removesuffix(f"-{hardware}") for name in known]
    if software is not None and software.endswith((".yaml", ".yml")):
        return catalog.load(EngineProfile, software, parts.near)
    if software in choices:
        return catalog.load(EngineProfile, f"{software}-{hardware}")
    offer = f"one of {', '.join(choices)}, or " if choices else ""
    found = f"no engine profile '{software}' for it" if software else "no software is given"
    raise SpecError(
        f"engine on {parts.chip.title}: {found}. software takes {offer}the path of an engine profile "
        "(agentsim show trtllm-h200 shows what is in one)"
    )
