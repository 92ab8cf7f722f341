"""The page's texts in every language it speaks. A text is found by its key; nothing visible is written anywhere else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FALLBACK = "en"
COOKIE = "askback_language"
NAMES = {"en": "English", "zh": "中文"}
"""Each language by its own name, which is the same in all of them."""
_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Translations:
    """The texts of one language."""

    language: str
    texts: Mapping[str, str]

    def __call__(self, key: str, **values: object) -> str:
        text = self.texts[key]
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    def by_prefix(self, *prefixes: str) -> dict[str, str]:
        """The texts whose keys begin with one of these words."""
        return {key: text for key, text in self.texts.items() if key.partition(".")[0] in prefixes}


def load() -> dict[str, Translations]:
    """Every language, by its code."""
    return {language: Translations(language=language, texts=_texts(language)) for language in NAMES}


def _texts(language: str) -> dict[str, str]:
    files = sorted((_FOLDER / language).glob("*.json"))
    return {key: text for file in files for key, text in json.loads(file.read_text("utf-8")).items()}


def choose(cookie: str | None, accept_language: str) -> str:
    """The language that was chosen on the page, else the one that the browser likes best of ours."""
    if cookie in NAMES:
        return cookie
    wishes = [_wish(part) for part in accept_language.split(",")]
    liked = [(weight, -place, code) for place, (code, weight) in enumerate(wishes) if code in NAMES and weight > 0]
    return max(liked)[2] if liked else FALLBACK


def _wish(part: str) -> tuple[str, float]:
    """`zh-CN;q=0.8` → `("zh", 0.8)`."""
    code, _, weight = part.strip().partition(";")
    _, _, number = weight.partition("q=")
    try:
        return code.partition("-")[0].lower(), float(number or 1)
    except ValueError:
        return "", 0.0
