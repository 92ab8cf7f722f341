"""Formats durations, sizes and Markdown for the page. Units are the same in every language."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup


def duration_text(seconds: float) -> str:
    """`850 ms`, `12 s`, `4 min 7 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    whole = round(seconds)
    parts = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
    largest = list(itertools.dropwhile(lambda part: part[0] == 0, parts))[:2]
    return " ".join(f"{count} {unit}" for count, unit in largest if count)


def size_text(size_bytes: int) -> str:
    """`640 MB`, `12.4 GB`."""
    size, units = float(size_bytes), ["B", "KB", "MB", "GB", "TB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.0f} {units[0]}" if size >= 100 or units[0] == "B" else f"{size:.1f} {units[0]}"


MAX_CHARACTERS = 500_000
"""The rest is cut off, because a browser has to lay out everything."""

_TAGS = {
    *("p", "br", "hr", "blockquote", "pre", "code", "em", "strong", "s", "a", "ul", "ol", "li"),
    *("h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
_ATTRIBUTES: dict[str, set[str]] = {"*": set(), "a": {"href"}, "ol": {"start"}}
_SCHEMES = {"http", "https", "mailto"}


def rendered(text: str) -> Markup:
    """Render Markdown to safe HTML. Headings move one level down, below the page's own."""
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
    parser.disable("image")
    tokens = parser.parse(text[:MAX_CHARACTERS])
    _lower_headings(tokens)
    made = parser.renderer.render(tokens, parser.options, {})
    safe = nh3.clean(
        made, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes=_SCHEMES, link_rel="noopener noreferrer nofollow"
    )
    return Markup(safe)


def _lower_headings(tokens: Sequence[Token]) -> None:
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1]) + 1, 6)}"
