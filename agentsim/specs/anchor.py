"""Published figures that the simulator is held against, and the protocols they were measured by.

All of them live in one file, `anchors.yaml`, beside the folders of the catalog.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Annotated

from pydantic import Field

from agentsim.fields import Count, Line, Number, Positive, Strict, Tokens
from agentsim.specs import catalog
from agentsim.specs.sourced import Datum


class Size(Strict):
    """One request of a protocol: tokens in and out, as the protocol counts them."""

    input_tokens: Tokens
    output_tokens: Tokens


class Protocol(Strict):
    """A public benchmark of one user: requests one after another, no prompt like another.

    `text` is the kind of text that a drafter's acceptance is taken for, where it knows that kind.
    `token_ratio` is how many of the protocol's tokens one token of the model makes.
    """

    title: Line
    text: str
    requests: Datum[Count]
    sizes: Datum[tuple[Size, ...]]
    token_ratio: Datum[Positive]


class Anchor(Strict):
    """One published figure. `tolerance` is relative; `gate` rows must hold.

    A figure that is a text has its numbers in `numbers`; with `between` any value from the first to the
    second agrees. `fits` names the datum that was fitted on this row, `given` what of the catalog already
    is this very figure: such a row is calibrated, all others are predictions. `follows` names the row that
    a prediction restates in other words: it is not counted as another one.
    """

    id: Line
    what: Line
    value: float | str
    unit: str
    tolerance: Number
    gate: bool
    source: str
    numbers: tuple[float, ...] = ()
    between: bool = False
    fits: str | None = None
    given: str | None = None
    follows: str | None = None
    fails: Annotated[str | None, Field(description="why it is known to miss, told where it does")] = None

    @property
    def basis(self) -> str:
        """Tell whether the simulator was fitted to this figure or predicts it."""
        return "calibrated" if self.fits or self.given else "predicted"

    @property
    def figures(self) -> tuple[float, ...]:
        """The numbers of the published value."""
        return self.numbers if isinstance(self.value, str) else (self.value,)


class Anchors(Strict):
    """The whole file."""

    title: Line
    sources: dict[str, str] = Field(default_factory=dict)
    protocols: dict[str, Protocol]
    rows: tuple[Anchor, ...]


@cache
def load_anchors() -> Anchors:
    """Return the anchors and protocols that come with agentsim."""
    here = os.path.dirname(catalog.folder("models"))
    return catalog.load_file(Anchors, os.path.join(here, "anchors.yaml"), "anchors")
