"""What the bot says, in each language: the texts are in `translations/`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "translations"


def texts_in(language: str) -> dict[str, str]:
    texts: dict[str, str] = json.loads((_FOLDER / f"{language}.json").read_text("utf-8"))
    return texts


class Texts:
    def __init__(self, language: str = "en") -> None:
        self._texts = texts_in(language)

    def __call__(self, key: str, **values: Any) -> str:
        return self._texts[key].format(**values)
