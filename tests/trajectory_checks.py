"""What the tests of the trajectory importers share: writing what is to be read, and its tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from importer_checks import sessions_in

from agentsim.importers.base import Importer
from agentsim.recorded import RecordedSession


def read(importer: Importer, content: Any, path: Path) -> list[RecordedSession]:
    """Write text, bytes, a list of rows or a document, and read it."""
    if isinstance(content, list):
        content = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in content) + "\n"
    if isinstance(content, dict):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return sessions_in(importer, path)


def one(importer: Importer, content: Any, path: Path) -> RecordedSession:
    [session] = read(importer, content, path)
    return session


def tokens_of(session: RecordedSession) -> list[tuple[int, int, int]]:
    return [(c.prompt_tokens, c.cached_tokens, c.output_tokens) for c in session.calls]
