"""Resolves every name of a deployment of engines and checks every fit; raises here or never."""

from __future__ import annotations

import os

from agentsim import plugins
from agentsim.backends.base import Drafter, EngineParts
from agentsim.coexec.base import PatternParts
from agentsim.errors import InfeasibleError, SpecError, unknown_name
from agentsim.plan import Plan, Plant, Routing
from agentsim.specs import catalog
from agentsim.specs.deployment import OF_GPUS, OF_LPUS, Deployment, Engine, Speculation
from agentsim.specs.hardware import Chip
from agentsim.specs.model import Model
from agentsim.specs.router import load_router_rule
from agentsim.specs.sourced import Ledger
from agentsim.workflow.graph import Task
from agentsim.yaml_file import Document

MAX_REPLICAS = 10_000


def engine_plan(task: Task, name: str, document: Document, ledger: Ledger) -> Plan:
    """Return the plan of a task on a deployment of engines. Raises as `compile.compile_plan` does."""
    deployment = catalog.from_document(Deployment, document, name)
    compiler = _EngineCompiler(deployment, os.path.dirname(document.name), ledger)
    pattern = plugins.load("coexec", deployment.pattern)(compiler.parts())
    routing = routing_of(deployment, compiler.ledger)
    return Plan(
        task=task,
        deployment=name,
        title=deployment.title,
        engines=pattern.engines,
        links=pattern.links,
        stages=pattern.stages,
        limit_tokens=task.limit_below(*compiler.limit()),
        usd_per_s=compiler.usd_per_s(),
        pace_sigma=compiler.pace_sigma,
        sources=compiler.ledger.used(),
        warnings=compiler.ledger.warnings(),
        unknown_parts=compiler.ledger.left_out(),
        routing=routing,
        workers={name: e.workers for name, e in deployment.engines.items() if e.workers > 1},
        plant=compiler.plant(),
    )


