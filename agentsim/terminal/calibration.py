"""The screen of `calibrate endpoint`: what was fitted, and how far off it is on sessions left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.terminal.layout import grid, indented, labelled, screen
from agentsim.units import MICROSECOND_S

if TYPE_CHECKING:
    from agentsim.calibrate import Report


def calibration_screen(report: Report[Any], written: str | None) -> RenderableType:
    """Return the screen of a fit, which was `written` somewhere, or of a check."""
    fitted = any(hasattr(score, "costs") for score in report.models.values())
    parts: list[RenderableType] = [indented(_errors(report, fitted))]
    if fitted:
        parts.append(indented(_costs(report)))
    notes = [("Not counted", f"{count:,} calls: {why}") for why, count in report.excluded.items()]
    notes += [("Passed over", f"{model}: {why}") for model, why in report.skipped.items()]
    if written is not None:
        some = short_names(report)[0]
        place = f"{written.rstrip('/')}/{some}.yaml" if written.endswith("/") else f"{written}#{some}"
        notes += [("Written", written), ("Next", f"agentsim run WORKFLOW --on {place}")]
    return screen(*parts, *([indented(labelled(notes))] if notes else []))


def short_names(report: Report[Any]) -> list[str]:
    """Return the names under which fitted models are written."""
    from agentsim.calibrate.endpoint import short_name

    return [short_name(model) for model in report.models]


def _errors(report: Report[Any], fitted: bool) -> Table:
    table = grid("left", "right", "right", "right", "right", "right")
    of = "on sessions left out" if fitted else "on all sessions"
    table.add_row(Text(f"Error {of}", style="bold"), *_dim("sessions", "calls", "judged", "median", "in sum"))
    for name, score in report.models.items():
        figures = f"{score.sessions:,}", f"{score.calls:,}", f"{score.judged_sessions:,}"
        table.add_row(f"  {name}", *figures, _percent(score.median_session_error), _ratio(score.total_ratio))
    return table


def _costs(report: Report[Any]) -> Table:
    table = grid("left", "right", "right", "right", "right")
    heads = _dim("fixed s", "us/uncached", "us/cached", "tok/s")
    table.add_row(Text("Fitted", style="bold"), *heads)
    for name, fit in report.models.items():
        costs = fit.costs
        per_token = (costs.per_uncached_token, costs.per_cached_token)
        speed = f"{1 / costs.per_output_token:.1f}" if costs.per_output_token else "-"
        table.add_row(
            f"  {name}", f"{costs.fixed:.2f}", *[f"{c / MICROSECOND_S:.1f}" for c in per_token], speed
        )
    return table


def _dim(*texts: str) -> list[Text]:
    return [Text(text, style="dim") for text in texts]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"x {ratio:.3f}"
