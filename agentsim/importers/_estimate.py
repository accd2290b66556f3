"""Tokens of text whose count no log tells. Every use is an estimate, and counted as one."""

from __future__ import annotations

CHARS_PER_TOKEN = 4
"""Assumed: what vendors give as a rule of thumb for English; code and other scripts have fewer a token."""


def text_tokens(chars: int) -> int:
    """Return the tokens of so many characters of text, rounded up."""
    return -(-chars // CHARS_PER_TOKEN)
