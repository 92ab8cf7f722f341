"""What all guides with a complete program have in common: they begin with the goal and the time, and are easy to find."""

from __future__ import annotations

import re

import pytest

from support.guide import GUIDES, ROOT, blocks

PROGRAMS = ("fastapi", "node", "n8n", "slack", "github-actions", "user-questions")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_guide_begins_with_its_goal_its_time_and_what_it_needs(name: str) -> None:
    first = (GUIDES / f"{name}.md").read_text().partition("\n## ")[0]
    assert re.match(r"# .+\n\nAt the end", first)
    plain = " ".join(first.split())
    assert re.search(r"takes? about (ten|twenty) minutes", plain)
    assert "You need a clone of this repository" in plain


@pytest.mark.parametrize("name", [*PROGRAMS, "troubleshooting"])
def test_the_readme_and_the_index_lead_to_a_guide(name: str) -> None:
    assert f"(docs/guides/{name}.md)" in (ROOT / "README.md").read_text()
    assert f"(guides/{name}.md)" in (ROOT / "docs/README.md").read_text()


@pytest.mark.parametrize("name", [*PROGRAMS, "troubleshooting"])
def test_every_block_says_what_language_it_is(name: str) -> None:
    found = blocks(f"{name}.md")
    assert found
    assert all(block.language for block in found)
    assert (GUIDES / f"{name}.md").read_text().count("```") == 2 * len(found)


@pytest.mark.parametrize("name", ["fastapi", "node", "n8n"])
def test_every_guide_starts_askback_in_the_same_way(name: str) -> None:
    assert blocks(f"{name}.md")[0] == blocks("fastapi.md")[0]
