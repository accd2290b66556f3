"""Resolves every name and checks every fit; raises here or never. Computes nothing.

Workflow + what `--on` names  ->  Plan
"""

from __future__ import annotations

from collections.abc import Sequence

from agentsim import plugins
from agentsim.coexec.base import Serve
from agentsim.errors import SpecError
from agentsim.plan import Plan, TokenPrices
from agentsim.specs import catalog
from agentsim.specs.endpoint import Endpoint
from agentsim.specs.sourced import Ledger, UsedDatum
from agentsim.workflow.graph import Task, build_task
from agentsim.workflow.schema import Workflow


def compile_plan(
    workflow: Workflow, deployment: str, overrides: Sequence[str] = (), ledger: Ledger | None = None
) -> Plan:
    """Return the plan for a workflow on a deployment (a name or a path).

    `ledger` notes the data that are read; one with other values compiles what would be if they were so.
    Raises `UnknownNameError` or `SpecError` for what cannot be resolved, `InfeasibleError` for what
    does not fit, with what would.
    """
    if deployment == catalog.RECORDED:
        return _recorded_plan(workflow)
    name, document = catalog.deployment_document(deployment)
    document = catalog.set_by_hand(document, overrides)
    task, ledger = build_task(workflow), ledger or Ledger()
    kind = catalog.kind_of_document(document)
    if kind not in ("deployments", "endpoints"):
        raise SpecError(f"{document.name}: {_not_a_deployment(kind)}")
    if kind == "endpoints":
        return _endpoint_plan(task, name, catalog.from_document(Endpoint, document, name), ledger)
    from agentsim.compile_engines import engine_plan  # an endpoint needs none of its schemas

    return engine_plan(task, name, document, ledger)


def _recorded_plan(workflow: Workflow) -> Plan:
    said = f"{workflow.source or 'the workflow file'}; agentsim import tells which were inferred"
    return Plan(
        task=build_task(workflow),
        deployment=catalog.RECORDED,
        title="as recorded",
        engines={"main": plugins.load("backends", "recorded")()},
        links={},
        stages=(Serve("main"),),
        limit_tokens=None,
        sources=(UsedDatum("recorded durations", "measured", said),),
    )


def _endpoint_plan(task: Task, name: str, endpoint: Endpoint, ledger: Ledger) -> Plan:
    cost = plugins.load("backends", "endpoint")(endpoint, ledger)
    prices = endpoint.prices
    return Plan(
        task=task,
        deployment=name,
        title=endpoint.title,
        engines={"main": cost},
        links={},
        stages=(Serve("main"),),
        limit_tokens=task.limit_below(ledger.take_or_none(endpoint.context), endpoint.title),
        token_prices=TokenPrices(*map(ledger.take, (prices.uncached, prices.cached, prices.output)))
        if prices
        else None,
        sources=ledger.used(),
        warnings=ledger.warnings(),
        unknown_parts=_unknown(endpoint),
    )


def _unknown(endpoint: Endpoint) -> tuple[str, ...]:
    parts = {
        "fixed time": endpoint.fixed,
        "time per uncached token": endpoint.per_uncached_token,
        "time per cached token": endpoint.per_cached_token,
    }
    return tuple(name for name, datum in parts.items() if datum.value is None)


def _not_a_deployment(kind: str | None) -> str:
    wanted = "a deployment has engines, an endpoint a decode_speed"
    if kind is None:
        return f"neither a deployment nor an endpoint; {wanted}"
    return f"a file of {kind}, which a deployment's engine can name; --on takes a deployment or an endpoint"
