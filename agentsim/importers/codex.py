"""Rollouts of Codex, of three generations.

The first holds bare items without times or usage; the later ones rows `{timestamp, type, payload}`. A model
call is a change of the total usage (`token_count`); it begins with the latest input before its first row
and ends with its last. A row written behind its `token_count` without new input still belongs to it, since
older versions wrote what they said first and its tools afterwards.

Why so: a fork replays its parent, with the old times or all at once at its start; what it replays is no
work of its own. Without any usage, the turns between input and output are the calls, tokens estimated.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from agentsim.importers._codex import Session
from agentsim.importers._rows import rows_of
from agentsim.recorded import RecordedSession

_ROW = re.compile(
    rb'"type"\s*:\s*"(session_meta|response_item|event_msg|turn_context|compacted|world_state)"'
)
_PAYLOAD = re.compile(rb'"payload"\s*:\s*\{')
_OLD = re.compile(rb'\{\s*"id"\s*:\s*"[^"]*"\s*,\s*"timestamp"\s*:\s*"[^"]*"\s*,\s*"instructions"\s*:')
_STATE = re.compile(rb'"record_type"\s*:\s*"state"')


class Codex:
    """The importer of Codex rollouts."""

    name = "codex"

    def recognises(self, path: str, head: bytes) -> bool:  # noqa: ARG002  (content decides, not the name)
        """Tell it by the wrapping of its rows, in the first generation by its first row."""
        if not head.lstrip().startswith(b"{"):
            return False
        wrapped = _ROW.search(head) and _PAYLOAD.search(head)
        return bool(wrapped or _OLD.match(head.lstrip()) or _STATE.search(head))

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield the one session of a file. Sub-agents are files, and so sessions, of their own."""
        yield _session(path, keep_text=False)

    def sessions_with_text(self, path: str) -> Iterator[RecordedSession]:
        """Yield it with what was said."""
        yield _session(path, keep_text=True)


PLUGIN = Codex()


def _session(path: str, keep_text: bool) -> RecordedSession:
    name = os.path.basename(path).partition(".")[0]
    session = Session(name, PLUGIN.name, f"{path}:1", keep_text=keep_text)
    for row in rows_of(path, session.odd, b'{"timestamp"', b'"timestamp":'):
        session.take(row)
    return session.read()
