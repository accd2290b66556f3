"""The two streams: results on stdout, everything else on stderr. Imports Rich only to draw."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

_UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")
LEAST_WIDTH = 80
"""Columns in which no figure of any screen is cut; a narrower terminal breaks the lines itself."""


def show_result(as_json: bool, data: Callable[[], Any], screen: Callable[[int], RenderableType]) -> None:
    """Print a result, as JSON or as the screen for the terminal's width, in one piece."""
    text = _json_text(data()) if as_json else _screen_text(screen)
    try:
        print(text, flush=True)
    except BrokenPipeError:  # the reader has gone; nothing is left to tell
        drop_stdout()
        sys.exit(141)


def show_list(objects: Iterable[Any]) -> None:
    """Print objects as a JSON list while they are made, so that any number of them takes no room."""
    before = "["
    for item in objects:
        print(before + "\n  " + _json_text(item).replace("\n", "\n  "), end="")
        before = ","
    print("[]" if before == "[" else "\n]", flush=True)


def note(text: str) -> None:
    """Say in one line on stderr what does not belong to the result."""
    if sys.stderr is not None:
        with suppress(OSError):  # nobody reads it; that is no reason to end otherwise than in order
            print(one_line(text), file=sys.stderr)


def _json_text(data: Any) -> str:
    import json

    return json.dumps(data, indent=2, allow_nan=False)


def _screen_text(screen: Callable[[int], RenderableType]) -> str:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    console.width = max(console.width, LEAST_WIDTH)
    with console.capture() as captured:
        console.print(_Printable(screen(console.width)))
    return "\n".join(line.rstrip() for line in captured.get().rstrip().split("\n"))


class _Printable:
    """A screen in which text that came from files moves no cursor and sets no colour."""

    def __init__(self, screen: RenderableType) -> None:
        self._screen = screen

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        for text, style, control in console.render(self._screen, options):
            yield Segment(text if control else _UNPRINTABLE.sub("?", text), style, control)


@contextmanager
def progress(what: str, steps: int | None) -> Iterator[Callable[..., None]]:
    """Show a progress bar on a terminal's stderr when there is more than one step.

    What it yields is called after a step, or with how many were made. Where nobody knows how many there
    will be (None) it says how many are done.
    """
    if (steps is not None and steps < 2) or sys.stderr is None or not sys.stderr.isatty():
        yield lambda _count=1: None
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    columns = [*Progress.get_default_columns(), *([MofNCompleteColumn()] if steps is None else [])]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=steps)
        yield lambda count=1: bar.advance(task, count)


def one_line(text: str) -> str:
    """Return a message on one line, without the control characters that a file may have put in it."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def stop(text: str, code: int) -> NoReturn:
    """Say in one line on stderr why, and exit."""
    note(text)
    sys.exit(code)


def settle_streams() -> None:
    """Make both streams take any character, and let a request to stop end the work in order."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _stop_on_signal)


def _stop_on_signal(number: int, _frame: object) -> NoReturn:
    stop(f"stopped by {signal.Signals(number).name}", 128 + number)


def drop_stdout() -> None:
    """Forget a stdout that can no longer be written to, so that the interpreter's exit does not try."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
