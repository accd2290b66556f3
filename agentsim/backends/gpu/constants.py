"""What an engine's kernels and host reach, for one class of model in one format of its weights."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from agentsim.backends.gpu.group import Group
from agentsim.errors import InfeasibleError
from agentsim.specs.engine import ModelClass, ServingConstants
from agentsim.specs.hardware import WEIGHT_BYTES, Precision
from agentsim.specs.sourced import Datum

_KERNELS_ALONE = (
    "optimistic: no serving run of {software} on {hardware} with mixtures of experts in {stored} is known; "
    "the engine's constants are of dense models' kernels"
)


@dataclass(frozen=True, slots=True)
class Constants:
    """Shares of peaks and fixed times; see `specs/engine.py`. `packed` weights are in the checkpoint's
    format, `kept` ones in the bf16 that it keeps; `skew` is infinite where routing is taken as even.
    """

    layer_s: float
    iteration_s: float
    sequence_s: float
    prefill_s: float
    request_s: float
    packed_read: float
    kept_read: float
    expert_read: float
    kv_read: float
    packed_gemm: float
    kept_gemm: float
    expert_gemm: float
    attention_share: float
    skew: float


def constants_of(group: Group, stored: Precision, kind: ModelClass) -> Constants:
    """Return the constants of serving where a run was fitted, else those of single kernels, and warn."""
    serving = group.profile.serving.get(kind, {}).get(stored)
    if serving is not None:
        return _serving(group, stored, serving)
    if kind == "moe":
        profile = group.profile
        names = {"software": profile.software, "hardware": profile.hardware, "stored": stored}
        group.ledger.warn(_KERNELS_ALONE.format(**names))
    return _kernels(group, stored)


def _serving(group: Group, stored: Precision, serving: ServingConstants) -> Constants:
    take = group.ledger.take
    read, gemm = serving.weight_read_efficiency, serving.gemm_efficiency
    packed, kept = (take(read),) * 2 if read is not None else _kernel_reads(group, stored)
    packed_gemm, kept_gemm = (take(gemm),) * 2 if gemm is not None else _kernel_gemms(group, stored)
    experts = serving.expert_gemm_efficiency
    return Constants(
        layer_s=take(serving.layer_overhead),
        iteration_s=take(serving.iteration_overhead),
        sequence_s=take(serving.sequence_overhead),
        prefill_s=take(serving.prefill_overhead),
        request_s=take(serving.request_overhead),
        packed_read=packed,
        kept_read=kept,
        expert_read=packed
        if serving.expert_read_efficiency is None
        else take(serving.expert_read_efficiency),
        kv_read=take(serving.kv_read_efficiency),
        packed_gemm=packed_gemm,
        kept_gemm=kept_gemm,
        expert_gemm=packed_gemm if experts is None else take(experts),
        attention_share=take(group.law.attention_share),
        skew=inf if serving.expert_skew is None else take(serving.expert_skew),
    )


def _kernels(group: Group, stored: Precision) -> Constants:
    take, profile = group.ledger.take, group.profile
    packed, kept = _kernel_reads(group, stored)
    packed_gemm, kept_gemm = _kernel_gemms(group, stored)
    return Constants(
        layer_s=take(profile.layer_overhead),
        iteration_s=0.0,
        sequence_s=0.0,
        prefill_s=0.0,
        request_s=take(profile.request_overhead),
        packed_read=packed,
        kept_read=kept,
        expert_read=packed,
        kv_read=take(profile.kv_read_efficiency),
        packed_gemm=packed_gemm,
        kept_gemm=kept_gemm,
        expert_gemm=packed_gemm,
        attention_share=take(profile.attention_efficiency),
        skew=inf,
    )


def _kernel_reads(group: Group, stored: Precision) -> tuple[float, float]:
    """Shares of the bandwidth at which weights of the checkpoint's format and those it keeps are read."""
    table = group.profile.weight_read_efficiency
    family: Precision = "fp4" if WEIGHT_BYTES[stored] == WEIGHT_BYTES["fp4"] else stored
    known = next((p for p in (stored, family) if p in table), None)
    if known is None and family == "fp4" and group.multiplied_in(stored) != "fp4":
        known = _kept(table)  # widened on the way in: read by the kernels of the wider format
    return _reached(group, table, known or stored), _reached(group, table, _kept(table))


def _kernel_gemms(group: Group, stored: Precision) -> tuple[float, float]:
    """Shares of the peak at which weights of the checkpoint's format and those it keeps are multiplied."""
    table = group.profile.gemm_efficiency
    return _reached(group, table, group.multiplied_in(stored)), _reached(group, table, _kept(table))


def _kept(table: dict[Precision, Datum[float]]) -> Precision:
    """The format nearest to the bf16 that checkpoints keep of which a profile says anything."""
    return max(table, key=lambda p: WEIGHT_BYTES[p])


def _reached(group: Group, table: dict[Precision, Datum[float]], precision: Precision) -> float:
    if precision not in table:
        raise InfeasibleError(f"{group.profile.title} has no {precision}; it has {', '.join(table)}")
    return group.ledger.take(table[precision])
