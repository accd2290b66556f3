"""The only reader of YAML: safe, with line numbers, in the YAML 1.2 core schema.

Refuses what would be read as something else than written or would not end: duplicate keys, tags,
files over the size limit, nesting over the depth limit, aliases that unfold without bound.

Why so: PyYAML's own loaders follow YAML 1.1 (`no` is False, `12:30` is 750, `010` is 8, `1e9` is a
string) and let the last of two equal keys win in silence. The events of its parser are kept, the
values are built here, without recursion.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from agentsim.errors import InputError, suggestion

MAX_BYTES = 10 * 2**20
MAX_DEPTH = 100
MAX_NODES = 2_000_000

Path = tuple[str | int, ...]
M = TypeVar("M", bound=BaseModel)

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"^[-+]?[0-9][0-9_]*$")
_FLOAT = re.compile(r"^[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_CONSTANTS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    ".nan": float("nan"), ".NaN": float("nan"), ".inf": float("inf"), "-.inf": float("-inf"),
}  # fmt: skip


@dataclass(frozen=True)
class Document:
    """Plain data (dict, list, str, int, float, bool, None) with the line of every entry."""

    name: str
    data: Any
    lines: Mapping[Path, int]

    def line(self, path: Path) -> int:
        """Return the line of `path`, or of the nearest entry around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def at(self, path: Path) -> str:
        """Return `file:line: yaml.path` for a message."""
        return f"{self.name}:{self.line(path)}: " + (f"{path_text(path)}: " if path else "")


def path_text(path: Path) -> str:
    """Return a path as a person writes it: `steps[1].generate.tokens`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def read(path: str, error: type[InputError] = InputError) -> Document:
    """Read one YAML file; every problem is one `error` with file and line."""
    return parse(read_text(path, error), path, error)


def read_text(path: str, error: type[InputError], max_bytes: int = MAX_BYTES) -> str:
    """Return a file's text, or `error`: missing (with the nearest name), a folder, too big, not UTF-8."""
    try:
        size = os.stat(path).st_size
        if size > max_bytes:
            raise error(f"{path}: {size / 2**20:.0f} MiB; at most {max_bytes / 2**20:.0f} MiB are read")
        with open(path, "rb") as file:
            raw = file.read(max_bytes + 1)
        if len(raw) > max_bytes:  # a pipe or a device does not say its size
            raise error(f"{path}: over {max_bytes / 2**20:.0f} MiB; at most that much is read")
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError:
        raise error(f"{path or repr(path)}: no such file{_nearest_file(path)}") from None
    except UnicodeDecodeError as bad:
        raise error(f"{path}: not a text file (byte {bad.start} is not UTF-8)") from None
    except OSError as bad:
        raise error(f"{path}: {(bad.strerror or str(bad)).lower()}") from None


def _nearest_file(path: str) -> str:
    folder, name = os.path.split(path)
    try:
        hint = suggestion(name, os.listdir(folder or "."))
    except OSError:
        return ""
    return hint.replace("'", f"'{folder}/", 1) if folder and hint else hint


def parse(text: str, name: str, error: type[InputError] = InputError) -> Document:
    """Build a `Document` from YAML text; `name` stands for the file in messages."""
    builder = _Builder(name, error)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.YAMLError as bad:
        raise error(_syntax_problem(bad, text, name)) from None
    if builder.empty:
        raise error(f"{name}:1: the file is empty")
    return Document(name, builder.root, builder.lines)


def _syntax_problem(bad: yaml.YAMLError, text: str, name: str) -> str:
    mark = getattr(bad, "problem_mark", None) or getattr(bad, "context_mark", None)
    line = mark.line + 1 if mark else 1
    lines = text.split("\n")
    if line <= len(lines) and lines[line - 1].startswith("\t"):
        return f"{name}:{line}: indented with a tab; YAML allows spaces only"
    problem = getattr(bad, "problem", None) or getattr(bad, "reason", None) or str(bad)
    return f"{name}:{line}: not YAML: {' '.join(str(problem).split())}"


