"""Engines of equal duty: rules send each call to one of them, and the first rule that holds decides.

What an agent's earlier calls left in another engine's cache moves over the link `kv`, or is prefilled again
where there is no such link, where the rule says so, or where that is estimated to be cheaper. A drafter runs
beside its target on every engine.
"""

from __future__ import annotations

from agentsim.coexec.base import (
    Move,
    Pattern,
    PatternParts,
    Route,
    Way,
    check_fields,
    take_link,
    with_drafter,
)
from agentsim.coexec.prefill_decode import kv_sizes
from agentsim.errors import SpecError, unknown_name

_MOVES = {"cheaper": None, "move": True, "prefill": False}


def join(parts: PatternParts) -> Pattern:
    """Return the engines and the ways to them. Link, where there is one: `kv`."""
    check_fields(parts)
    deployment = parts.deployment
    if deployment.default is None:
        raise SpecError(
            f"{deployment.title}: pattern 'routed' needs a default, the engine of all other calls"
        )
    ways = (*_rules(parts), Way(deployment.default))
    for way in ways:
        if way.engine not in parts.engines:
            raise unknown_name("engine", way.engine, parts.engines)
    costs = {name: with_drafter(engine, parts.drafters) for name, engine in parts.engines.items()}
    if "kv" not in deployment.links:
        return Pattern(costs, {}, (Route(ways, {}),))
    moves = {
        name: Move("kv", *kv_sizes(parts, engine), costs[name].window_tokens, False)
        for name, engine in parts.engines.items()
    }
    return Pattern(costs, {"kv": take_link(parts, "kv")}, (Route(ways, moves),))


def _rules(parts: PatternParts) -> list[Way]:
    deployment, found = parts.deployment, []
    for rule in deployment.rules:
        if rule.kv == "move" and "kv" not in deployment.links:
            raise SpecError(
                f"{deployment.title}: a rule moves KV to '{rule.to}', but there is no link named 'kv'"
            )
        when = rule.when
        found.append(Way(rule.to, when.context_over, when.new_tokens_over, when.role, _MOVES[rule.kv]))
    return found


PLUGIN = join