class _EngineCompiler:
    """Resolves the engines of one deployment and remembers the sources."""

    def __init__(self, deployment: Deployment, near: str, ledger: Ledger) -> None:
        self.deployment, self.near, self.ledger = deployment, near, ledger
        self.models = {deployment.model: catalog.load(Model, deployment.model, near)}
        self.chips: list[tuple[Chip, int]] = []
        self.pace_sigma = 0.0

    def parts(self) -> PatternParts:
        """Return what the deployment's pattern joins."""
        self._check_model()
        drafters = tuple(self._drafters())
        engines = {name: self._engine(engine) for name, engine in self.deployment.engines.items()}
        return PatternParts(self.deployment, engines, drafters, self.ledger)

    def _check_model(self) -> None:
        name = self.deployment.model
        drafting = self.models[name].drafting
        if drafting is not None and (drafting.shares_embeddings or drafting.shares_kv):
            raise SpecError(
                f"{self.deployment.title}: '{name}' drafts for {drafting.target}; it stands under "
                f"speculation, and model is {drafting.target}"
            )

    def _engine(self, engine: Engine) -> EngineParts:
        chip, estimate = catalog.load(Chip, engine.hardware, self.near), engine.chips_estimate
        if estimate is not None and estimate.value == engine.chips:
            engine = engine.model_copy(update={"chips": self.ledger.take(estimate)})
        self.chips.append((chip, engine.chips * engine.workers))
        if engine.chips < 1:
            raise SpecError(f"{self.deployment.title}: an engine needs at least 1 chip")
        others = [n for n in OF_GPUS if engine.backend == "lpx" and n in engine.model_fields_set]
        if others:
            raise SpecError(f"{self.deployment.title}: {others[0]} is of GPUs; an lpx engine has none")
        others = [n for n in OF_LPUS if engine.backend == "gpu" and n in engine.model_fields_set]
        if others:
            raise SpecError(f"{self.deployment.title}: {others[0]} is of LPUs; a gpu engine has none")
        if engine.backend == "endpoint":
            raise SpecError(
                f"{self.deployment.title}: an engine is a gpu or an lpx; an endpoint has its own file"
            )
        name = engine.model or self.deployment.model
        model = self.models.setdefault(name, catalog.load(Model, name, self.near))
        return EngineParts(model, chip, engine, None, self.ledger, self.near)

    def limit(self) -> tuple[int | None, str]:
        """Return the smallest context among the models that engines run, and the model that has it."""
        limits = [(self.ledger.take_or_none(m.context), m.title) for m in self.models.values()]
        known = [(limit, title) for limit, title in limits if limit is not None]
        return min(known) if known else limits[0]

    def _drafters(self) -> list[Drafter]:
        choice = self.deployment.speculation
        if choice is None:
            return []
        drafter = drafter_model(choice, self.deployment.model, self.near)
        depth = drafts_known(choice, drafter, self.ledger)
        spread = drafter.drafting.spread if drafter.drafting else None
        self.pace_sigma = self.ledger.take_or_none(spread) or 0.0
        if choice.draft_tokens is None:
            return [Drafter(drafter, tokens, choice.text) for tokens in range(1, depth + 1)]
        if not 1 <= choice.draft_tokens <= depth:
            raise InfeasibleError(
                f"draft_tokens is {choice.draft_tokens}; acceptance of {choice.drafter} on {choice.text} "
                f"is known for 1 to {depth} drafts"
            )
        return [Drafter(drafter, choice.draft_tokens, choice.text)]

    def plant(self) -> Plant:
        """Return the chips of all replicas. The ledger of the times does not know of their power."""
        ledger, copies = Ledger(), self.deployment.replicas
        each = [(ledger.take_or_none(chip.power), count) for chip, count in self.chips]
        known = [watts * count for watts, count in each if watts is not None]
        watts = copies * sum(known) if len(known) == len(each) else None
        return Plant(copies * sum(count for _, count in self.chips), watts, ledger.used())

    def usd_per_s(self) -> float | None:
        """Return the price of all chips, or None where one of them has no published price."""
        total = 0.0
        for chip, count in self.chips:
            price = self.ledger.take_or_none(chip.price)
            if price is None:
                return None
            total += price * count
        return total * self.deployment.replicas


def routing_of(deployment: Deployment, ledger: Ledger) -> Routing:
    """Return how calls find a replica. Raises `SpecError` where there are too many to simulate."""
    replicas, policy = deployment.replicas, deployment.router
    workers = max((engine.workers for engine in deployment.engines.values()), default=1)
    if replicas * workers > MAX_REPLICAS:
        many = f"{replicas:,} replicas" + (f" of {workers:,} workers" if workers > 1 else "")
        raise SpecError(f"{deployment.title}: {many}; at most {MAX_REPLICAS:,} are simulated")
    if replicas * workers == 1 or policy != "prefix_aware":
        return Routing(replicas, policy)
    rule = load_router_rule()
    match, ahead, times = rule.least_match, rule.calls_ahead, rule.times_ahead
    return Routing(replicas, policy, ledger.take(match), ledger.take(ahead), ledger.take(times))


def drafter_model(choice: Speculation, model: str, near: str) -> Model:
    """Return the model that drafts for `model`.

    Raises `SpecError` where it drafts for none, `InfeasibleError` where it drafts for another.
    """
    drafter = catalog.load(Model, choice.drafter, near)
    if drafter.drafting is None:
        raise SpecError(f"'{choice.drafter}' is not a drafter: it has no drafting section")
    if drafter.drafting.target != model:
        raise InfeasibleError(f"'{choice.drafter}' drafts for {drafter.drafting.target}, not for {model}")
    return drafter


def drafts_known(choice: Speculation, drafter: Model, ledger: Ledger) -> int:
    """Return for how many drafts the acceptance on the chosen kind of text is known."""
    rates = drafter.drafting.acceptance if drafter.drafting else {}
    if choice.text not in rates:
        raise unknown_name(f"kind of text for {choice.drafter}", choice.text, rates)
    return len(ledger.take(rates[choice.text]))
