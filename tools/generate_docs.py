"""Writes the pages of docs/, and the other files, that are made from the code; with `--check` it says which of them are stale instead."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable
from pathlib import Path

from pages import acp_agents, api, commands, dimensions, errors, lifecycle, metrics, settings, skill_runner, typescript

ROOT = Path(__file__).resolve().parent.parent
PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/acp-agents.md": acp_agents.page,
    "docs/reference/dimensions.md": dimensions.page,
    "docs/reference/lifecycle.md": lifecycle.page,
    "docs/reference/errors.md": errors.page,
    "docs/reference/settings.md": settings.page,
    "docs/reference/metrics.md": metrics.page,
    "docs/reference/cli.md": commands.page,
    "docs/reference/api_reference.md": api.page,
    "docs/reference/openapi.json": api.openapi,
}
TABLES: dict[str, Callable[[str], str]] = {
    "docs/guides/coming-from-skill-runner.md": skill_runner.with_table,
}
"""Written pages with a table that is made from the code."""
MODULES: dict[str, Callable[[], str]] = {
    "clients/typescript/src/schema.ts": typescript.module,
}
"""Source files; their note is a comment in another language."""
NOTE = "<!-- Made by tools/generate_docs.py; change the code and run `make docs`. -->\n\n"

SOURCE_NOTE = "// Made by tools/generate_docs.py; change the code and run `make docs`.\n\n"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--check", action="store_true", help="change nothing; fail when a page is stale")
    check = arguments.parse_args().check
    texts = {name: _text(name, make) for name, make in PAGES.items()}
    texts |= {name: fill((ROOT / name).read_text(encoding="utf-8")) for name, fill in TABLES.items()}
    texts |= {name: SOURCE_NOTE + make() for name, make in MODULES.items()}
    stale = [name for name, text in texts.items() if _settle(ROOT / name, text, check=check)]
    if check and stale:
        print(f"stale: {', '.join(stale)}; run `make docs`", file=sys.stderr)
    return 1 if check and stale else 0


def _text(name: str, make: Callable[[], str]) -> str:
    """JSON has no comments."""
    return make() if name.endswith(".json") else NOTE + make()


def _settle(path: Path, text: str, *, check: bool) -> bool:
    """Write the page, or show how it differs. True when it was stale."""
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    if old == text:
        return False
    if check:
        name = path.relative_to(ROOT).as_posix()
        lines = difflib.unified_diff(old.splitlines(), text.splitlines(), name, f"{name} as it should be", lineterm="")
        print("\n".join(lines), file=sys.stderr)
    else:
        path.write_text(text, encoding="utf-8")
    return True


if __name__ == "__main__":
    sys.exit(main())
