"""What `report` does: results in, one page out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from agentsim.errors import InputError


class Report(NamedTuple):
    """A page that was written: where, its size, and what it does not hold for want of a result."""

    path: str
    size_bytes: int
    missing: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the object that `report --format json` prints."""
        return self._asdict()


def write_report(results: Sequence[str], output: str) -> Report:
    """Write what result files and folders hold as one self-contained page of HTML.

    Raises `InputError` where one of them is no result, `OutputError` where another's file stands at `output`.
    """
    from importlib.metadata import version

    from agentsim.exports.base import check_target, write_file
    from agentsim.report.page import MARK, page
    from agentsim.report.read import read
    from agentsim.report.words import missing

    check_target(output, MARK)
    try:
        inputs = read(results)
        text = page(inputs, version("agentsim"))
    except OverflowError:
        raise InputError(f"{', '.join(results)}: figures that are too large to be shown") from None
    write_file(output, text, MARK)
    return Report(output, len(text.encode()), tuple(missing(inputs)))