@dataclass
class _Frame:
    """A container under construction."""

    value: dict[str, Any] | list[Any]
    path: Path
    anchor: str | None
    key: str | None = None
    nodes: int = 1


@dataclass
class _Builder:
    """Turns parser events into a value, one event at a time."""

    name: str
    error: type[InputError]
    root: Any = None
    empty: bool = True
    lines: dict[Path, int] = field(default_factory=dict)
    stack: list[_Frame] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    nodes: int = 0

    def take(self, event: Any) -> None:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._scalar(event)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._open(event, {} if kind is yaml.MappingStartEvent else [])
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._close()
        elif kind is yaml.AliasEvent:
            self._alias(event)
        elif kind is yaml.DocumentStartEvent and not self.empty:
            raise self._bad(event, "a second document ('---'); one file holds one")

    def _bad(self, event: Any, problem: str) -> InputError:
        return self.error(f"{self.name}:{event.start_mark.line + 1}: {problem}")

    def _scalar(self, event: Any) -> None:
        if event.tag is not None and event.tag != "!":
            raise self._bad(event, f"tag '{event.tag}' is not allowed; write the plain value")
        frame = self.stack[-1] if self.stack else None
        if frame is not None and frame.key is None and type(frame.value) is dict:
            self._key(event, frame)
            return
        value = _plain(event.value) if event.implicit[0] else event.value
        self._remember(event.anchor, value, 1)
        self._place(event, value, 1)

    def _key(self, event: Any, frame: _Frame) -> None:
        key = event.value
        if key in frame.value:
            first = self.lines[(*frame.path, key)]
            raise self._bad(event, f"duplicate key '{key}'; it stands already on line {first}")
        if key == "<<":
            raise self._bad(event, "merge keys ('<<') are not read; repeat the entries")
        frame.key = key
        self.lines[(*frame.path, key)] = event.start_mark.line + 1

    def _open(self, event: Any, value: Any) -> None:
        if event.tag is not None:
            raise self._bad(event, f"tag '{event.tag}' is not allowed; write the plain value")
        if len(self.stack) >= MAX_DEPTH:
            raise self._bad(event, f"nested over {MAX_DEPTH} deep; at most {MAX_DEPTH} levels are read")
        path = self._place(event, value, 0)
        self.stack.append(_Frame(value, path, event.anchor))

    def _place(self, event: Any, value: Any, nodes: int) -> Path:
        """Put `value` where the parser stands and return its path."""
        self.nodes += max(nodes, 1)
        if not self.stack:
            self.root, self.empty = value, False
            return ()
        frame = self.stack[-1]
        frame.nodes += nodes
        if isinstance(frame.value, list):
            path = (*frame.path, len(frame.value))
            frame.value.append(value)
            self.lines[path] = event.start_mark.line + 1
            return path
        if frame.key is None:
            raise self._bad(event, "a key must be a plain word")
        path = (*frame.path, frame.key)
        frame.value[frame.key] = value
        frame.key = None
        return path

    def _close(self) -> None:
        frame = self.stack.pop()
        self._remember(frame.anchor, frame.value, frame.nodes)
        if self.stack:
            self.stack[-1].nodes += frame.nodes

    def _remember(self, anchor: str | None, value: Any, nodes: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = (value, nodes)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self.anchors:
            raise self._bad(event, f"alias '*{event.anchor}' stands for nothing (or for itself)")
        value, nodes = self.anchors[event.anchor]
        self._place(event, value, nodes)
        if self.nodes > MAX_NODES:
            raise self._bad(event, f"aliases unfold to over {MAX_NODES:,} entries; write them out")


def _plain(text: str) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.match(text):
        return int(text.replace("_", "")) if len(text) <= 30 else text
    if _FLOAT.match(text):
        return float(text.replace("_", ""))
    return text


def with_overrides(
    document: Document, overrides: Sequence[str], error: type[InputError], prefix: str = ""
) -> Document:
    """Return the document with `a.b[0].c=value` applied; the value is read as YAML.

    `prefix` is what stood before each override where it was typed.
    """
    data = deepcopy(document.data) if overrides else document.data
    for override in overrides:
        place, found, text = override.partition("=")
        if not found or not keys_of(place) or not override.isprintable():
            raise error(
                f"--set {prefix}{override}: write it as path=value, such as network.round_trip='80 ms'"
            )
        _set(
            data,
            keys_of(place),
            parse(text or "~", f"--set {prefix}{place}", error).data,
            prefix + override,
            error,
        )
    return replace(document, data=data)


def keys_of(place: str) -> list[str | int]:
    """Return the keys of a path such as `steps[1].repeat.times` or `steps.1.repeat.times`."""
    return [
        int(key) if key.isascii() and key.isdecimal() else key for key in re.split(r"[.\[\]]+", place) if key
    ]


def _set(data: Any, keys: list[str | int], value: Any, override: str, error: type[InputError]) -> None:
    for depth, key in enumerate(keys):
        last = depth == len(keys) - 1
        if isinstance(data, list) and isinstance(key, int) and key < len(data):
            data[key], data = (value, None) if last else (data[key], data[key])
        elif isinstance(data, dict) and (last or str(key) in data):
            data[str(key)], data = (value, None) if last else (data[str(key)], data[str(key)])
        else:
            known = [str(k) for k in data] if isinstance(data, dict) else []
            holds = f"{len(data)} entries" if isinstance(data, list) else ", ".join(known) or "a plain value"
            raise error(
                f"--set {override}: no '{key}' here{suggestion(str(key), known) or '.'} Found: {holds}"
            )


def validate(model: type[M], document: Document, error: type[InputError]) -> M:
    """Check a document against a pydantic model; the first problem is one `error` with its place."""
    try:
        return model.model_validate(document.data)
    except ValidationError as bad:
        raise error(problem_text(bad, document)) from None


def problem_text(bad: ValidationError, document: Document) -> str:
    """Return the first problem of a validation as one line; further ones are counted."""
    problems: list[dict[str, Any]] = [dict(problem) for problem in bad.errors(include_url=False)]
    first = problems[0]
    path = _document_path(first["loc"], document.data)
    path += tuple(k for k in [first.get("ctx", {}).get("key")] if k is not None)
    alike = [p for p in problems if (p["type"], p["loc"][:-1]) == ("missing", first["loc"][:-1])]
    others = len(problems) - max(len(alike), 1)
    more = f" (and {others} more)" if others else ""
    return document.at(path) + _reason(first, alike if first["type"] == "missing" else []) + more


def _document_path(location: tuple[str | int, ...], data: Any) -> Path:
    """Drop from a pydantic location the tags and validators that are no part of the document."""
    return tuple(_walk(location, data))


def _walk(location: tuple[str | int, ...], data: Any) -> Iterator[str | int]:
    for part in location:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            continue
        yield part


def _reason(problem: dict[str, Any], missing: list[dict[str, Any]]) -> str:
    kind, text = problem["type"], str(problem["msg"])
    if missing:
        if isinstance(missing[0]["loc"][-1], int):
            return "a pair is needed here, written [low, high]"
        names = ", ".join(f"'{p['loc'][-1]}'" for p in missing)
        return f"{names} {'is' if len(missing) == 1 else 'are'} missing"
    if kind == "value_error":
        return text.removeprefix("Value error, ")
    if kind == "unknown_key":
        return text
    found = repr(problem["input"])
    found = found if len(found) <= 60 else found[:57] + "..."
    if kind in ("model_type", "dataclass_type", "dict_type", "model_attributes_type"):
        return f"{found} stands where a mapping (key: value) is needed"
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", str(problem.get("ctx", {}).get("expected", "")))
        hint = suggestion(str(problem["input"]), known)
        return f"{found} is not allowed here{hint or '.'} Allowed: {', '.join(known)}"
    if kind in ("tuple_type", "list_type"):
        return f"{found} stands where a list is needed"
    return f"{found} is not allowed here: {text[:1].lower()}{text[1:]}"
