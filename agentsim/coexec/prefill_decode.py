"""Prefill on one engine, decode on another; the KV cache crosses a link in between, once a call.

The prefill engine writes the first token, and its prefix cache is taken to hold what earlier calls left.
With `kv: new` the decode engine keeps the KV of earlier calls, and only the new part crosses.
"""

from __future__ import annotations

from agentsim.coexec.base import Move, Pattern, PatternParts, Serve, need_engines, take_link


def join(parts: PatternParts) -> Pattern:
    """Return prefill, transfer, decode. Engines: `prefill`, `decode`; link: `kv`."""
    need_engines(parts, "prefill", "decode")
    stages = (
        Serve("prefill", "prefill"),
        Move("kv", "decode", parts.deployment.kv == "whole"),
        Serve("decode", "decode"),
    )
    return Pattern(parts.costs, {"kv": take_link(parts, "kv")}, stages)


PLUGIN = join
