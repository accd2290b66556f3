"""What was said, out of the shapes that logs keep it in; read only where it is asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

_KEYS = ("text", "content", "parts", "output", "result", "value")
_IMAGE = re.compile(r"data:[\w/+.-]{1,60};base64,[A-Za-z0-9+/=]+")
_MAX_DEPTH = 8


def text_in(content: Any, depth: int = 0) -> str:
    """Return the text of a message: of itself, of its blocks, of what stands behind its text; no images."""
    if isinstance(content, str):
        return _IMAGE.sub("[image]", content) if ";base64," in content else content
    if depth > _MAX_DEPTH:
        return ""
    if isinstance(content, list):
        return together(text_in(part, depth + 1) for part in content)
    if isinstance(content, dict) and content.get("type") not in ("image", "image_url", "thinking"):
        return next((found for key in _KEYS if (found := text_in(content.get(key), depth + 1))), "")
    return ""


def answers_in(given: Any) -> str:
    """Return what a human answered to a tool that asks, without the questions; empty where none is told."""
    answers = given.get("answers") if isinstance(given, dict) else None
    if isinstance(answers, dict):
        return together(answers_in(answer) or text_in(answer) for answer in answers.values())
    return text_in(answers)


def written(value: Any) -> str:
    """Return arguments as they were written: text as it is, anything else as JSON."""
    if isinstance(value, str) or value is None:
        return value or ""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return ""


def json_in(value: Any) -> Any:
    """Return what a text holds as JSON, anything else as it is; None where a text holds none."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return None


def together(texts: Iterable[str]) -> str:
    """Return texts as one, empty ones left out."""
    return "\n".join(text for text in texts if text)
