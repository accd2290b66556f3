"""What a fit of engine profiles comes to: constants, and errors in the fit and left out of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentsim.calibrate.engine_constants import Key
from agentsim.validation.report import Errors, Spread, grouped


class Off(NamedTuple):
    """A run's profile and signed errors; `speculation` is on, off, or none where its model has no drafter."""

    line: int
    key: Key
    model: str
    tpot: float
    ttft: float
    speculation: str


def errors_of(offs: Sequence[Off]) -> Errors:
    """Return the errors of runs."""
    return Errors(len(offs), Spread.of([o.tpot for o in offs]), Spread.of([o.ttft for o in offs]))


@dataclass(frozen=True)
class ProfileFit:
    """One profile's constants in SI units: those that were fitted, and those held at their prior.

    `fitted` is false where it had too few runs. `errors` are in the fit; `left_out` is None where no run
    was left out.
    """

    key: Key
    models: tuple[str, ...]
    constants: Mapping[str, float]
    held: Mapping[str, float]
    fitted: bool
    errors: Errors
    left_out: Errors | None
    fitted_on: str

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        left_out = self.left_out.to_json() if self.left_out else None
        return {
            **self.key._asdict(),
            "models": list(self.models),
            "constants": dict(self.constants),
            "held": dict(self.held),
            "fitted": self.fitted,
            "in_fit": self.errors.to_json(),
            "left_out": left_out,
        }


@dataclass(frozen=True)
class GpuCalibration:
    """A fit of engine profiles. `in_fit` and `left_out` are runs as the real server gives them."""

    file: str
    seed: int
    share: float
    profiles: tuple[ProfileFit, ...]
    in_fit: tuple[Off, ...]
    left_out: tuple[Off, ...]
    wrong: Mapping[int, str]
    refused: Mapping[int, str]

    def classes(self) -> dict[str, Errors]:
        """Return the errors left out of the fit: of dense models, mixtures of experts, and all."""
        parts: dict[str, Callable[[Off], bool]] = {
            "dense": lambda o: o.key.kind == "dense",
            "moe": lambda o: o.key.kind == "moe",
            "all": lambda _: True,
        }
        found = {name: [o for o in self.left_out if wanted(o)] for name, wanted in parts.items()}
        return {name: errors_of(offs) for name, offs in found.items() if offs}

    def groups(self) -> dict[tuple[str, ...], Errors]:
        """Return the errors left out of the fit by engine, GPU and class."""
        groups = grouped(self.left_out, lambda o: (o.key.engine, o.key.gpu, o.key.kind))
        return {key: errors_of(offs) for key, offs in sorted(groups.items())}

    def speculation(self) -> dict[str, Errors]:
        """Return the errors left out of the fit of models with a drafter, by whether it was used."""
        groups = grouped(self.left_out, lambda o: o.speculation)
        return {name: errors_of(offs) for name, offs in sorted(groups.items()) if name != "none"}

    def to_json(self) -> dict[str, Any]:
        """Return what `calibrate gpu --format json` prints."""
        return {
            "file": self.file,
            "seed": self.seed,
            "share": self.share,
            "left_out": {name: errors.to_json() for name, errors in self.classes().items()},
            "in_fit": errors_of(self.in_fit).to_json(),
            "groups": [
                {"engine": e, "gpu": g, "class": k, **errors.to_json()}
                for (e, g, k), errors in self.groups().items()
            ],
            "speculation": {name: errors.to_json() for name, errors in self.speculation().items()},
            "profiles": [fit.to_json() for fit in self.profiles],
            "looks_wrong": [{"line": line, "reason": why} for line, why in sorted(self.wrong.items())],
            "refused": dict(Counter(self.refused.values()).most_common()),
        }
