"""What the parallelism labels of a measured run mean.

A run names `tp`, `attention_dp`, `moe_tp` and `moe_ep`. In places a label is the product of two others
(8 GPUs with `moe_tp` 8 and `moe_ep` 8 stand there as `tp` 64), and with attention data parallelism the
other labels differ by engine. The number of GPUs is what all of them agree on.
"""

from __future__ import annotations

from typing import NamedTuple


class Parallelism(NamedTuple):
    """GPUs of one engine, in how many groups attention is replicated, over how many experts are spread."""

    chips: int
    attention_dp: int
    expert_parallel: int
    assumed: tuple[str, ...] = ()


def parallelism_of(tp: int, attention_dp: int | None, moe_tp: int, moe_ep: int) -> Parallelism:
    """Return the parallelism of one engine; `attention_dp` None: not given."""
    if attention_dp is None:
        return _derived(tp, moe_tp, moe_ep)
    if attention_dp > 1:
        return _replicated(tp, attention_dp, moe_tp, moe_ep)
    if moe_tp == moe_ep > 1 and tp == moe_tp * moe_ep:
        return Parallelism(moe_tp, 1, moe_ep, (f"tp {tp} is the product {moe_tp} x {moe_ep}",))
    return Parallelism(max(tp, 1), 1, max(moe_ep, 1))


def dense_parallelism(tp: int) -> Parallelism:
    """Return the parallelism of a model without experts: tensor parallelism alone."""
    return Parallelism(max(tp, 1), 1, 1)


def _derived(tp: int, moe_tp: int, moe_ep: int) -> Parallelism:
    chips = max(tp, moe_tp * moe_ep, 1)
    replicas = max(chips // max(tp, 1), 1)
    why = (f"attention_dp is not given: {replicas}, so that tp {tp} covers {chips} GPUs",)
    return Parallelism(chips, replicas, max(moe_ep, 1), why)


def _replicated(tp: int, attention_dp: int, moe_tp: int, moe_ep: int) -> Parallelism:
    """Every GPU does the attention of its own sequences, and experts are spread over all GPUs."""
    if moe_tp == moe_ep > 1 and moe_tp * moe_ep == attention_dp:
        chips, why = moe_tp, f"attention_dp {attention_dp} is the product {moe_tp} x {moe_ep}"
    elif tp == attention_dp and moe_ep == tp * attention_dp:
        chips, why = tp, f"moe_ep {moe_ep} is the product {tp} x {attention_dp}"
    else:
        chips, why = max(tp, moe_tp * moe_ep), ""
    return Parallelism(chips, chips, chips, (why,) if why else ())
