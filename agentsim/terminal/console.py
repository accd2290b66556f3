"""The two streams: results on stdout, everything else on stderr. Imports Rich only to draw."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from rich.console import RenderableType


def show_result(as_json: bool, data: Callable[[], Any], screen: Callable[[int], RenderableType]) -> None:
    """Print a result, as JSON or as the screen for the terminal's width, in one piece."""
    if as_json:
        import json

        print(json.dumps(data(), indent=2, allow_nan=False), flush=True)
        return
    from rich.console import Console

    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(screen(console.width))
    print("\n".join(line.rstrip() for line in captured.get().rstrip().split("\n")), flush=True)


@contextmanager
def progress(what: str, steps: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar on a terminal's stderr when there is more than one step."""
    if steps < 2 or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=steps)
        yield lambda: bar.advance(task)


def one_line(text: str) -> str:
    """Return a message on one line, without the control characters that a file may have put in it."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def stop(text: str, code: int) -> NoReturn:
    """Say in one line on stderr why, and exit."""
    print(one_line(text), file=sys.stderr)
    sys.exit(code)
