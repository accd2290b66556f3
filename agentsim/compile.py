"""Resolves every name and checks every fit; raises here or never. Computes nothing.

    Workflow + what `--on` names  ->  Plan
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from agentsim import plugins, yaml_file
from agentsim.backends.base import CostModel
from agentsim.errors import InfeasibleError, SpecError, unknown_name
from agentsim.plan import Plan, TokenPrices
from agentsim.specs import catalog
from agentsim.specs.deployment import Deployment, Engine
from agentsim.specs.endpoint import Endpoint
from agentsim.specs.engine import EngineProfile
from agentsim.specs.hardware import Chip
from agentsim.specs.model import Model
from agentsim.specs.sourced import Ledger
from agentsim.workflow.graph import Task, build_task
from agentsim.workflow.schema import Workflow
from agentsim.yaml_file import Document


def compile_plan(workflow: Workflow, deployment: str, overrides: Sequence[str] = ()) -> Plan:
    """Return the plan for a workflow on a deployment (a name or a path).

    Raises `UnknownNameError` or `SpecError` for what cannot be resolved, `InfeasibleError` for what
    does not fit, with what would.
    """
    name, document = catalog.deployment_document(deployment)
    document = yaml_file.with_overrides(document, overrides, SpecError)
    task = build_task(workflow)
    if catalog.is_endpoint(document):
        return _endpoint_plan(task, name, catalog.from_document(Endpoint, document, name))
    return _engine_plan(task, name, document)


def _endpoint_plan(task: Task, name: str, endpoint: Endpoint) -> Plan:
    ledger = Ledger()
    cost = plugins.load("backends", "endpoint")(endpoint, ledger)
    prices = endpoint.prices
    return Plan(
        task=task,
        deployment=name,
        title=endpoint.title,
        engines={"main": cost},
        stages=plugins.load("coexec", "single")(["main"]),
        limit_tokens=_limit(task, ledger.take_or_none(endpoint.context), endpoint.title),
        token_prices=TokenPrices(*map(ledger.take, (prices.uncached, prices.cached, prices.output)))
        if prices
        else None,
        sources=ledger.used(),
        unknown_parts=tuple(u.name for u in ledger.used() if u.basis == "unknown"),
    )


def _engine_plan(task: Task, name: str, document: Document) -> Plan:
    deployment = catalog.from_document(Deployment, document, name)
    compiler = _EngineCompiler(deployment, os.path.dirname(document.name))
    engines = {key: compiler.cost(engine) for key, engine in deployment.engines.items()}
    stages = plugins.load("coexec", deployment.pattern)(list(engines))
    limit = compiler.ledger.take_or_none(compiler.model.context)
    return Plan(
        task=task,
        deployment=name,
        title=deployment.title,
        engines=engines,
        stages=stages,
        limit_tokens=_limit(task, limit, compiler.model.title),
        usd_per_s=compiler.usd_per_s(),
        sources=compiler.ledger.used(),
    )


class _EngineCompiler:
    """Compiles the engines of one deployment and remembers the sources."""

    def __init__(self, deployment: Deployment, near: str) -> None:
        self.deployment, self.near = deployment, near
        self.ledger = Ledger()
        self.model = catalog.load(Model, deployment.model, near)
        self.chips: list[tuple[Chip, int]] = []

    def cost(self, engine: Engine) -> CostModel:
        chip = catalog.load(Chip, engine.hardware, self.near)
        self.chips.append((chip, engine.chips))
        backend = plugins.load("backends", engine.backend)
        profile = self._profile(engine, chip)
        if engine.chips < 1:
            raise SpecError(f"{self.deployment.title}: an engine needs at least 1 chip")
        cost: CostModel = backend(self.model, chip, engine, profile, self._drafter(), self.ledger)
        return cost

    def _profile(self, engine: Engine, chip: Chip) -> EngineProfile:
        known = [n for n in catalog.names("engines") if n.endswith(f"-{engine.hardware}")]
        software = [n.removesuffix(f"-{engine.hardware}") for n in known]
        if engine.software is None:
            raise SpecError(
                f"{self.deployment.title}: say which software runs on {chip.title}: {', '.join(software)}"
            )
        if engine.software.endswith(".yaml"):
            return catalog.load(EngineProfile, engine.software, self.near)
        if engine.software not in software:
            raise unknown_name(f"engine profile for {engine.hardware}", engine.software, software)
        return catalog.load(EngineProfile, f"{engine.software}-{engine.hardware}")

    def _drafter(self) -> tuple[Model, int, str] | None:
        choice = self.deployment.speculation
        if choice is None:
            return None
        drafter = catalog.load(Model, choice.drafter, self.near)
        self._check_drafter(drafter, choice.drafter)
        assert drafter.drafting is not None
        rates = drafter.drafting.acceptance
        if choice.text not in rates:
            raise unknown_name(f"kind of text for {choice.drafter}", choice.text, rates)
        depth = len(self.ledger.take(rates[choice.text]))
        if not 1 <= choice.draft_tokens <= depth:
            raise InfeasibleError(
                f"draft_tokens is {choice.draft_tokens}; acceptance of {choice.drafter} on {choice.text} "
                f"is known for 1 to {depth} drafts"
            )
        return drafter, choice.draft_tokens, choice.text

    def _check_drafter(self, drafter: Model, name: str) -> None:
        if drafter.drafting is None:
            raise SpecError(f"'{name}' is not a drafter: it has no drafting section")
        if drafter.drafting.target != self.deployment.model:
            raise InfeasibleError(
                f"'{name}' drafts for {drafter.drafting.target}, not for {self.deployment.model}"
            )

    def usd_per_s(self) -> float | None:
        """Return the price of all chips, or None where one of them has no published price."""
        prices: list[Any] = [chip.price for chip, _ in self.chips]
        if any(price is None or price.value is None for price in prices):
            return None
        return sum(self.ledger.take(p) * n for p, (_, n) in zip(prices, self.chips, strict=True))


def _limit(task: Task, model_limit: int | None, title: str) -> int | None:
    if model_limit is not None and task.system_tokens >= model_limit:
        raise InfeasibleError(
            f"the system prompt alone ({task.system_tokens:,} tokens) fills the {model_limit:,} of {title}"
        )
    limits = [limit for limit in (task.limit_tokens, model_limit) if limit is not None]
    return min(limits, default=None)
