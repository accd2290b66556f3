"""Sessions of Claude Code: JSON lines with the sub-agents' files beside them, and its two JSON shapes.

A session `<id>.jsonl` has its sub-agents in `<id>/subagents/**/agent-*.jsonl`, in older logs beside itself
as `agent-*.jsonl`, in the oldest as rows of its own (`isSidechain`). `--output-format stream-json` and the
web export `{"loglines": [...]}` hold the same rows, the former without times.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

from agentsim.errors import ImportFormatError
from agentsim.importers._claude import Session
from agentsim.importers._rows import Row, mapping, rows_of
from agentsim.importers.base import head_of, joined, json_object, lines_of, objects
from agentsim.recorded import RecordedSession

_ROW = re.compile(rb'"parentUuid"\s*:|"leafUuid"\s*:|"type"\s*:\s*"(queue-operation|file-history-snapshot)"')
_SESSION = re.compile(rb'"sessionId"\s*:|"leafUuid"\s*:|"messageId"\s*:')
_STREAM = re.compile(rb'"type"\s*:\s*"system"[^{}]*"subtype"\s*:\s*"init"|"parent_tool_use_id"\s*:')
_EXPORT = re.compile(rb'\s*\{\s*"loglines"\s*:\s*\[')
_SESSION_ID = re.compile(rb'"sessionId"\s*:\s*"([\w-]{1,100})"')
_AGENT_FILE = re.compile(r"agent-([\w-]{1,100})\.jsonl(\.gz|\.zst)?")
_PACKED = ("", ".gz", ".zst")
_BEGINS = b'{"parentUuid"'


class ClaudeCode:
    """The importer of Claude Code sessions."""

    name = "claude_code"

    def recognises(self, path: str, head: bytes) -> bool:  # noqa: ARG002  (content decides, not the name)
        """Tell it by the links between rows."""
        if _EXPORT.match(head):
            return True
        start = head.lstrip()[:1]
        rows = start == b"{" and bool(_ROW.search(head) and _SESSION.search(head))
        return rows or (start in (b"[", b"{") and bool(_STREAM.search(head) and b'"session_id"' in head))

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield the one session of a file, with the sub-agents in files of their own."""
        yield _session(path, keep_text=False)

    def sessions_with_text(self, path: str) -> Iterator[RecordedSession]:
        """Yield it with what was said, and what a human answered to a tool that asks."""
        yield _session(path, keep_text=True)

    def main_file_of(self, path: str) -> str | None:
        """Return the session's file that a sub-agent's file is read with, None for any other file."""
        folder, name = os.path.split(path)
        if not _AGENT_FILE.fullmatch(name):
            return None
        above, marker, _ = (folder + os.sep).rpartition(f"{os.sep}subagents{os.sep}")
        main = f"{above}.jsonl" if marker else os.path.join(folder, f"{_session_id(path)}.jsonl")
        return next((main + end for end in _PACKED if os.path.isfile(main + end)), None)


PLUGIN = ClaudeCode()


def _session(path: str, keep_text: bool) -> RecordedSession:
    name = os.path.basename(path).partition(".")[0]
    session = Session(name, PLUGIN.name, f"{path}:1", keep_text=keep_text)
    for row in _rows(path, session):
        session.take(row)
    for agent, file in _agent_files(path, session.agents):
        _take_agent(session, agent, file)
    return session.read()


def _session_id(path: str) -> str:
    try:
        found = _SESSION_ID.search(head_of(path))
    except ImportFormatError:
        found = None
    return found[1].decode() if found else ""


def _rows(path: str, session: Session) -> Iterator[Row]:
    head = head_of(path)
    if head.lstrip().startswith(b"[") or _EXPORT.match(head):
        return iter(_document(path))
    return rows_of(path, session.odd, _BEGINS)


def _document(path: str) -> list[Row]:
    """Return the rows of a file that is one JSON value."""
    try:
        value = json.loads(joined(lines_of(path), path))
    except (ValueError, RecursionError) as bad:
        raise ImportFormatError(f"{path}:1: not JSON: {str(bad).splitlines()[0]}") from None
    return objects(value if isinstance(value, list) else mapping(value).get("loglines"))


def _agent_files(path: str, mentioned: set[str]) -> Iterator[tuple[str, str]]:
    """Yield (agent id, file) of a session's sub-agents; nothing is opened but what its own folder holds."""
    stem = path.removesuffix(".gz").removesuffix(".zst").removesuffix(".jsonl")
    for folder, _, names in sorted(os.walk(os.path.join(stem, "subagents"))):
        for name in sorted(names):
            found = _AGENT_FILE.fullmatch(name)
            if found and _is_file(folder, name):
                yield found[1], os.path.join(folder, name)
    folder = os.path.dirname(path) or "."
    for agent in sorted(mentioned):
        for name in (f"agent-{agent}.jsonl{end}" for end in _PACKED):
            if _AGENT_FILE.fullmatch(name) and name != os.path.basename(path) and _is_file(folder, name):
                yield agent, os.path.join(folder, name)


def _is_file(folder: str, name: str) -> bool:
    file = os.path.join(folder, name)
    return os.path.isfile(file) and not os.path.islink(file)


def _take_agent(session: Session, agent: str, file: str) -> None:
    if agent in session.read_agents:
        return
    session.read_agents.add(agent)
    session.describe(agent, _meta(file))
    try:
        for row in rows_of(file, session.odd, _BEGINS):
            session.take(row, agent)
    except ImportFormatError:
        session.odd["sub-agent's file not readable"] += 1


def _meta(file: str) -> Row:
    """Return a sub-agent's description, which newer logs keep beside its file."""
    path = file.removesuffix(".jsonl") + ".meta.json"
    if not _is_file(*os.path.split(path)):
        return {}
    try:
        return json_object(joined(lines_of(path), path), path)
    except ImportFormatError:
        return {}
