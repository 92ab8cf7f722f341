"""The lines of docs/contract.md by their ids, and which of them are finished. Knows nothing of tests."""

from __future__ import annotations

import re
from pathlib import Path

_ID = r"[A-Z]-\d+"
_DEFINED = re.compile(rf"^- ({_ID}) |[,;] ({_ID}) \[", re.MULTILINE)
"""An id is defined where an item begins with it; a second one in the same item has its source in brackets behind it."""


def contract_ids(text: str) -> list[str]:
    """The ids that the contract defines, in its order."""
    found = [first or second for first, second in _DEFINED.findall(text)]
    doubled = sorted({line_id for line_id in found if found.count(line_id) > 1})
    if doubled:
        raise ValueError(f"defined twice in the contract: {', '.join(doubled)}; give each line an id of its own")
    return found


def finished_ids(text: str, known: list[str]) -> list[str]:
    """The ids of a list of finished lines: separated by blanks, `C-1..C-8` for a row of them, `#` begins a comment."""
    words = " ".join(line.partition("#")[0] for line in text.splitlines()).split()
    finished = [line_id for word in words for line_id in _spread(word)]
    unknown = [line_id for line_id in finished if line_id not in known]
    if unknown:
        raise ValueError(f"finished, but not in the contract: {', '.join(unknown)}")
    return finished


def _spread(word: str) -> list[str]:
    first, dots, last = word.partition("..")
    for end in (first, last) if dots else (first,):
        if not re.fullmatch(_ID, end):
            raise ValueError(f"{word!r} is not an id of a contract line; write it like C-3 or C-1..C-8")
    if not dots:
        return [first]
    letter, low = first.split("-")
    other, high = last.split("-")
    if letter != other or int(low) >= int(high):
        raise ValueError(f"{word!r} is not a row of contract lines; write it like C-1..C-8")
    return [f"{letter}-{number}" for number in range(int(low), int(high) + 1)]


def read_contract(root: Path) -> tuple[list[str], list[str]]:
    """All ids and the finished ones of the repository at `root`."""
    known = contract_ids((root / "docs/contract.md").read_text(encoding="utf-8"))
    return known, finished_ids((root / "docs/contract-done.txt").read_text(encoding="utf-8"), known)
