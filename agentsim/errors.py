"""The errors a caller can meet.

    AgentsimError               expected: one line for a person, exit code 2
    ├── InputError              a file, name or option that cannot be used
    │   ├── WorkflowError       a workflow file
    │   ├── SpecError           a catalog or deployment file
    │   ├── ImportFormatError   a recorded log
    │   └── UnknownNameError    a name that nothing carries
    ├── InfeasibleError         an answer: it does not fit, and what would
    ├── MeasurementMissing      the answer needs a number that nobody has published
    └── OutputError             a result that cannot be written

    InvariantViolation          a bug in agentsim: a law of the simulation was broken

Why so: "no such file" and "does not fit the memory" are answers that a person acts on; a traceback
is for the developer. Whoever catches `AgentsimError` has caught all of the first kind and none of
the second.
"""

from __future__ import annotations

from collections.abc import Iterable


class AgentsimError(Exception):
    """An expected outcome that ends the command; its text is one line."""


class InputError(AgentsimError):
    """Something given by the user cannot be used."""


class WorkflowError(InputError):
    """A workflow file says something that no agent could do."""


class SpecError(InputError):
    """A catalog or deployment file is not what its kind requires."""


class ImportFormatError(InputError):
    """A log is cut off, of another format, or not a log."""


class UnknownNameError(InputError):
    """A name that nothing in reach carries."""


class InfeasibleError(AgentsimError):
    """It does not fit; the text says what would."""


class MeasurementMissing(AgentsimError):  # noqa: N818  (it is an answer, not a fault)
    """The answer needs a number that is undisclosed, and inventing it is not an option."""


class OutputError(AgentsimError):
    """A result cannot be written where it was asked for; nothing was written."""


class InvariantViolation(Exception):  # noqa: N818  (a law is violated; "Error" would hide what it is)
    """A law of the simulation does not hold: a bug in agentsim, never in the input."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the nearest known word, or an empty string."""
    from difflib import get_close_matches  # only on the way to an error

    close = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""


def unknown_name(kind: str, word: str, known: Iterable[str]) -> UnknownNameError:
    """Return the error for a name that is not in `known`, with the nearest one and the list."""
    names = sorted(known)
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    hint = suggestion(word, names)
    return UnknownNameError(f"unknown {kind} '{word}'{hint or '.'} Known: {shown}")
