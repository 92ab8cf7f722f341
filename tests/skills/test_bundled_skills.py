"""The bundled skills are valid: they are examples for users."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from askback.core.runs import Mode
from askback.skills.library import DEMO, Library
from askback.skills.package import check_package, read_package
from askback.skills.validation import check_request

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.parent for path in (ROOT / "examples/skills").glob("*/SKILL.md"))


@pytest.mark.parametrize("folder", [DEMO, *EXAMPLES], ids=lambda folder: folder.name)
def test_it_is_flawless(folder: Path) -> None:
    assert check_package(folder) == ()


def test_there_is_an_example_that_is_a_skill_md_and_nothing_else() -> None:
    assert any([each.name for each in folder.iterdir()] == ["SKILL.md"] for folder in EXAMPLES)


def test_the_demo_asks_first_and_has_a_checked_output() -> None:
    package = read_package(DEMO)
    assert package.id == "trip-planner"
    assert package.execution_modes[0] is Mode.INTERACTIVE
    assert package.engines is None
    assert check_request(package, {"destination": "Lisbon", "days": 3}, {}) == ()
    assert check_request(package, {"destination": "", "days": 0}, {"language": 1})
    result = {"title": "Lisbon", "days": [{"day": 1, "plan": "Walk."}], "pace": "my own words"}
    assert package.checkers["output"].problems(result, "output") == ()


def test_the_demo_is_installed_by_its_name_unless_there_is_a_folder_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    library = Library(tmp_path / "data")
    assert library.install(Path("trip-planner")).digest == read_package(DEMO).digest
    assert [each.id for each in library.installed()] == ["trip-planner"]
    own = tmp_path / "trip-planner"
    own.mkdir()
    (own / "SKILL.md").write_text("---\nname: trip-planner\ndescription: Mine.\n---\n\nPlan.\n")
    assert library.install(Path("trip-planner")).digest == read_package(own).digest


def test_the_guide_shows_packages_that_pass(tmp_path: Path) -> None:
    """The files shown in docs/reference/skill-package.md together are a skill without problems."""
    guide = (ROOT / "docs/reference/skill-package.md").read_text()
    shown = re.findall(r"^`([\w./-]+)`:\n\n```\w*\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    assert len(shown) >= 4
    for path, content in shown:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
        if path.endswith(".json"):
            json.loads(content)
    folders = {path.split("/")[0] for path, _ in shown}
    assert [check_package(tmp_path / folder) for folder in sorted(folders)] == [()] * len(folders)
