"""The chips of one engine: how they share the work, and the software's profile on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentsim.backends.base import EngineParts
from agentsim.errors import InfeasibleError, SpecError
from agentsim.specs import catalog
from agentsim.specs.deployment import Engine
from agentsim.specs.engine import EngineProfile
from agentsim.specs.hardware import Chip, Precision
from agentsim.specs.law import GpuLaw
from agentsim.specs.model import Model, Shape
from agentsim.specs.sourced import Datum, Ledger


@dataclass(frozen=True)
class Group:
    """The chips, the engine's profile on them, the law, and the ledger that notes what is read."""

    chip: Chip
    engine: Engine
    profile: EngineProfile
    law: GpuLaw
    ledger: Ledger

    @property
    def label(self) -> str:
        """The group in words, such as `2 x NVIDIA H200 SXM`."""
        return f"{self.engine.chips} x {self.chip.title}"

    @property
    def chips(self) -> int:
        """All chips of the engine."""
        return self.engine.chips

    @property
    def stages(self) -> int:
        """Groups of layers that follow one another."""
        return self.engine.pipeline_stages or 1

    @property
    def stage_chips(self) -> int:
        """Chips that hold one layer."""
        return self.chips // self.stages

    @property
    def copies(self) -> int:
        """Copies of everything but the routed experts, each with its own sequences."""
        return self.engine.attention_dp

    @property
    def tensor_parallel(self) -> int:
        """Chips that share one copy of a layer's attention."""
        return self.stage_chips // self.copies

    def bandwidth(self) -> float:
        """Memory bytes per second of the chips that hold one layer, as published."""
        return self.ledger.take(self.chip.memory_bandwidth) * self.stage_chips

    def peak(self, precision: Precision) -> float:
        """Dense FLOPs per second of the chips that hold one layer, as published."""
        return self.ledger.take(_of(self.chip.dense_compute, precision, self.chip.title)) * self.stage_chips

    def multiplied_in(self, stored: Precision) -> Precision:
        """Return the format in which weights that are stored in another are multiplied."""
        if stored not in ("nvfp4", "mxfp4", "int4"):
            return stored
        kernels = self.ledger.take(self.law.multiplied_in[stored])
        return kernels.with_fp4_units if "fp4" in self.chip.dense_compute else kernels.without


def _of(table: dict[Precision, Datum[float]], precision: Precision, title: str) -> Datum[float]:
    if precision not in table:
        raise InfeasibleError(f"{title} has no {precision}; it has {', '.join(table)}")
    return table[precision]


def group_of(parts: EngineParts) -> Group:
    """Return the group of an engine; the choice of its software is never silent.

    Raises `InfeasibleError` for a division that the model does not allow, with those that it does.
    """
    if parts.chip.kind != "gpu":
        raise SpecError(
            f"{parts.chip.title} is no GPU: backend 'gpu' does not model it (kind: {parts.chip.kind})"
        )
    law = catalog.load(GpuLaw, "gpu-law")
    group = Group(parts.chip, parts.engine, _profile(parts), law, parts.ledger)
    _check_division(group, parts.model, parts.ledger.take(parts.model.shape))
    return group


def _check_division(group: Group, model: Model, shape: Shape) -> None:
    """Refuse a parallelism that cannot be: chips over stages and copies, heads, experts, layers."""
    title, engine = model.title, group.engine
    if group.chips % (group.stages * group.copies):
        raise InfeasibleError(
            f"{group.chips} chips cannot be divided into {group.stages} pipeline stages x {group.copies} "
            f"copies of the attention; stages x copies must be one of {_listed(_divisors(group.chips))}"
        )
    width = group.tensor_parallel
    if engine.tensor_parallel not in (None, width):
        raise InfeasibleError(
            f"tensor_parallel is {engine.tensor_parallel}, but {group.chips} chips / ({group.stages} "
            f"pipeline stages x attention_dp {group.copies}) are {width}"
        )
    if group.stages > shape.layers:
        raise InfeasibleError(f"{title} has {shape.layers} layers, too few for {group.stages} stages")
    for heads in sorted({a.heads for a in shape.attention if a.heads % width}):
        raise InfeasibleError(
            f"{title}: {heads} attention heads cannot be divided among {width} chips; possible: "
            f"{_listed(n for n in _divisors(heads) if n <= 64)}"
        )
    _check_experts(group, title, shape)


def _check_experts(group: Group, title: str, shape: Shape) -> None:
    experts, parallel = shape.experts, group.engine.expert_parallel
    if experts is None and group.copies > 1:
        raise InfeasibleError(
            f"{title} has no experts to share: attention_dp {group.copies} would be so many engines of "
            f"{group.tensor_parallel} chips; give one engine's chips"
        )
    if experts is None and parallel > 1:
        raise InfeasibleError(f"{title} has no experts; expert_parallel {parallel} would divide nothing")
    if experts is None or parallel == 1:
        return
    possible = [n for n in _divisors(group.stage_chips) if experts.count % n == 0]
    if parallel not in possible:
        raise InfeasibleError(
            f"{title}: expert_parallel {parallel} does not divide {group.stage_chips} chips and "
            f"{experts.count} experts evenly; possible: {_listed(possible)}"
        )


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _profile(parts: EngineParts) -> EngineProfile:
    software, hardware = parts.engine.software, parts.engine.hardware
    known = [n for n in catalog.names("engines") if n.endswith(f"-{hardware}")]
    choices = [name.removesuffix(f"-{hardware}") for name in known]
    if software is not None and software.endswith((".yaml", ".yml")):
        profile = catalog.load(EngineProfile, software, parts.near)
        if catalog.stem(profile.hardware) != catalog.stem(hardware):
            raise SpecError(f"{software} is a profile on {profile.hardware}; the engine runs on {hardware}")
        return profile
    if software in choices:
        return catalog.load(EngineProfile, f"{software}-{hardware}")
    offer = f"one of {', '.join(choices)}, or " if choices else ""
    found = f"no engine profile '{software}' for it" if software else "no software is given"
    raise SpecError(
        f"engine on {parts.chip.title}: {found}. software takes {offer}the path of an engine profile "
        "(agentsim show trtllm-h200 shows what is in one)"
    )
