"""How the engines of a deployment share a model call.

A pattern module exposes `PLUGIN`, a function from the engines' names to the stages that every call
goes through, in order. It raises `SpecError` where the deployment's engines do not suit it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Serve:
    """One engine prefills the prompt and decodes the output."""

    engine: str


Stage = Serve
Pattern = Callable[[Sequence[str]], tuple[Stage, ...]]
