"""The screen of `calibrate gpu`: how far off the fit is on runs left out of it, and the constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.terminal.layout import grid, indented, joined, labelled, screen
from agentsim.units import MICROSECOND_S, MILLISECOND_S

if TYPE_CHECKING:
    from agentsim.calibrate.gpu_report import GpuCalibration, ProfileFit
    from agentsim.validation.report import Errors, Spread

_COLUMNS: Mapping[str, tuple[str, str, float, str]] = {
    "layer_overhead": ("layer", "us", MICROSECOND_S, ".0f"),
    "iteration_overhead": ("iter.", "ms", MILLISECOND_S, ".2f"),
    "sequence_overhead": ("seq.", "us", MICROSECOND_S, ".0f"),
    "prefill_overhead": ("pref.", "ms", MILLISECOND_S, ".1f"),
    "request_overhead": ("req.", "ms", MILLISECOND_S, ".0f"),
    "weight_read_efficiency": ("read", "%", 0.01, ".0f"),
    "expert_read_efficiency": ("read", "%", 0.01, ".0f"),
    "kv_read_efficiency": ("KV", "%", 0.01, ".0f"),
    "gemm_efficiency": ("GEMM", "%", 0.01, ".0f"),
    "expert_gemm_efficiency": ("exp.", "%", 0.01, ".0f"),
    "expert_skew": ("skew", "", 1.0, ".1f"),
}
"""Heading, its unit, the unit's size and figures of every constant."""
_WIDE = 140
_FAR = 0.5
"""A fit that is off by this much on its own runs is of something else."""


def gpu_calibration_screen(found: GpuCalibration, written: str | None, width: int) -> RenderableType:
    """Return the whole screen of a fit, which was `written` to a folder."""
    parts: list[RenderableType] = [_heading(found)]
    if found.left_out:
        parts.append(indented(_errors(found)))
    parts += [indented(table) for table in _constants(found, width)]
    return screen(*parts, indented(labelled(_notes(found, written))))


def _heading(found: GpuCalibration) -> Text:
    facts = joined(
        [
            f"{sum(fit.fitted for fit in found.profiles)} profiles fitted",
            f"{len(found.in_fit):,} runs to fit on",
            f"judged on {len(found.left_out):,} left out" if found.left_out else "no run left out",
            f"{len(found.wrong):,} look wrong" if found.wrong else "",
            f"{len(found.refused):,} refused" if found.refused else "",
        ]
    )
    answer = found.classes().get("all")
    said = "  Every run was fitted on: nothing judges this fit."
    if answer is not None and answer.tpot is not None and answer.ttft is not None:
        said = (
            f"  On runs left out TPOT is off by {_percent(answer.tpot.median)} % (p90 "
            f"{_percent(answer.tpot.p90)} %), TTFT by {_percent(answer.ttft.median)} %: medians."
        )
    title = (f"Engine profiles fitted on {found.file}", "bold")
    return Text.assemble(title, "\n", (facts, "dim"), "\n\n", (said, "bold"))


def _errors(found: GpuCalibration) -> Table:
    table = grid("left", *["right"] * 6, padding=2)
    table.add_row(Text("Error left out, %", style="bold"), Text(), *_bold("TPOT", "", "", "TTFT", ""))
    table.add_row(Text(), *_dim("runs", "median", "p90", "bias", "median", "p90"))
    for name, errors in found.classes().items():
        table.add_row(*_row(name, errors))
    table.add_row()
    table.add_row(*_dim("by engine, GPU, class"))
    for key, errors in found.groups().items():
        table.add_row(*_row(" ".join(key), errors))
    if speculation := found.speculation():
        table.add_row()
        table.add_row(*_dim("speculation, inferred"))
        for name, errors in speculation.items():
            table.add_row(*_row(name, errors))
    return table


def _row(name: str, errors: Errors) -> list[str]:
    return [f"  {name}", f"{errors.rows:,}", *_spread(errors.tpot), *_spread(errors.ttft)[:2]]


def _spread(spread: Spread | None) -> list[str]:
    if spread is None:
        return ["-"] * 3
    return [_percent(spread.median), _percent(spread.p90), f"{100 * spread.bias:+.1f}"]


def _constants(found: GpuCalibration, width: int) -> list[Table]:
    """Return a table a class; on a narrow screen the errors in the fit are left out."""
    tables = []
    for kind in ("dense", "moe"):
        fits = [fit for fit in found.profiles if fit.key.kind == kind and fit.fitted]
        names = [name for name in _COLUMNS if any(name in fit.constants for fit in fits)]
        if fits:
            tables.append(_table(kind, fits, names, width >= _WIDE))
    return tables


def _table(kind: str, fits: list[ProfileFit], names: list[str], wide: bool) -> Table:
    heads = [*(_COLUMNS[name][0] for name in names), *(["TPOT off"] if wide else [])]
    units = [*(_COLUMNS[name][1] for name in names), *(["%"] if wide else [])]
    table = grid("left", "right", *["right"] * len(heads), padding=2 if wide else 1)
    table.add_row(Text(f"Fitted, {kind}", style="bold"), *_dim("runs", *heads))
    table.add_row(Text(), Text(), *_dim(*units))
    for fit in fits:
        figures = [_figure(name, fit.constants.get(name)) for name in names]
        off = [_percent(fit.errors.tpot.median) if fit.errors.tpot else "-"] if wide else []
        where = " ".join(fit.key[:3])
        table.add_row(f"  {where}", f"{fit.errors.rows:,}", *figures, *off)
    return table


def _figure(name: str, value: float | None) -> str:
    _, _, unit, form = _COLUMNS[name]
    return "-" if value is None else format(value / unit, form)


def _notes(found: GpuCalibration, written: str | None) -> list[tuple[str, str]]:
    expected = [fit.key for fit in found.profiles if not fit.fitted]
    names = ", ".join(" ".join(key[:3]) for key in expected)
    notes = [("Expected", f"from what is alike, with no or too few runs: {names}")] if expected else []
    notes += [("Look wrong", f"{n} runs: {why}") for why, n in Counter(found.wrong.values()).most_common()]
    notes += [("Refused", f"{n} runs: {why}") for why, n in Counter(found.refused.values()).most_common(3)]
    notes += [("Far off", text)] if (text := _far_off(found)) else []
    notes += [("At an end", text)] if (text := _ends(found)) else []
    if written is not None:
        half = f" --holdout {found.seed}" if found.left_out else ""
        check = f"agentsim validate-model FILE --profiles {written}{half}"
        notes += [("Written", written), ("Next", check)]
    return notes


def _far_off(found: GpuCalibration) -> str:
    from agentsim.calibrate.gpu_report import errors_of

    tpot = errors_of(found.in_fit).tpot
    if tpot is None or tpot.median < _FAR:
        return ""
    return f"TPOT of the runs fitted on, by {_percent(tpot.median)} % in the median: are the times in ms?"


def _ends(found: GpuCalibration) -> str:
    from agentsim.calibrate.gpu_profiles import at_an_end

    ends = Counter(name for fit in found.profiles for name in at_an_end(fit))
    if not ends:
        return ""
    every = sum(len(fit.constants) for fit in found.profiles if fit.fitted)
    listed = ", ".join(f"{name} ({count})" for name, count in ends.most_common())
    return f"of the range searched, and so not determined: {ends.total()} of {every} constants: {listed}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _dim(*texts: str) -> list[Text]:
    return [Text(text, style="dim") for text in texts]


def _bold(*texts: str) -> list[Text]:
    return [Text(text, style="bold") for text in texts]
