"""How many workers a measured run with separate workers had, where its row does not say.

The harness's configuration lists for each load the deployments that were started for it. A row takes what is
listed where one fits its labels; where several do, it says too little.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from agentsim.specs.harness import workers_file
from agentsim.validation.names import gpu_of, model_of
from agentsim.validation.table import Row, read_table

_LOAD = ("engine", "precision", "isl", "osl", "concurrency")
_COLUMNS = (
    *("model", "gpu", *_LOAD, "speculates"),
    *(f"{side}_{name}" for side in ("prefill", "decode") for name in ("workers", "chips", "ep", "dp")),
)


class Workers(NamedTuple):
    """Workers of one kind: how many, GPUs of each, groups that experts are spread over, attention copies."""

    number: int
    chips: int
    expert_parallel: int
    attention_dp: int


class Topology(NamedTuple):
    """A deployment with separate workers; `speculates` None: it was started with drafts and without."""

    prefill: Workers
    decode: Workers
    speculates: bool | None


def topologies_of(row: Row) -> list[Topology]:
    """Return the deployments that were started for a row's load and have its GPUs a decode worker."""
    key = (model_of(row.text("model")), gpu_of(row.text("gpu")), *_load_of(row))
    chips = max(row.count("decode_tp_size") or 0, row.count("decode_moe_ep_size") or 0)
    found = [topology for topology in _listed().get(key, []) if topology.decode.chips == chips]
    shapes = dict.fromkeys((topology.prefill, topology.decode) for topology in found)
    return [_merged([t for t in found if t[:2] == shape]) for shape in shapes]


def _merged(alike: list[Topology]) -> Topology:
    """Return deployments that differ in nothing but whether they speculate as one."""
    said = {topology.speculates for topology in alike}
    return alike[0] if len(said) == 1 else alike[0]._replace(speculates=None)


@cache
def _listed() -> dict[tuple[object, ...], list[Topology]]:
    _, rows = read_table(workers_file(), _COLUMNS)
    listed: dict[tuple[object, ...], list[Topology]] = {}
    for row in rows:
        key = (row.text("model"), row.text("gpu"), *_load_of(row))
        sides = (_workers(row, "prefill"), _workers(row, "decode"))
        listed.setdefault(key, []).append(Topology(*sides, row.text("speculates") == "yes"))
    return listed


def _load_of(row: Row) -> tuple[object, ...]:
    words, counts = _LOAD[:2], _LOAD[2:]
    return (*(row.text(name).lower() for name in words), *(row.count(name) for name in counts))


def _workers(row: Row, side: str) -> Workers:
    count, chips, experts = (row.count(f"{side}_{name}") or 1 for name in ("workers", "chips", "ep"))
    return Workers(count, chips, experts, chips if row.text(f"{side}_dp") == "yes" else 1)
