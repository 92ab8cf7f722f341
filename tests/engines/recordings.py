"""The recordings of the bundled engines, which lie in the folders beside this file."""

from __future__ import annotations

from pathlib import Path

from askback.testing import EXPECTED, Recording, differences, read, turn_of

__all__ = ["EXPECTED", "FOLDER", "Recording", "cases", "differences", "read", "turn_of"]

FOLDER = Path(__file__).resolve().parent


def cases() -> list[Path]:
    """Every folder that is a recording, by engine and name."""
    return sorted(path.parent for path in FOLDER.glob("*/*/exit"))
