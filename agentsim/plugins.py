"""Plug-ins: a file in a folder of the package, or an entry point of another distribution.

The file's name is the plug-in's name and the module exposes `PLUGIN`. Listing names imports none of
them; loading imports one. Strangers register under the entry-point group `agentsim.<folder>`.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from agentsim.errors import SpecError, unknown_name

_WORDS = {
    "backends": "backend",
    "coexec": "pattern",
    "exports": "export",
    "importers": "log format",
    "executors": "executor",
}
_NOT_PLUGINS = {"__init__", "base"}


def built_in_names(folder: str) -> list[str]:
    """Return the names of the plug-ins in `agentsim/<folder>`, sorted, without importing any."""
    place = os.path.join(os.path.dirname(__file__), folder)
    with os.scandir(place) as entries:
        stems = [e.name.removesuffix(".py") for e in entries if e.name.endswith(".py") or e.is_dir()]
    return sorted(s for s in stems if s not in _NOT_PLUGINS and not s.startswith("_"))


def names(folder: str) -> list[str]:
    """Return built-in names and those that other distributions register, sorted."""
    return sorted({*built_in_names(folder), *_entry_points(folder)})


def load(folder: str, name: str) -> Any:
    """Return the `PLUGIN` of one plug-in; `UnknownNameError` where nothing carries the name."""
    module_name = name.replace("-", "_")
    if module_name in built_in_names(folder):
        return _plugin_of(import_module(f"agentsim.{folder}.{module_name}"), name)
    found = _entry_points(folder)
    if name in found:
        return found[name].load()
    known = [plain.replace("_", "-") for plain in names(folder)]
    raise unknown_name(_WORDS.get(folder, folder), name, known)


def _plugin_of(module: Any, name: str) -> Any:
    try:
        return module.PLUGIN
    except AttributeError:
        raise SpecError(f"plug-in '{name}' ({module.__name__}) does not expose PLUGIN") from None


def _entry_points(folder: str) -> dict[str, Any]:
    from importlib.metadata import entry_points  # slow to import; only for names that are not built in

    return {point.name: point for point in entry_points(group=f"agentsim.{folder}")}
