"""What a shell offers for a name that is being typed. Lists folders; reads no spec and imports no library."""

from __future__ import annotations

from collections.abc import Callable

from agentsim import plugins
from agentsim.specs import catalog


def _of(*kinds: str) -> list[str]:
    return [name for kind in kinds for name in catalog.names(kind)]


def _metrics() -> list[str]:
    from agentsim.sweep.columns import BY_NAME

    return list(BY_NAME)


NAMES: dict[str, Callable[[], list[str]]] = {
    "on": lambda: [*_of("deployments", "endpoints"), catalog.RECORDED],
    "all": lambda: _of(*catalog.KINDS),
    "models": lambda: _of("models"),
    "kinds": lambda: list(catalog.KINDS),
    "formats": lambda: [name.replace("_", "-") for name in plugins.built_in_names("importers")],
    "schemas": lambda: ["workflow", "sweep", "deployment"],
    "metrics": _metrics,
}
"""What each kind of name can be."""


def completed(kind: str, incomplete: str) -> list[str]:
    """Return the names of a kind that begin as typed; where none does, files are the shell's to offer."""
    return [name for name in NAMES[kind]() if name.startswith(incomplete)]
