"""Prefill on one engine, decode on another; the KV cache crosses a link in between, once a call.

The prefill engine writes the first token, and its prefix cache is taken to hold what earlier calls left.
With `kv: new` the decode engine keeps the KV of earlier calls, and only the new part crosses. A drafter
runs beside its target on the decode engine alone; KV that it keeps of its own crosses with the target's.
The link is that of one pair of workers: as many transfers go on at once as there are of the fewer kind.
"""

from __future__ import annotations

from agentsim.backends.base import EngineParts
from agentsim.coexec.base import (
    Move,
    Pattern,
    PatternParts,
    Serve,
    compiled,
    need_engines,
    take_link,
    with_drafter,
)
from agentsim.specs.hardware import KV_BYTES
from agentsim.specs.model import Shape


def join(parts: PatternParts) -> Pattern:
    """Return prefill, transfer, decode. Engines: `prefill`, `decode`; link: `kv`."""
    need_engines(parts, "prefill", "decode")
    prefill, decode = parts.engines["prefill"], parts.engines["decode"]
    costs = {"prefill": compiled(prefill), "decode": with_drafter(decode, parts.drafters)}
    window = costs["decode"].window_tokens
    move = Move("kv", *kv_sizes(parts, decode), window, parts.deployment.kv == "whole")
    stages = (Serve("prefill", "prefill"), move, Serve("decode", "decode"))
    pairs = min(prefill.engine.workers, decode.engine.workers)
    return Pattern(costs, {"kv": take_link(parts, "kv")._replace(lanes=pairs)}, stages)


def kv_sizes(parts: PatternParts, engine: EngineParts) -> tuple[float, float]:
    """Return the bytes of one token's KV in layers that see everything, and in windowed ones.

    In the engine's format, each element once.
    """
    shapes = [parts.ledger.take(engine.model.shape)]
    for drafter in parts.drafters[:1]:  # of every length the same
        assert drafter.model.drafting is not None, "checked when the deployment was compiled"
        if not drafter.model.drafting.shares_kv:
            shapes += [parts.ledger.take(drafter.model.shape)]
    size = KV_BYTES[engine.engine.precision.kv]
    return size * _elements(shapes, False), size * _elements(shapes, True)


def _elements(shapes: list[Shape], windowed: bool) -> int:
    groups = [group for shape in shapes for group in shape.attention]
    return sum(g.layers * g.kv_elements() for g in groups if (g.kind == "window") == windowed)


PLUGIN = join
