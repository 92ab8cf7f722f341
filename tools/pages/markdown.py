"""Pieces of Markdown that several pages need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def code(text: str) -> str:
    return f"`{text}`"


def fenced(text: str, language: str = "") -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"
