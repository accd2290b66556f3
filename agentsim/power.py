"""What a deployment draws, as far as it is published: the chips' own watts, without hosts and cooling."""

from __future__ import annotations

import os
from dataclasses import dataclass

from agentsim.specs import catalog
from agentsim.specs.deployment import Deployment
from agentsim.specs.hardware import Chip


@dataclass(frozen=True, slots=True)
class Power:
    """Watts of all chips together, or None; `told` says how they come about, or why nobody knows."""

    watts: float | None
    told: str


def power_of(name: str, overrides: tuple[str, ...] = ()) -> Power:
    """Return the power of what `--on NAME` means."""
    if name == catalog.RECORDED:
        return Power(None, "what a recorded session ran on is not in the record")
    short, document = catalog.deployment_document(name)
    if catalog.kind_of_document(document) != "deployments":
        return Power(None, f"{short} is a service seen from outside: what runs behind it is not published")
    deployment = catalog.from_document(Deployment, catalog.set_by_hand(document, overrides), short)
    total, told = 0.0, []
    for engine in deployment.engines.values():
        chip = catalog.load(Chip, engine.hardware, os.path.dirname(document.name))
        if chip.power is None or chip.power.value is None:
            why = chip.power.why if chip.power else f"no power of {chip.title} is known"
            return Power(None, f"{short}: {why}")
        total += engine.chips * chip.power.value
        told.append(f"{engine.chips} x {chip.title}")
    return Power(total, f"{' + '.join(told)}, chips alone")
