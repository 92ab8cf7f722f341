"""The pages say what the code says, lead where they point to, and name nothing that is only true on one machine."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOT_OURS = {".git", ".venv", "__pycache__", "node_modules", "dist", "build"}


def own_files(root: Path = ROOT) -> Iterator[Path]:
    """Every file of the project; caches and what others wrote are not ours."""
    for path in sorted(root.iterdir()):
        cache = path.is_dir() and path.name.startswith(".") and path.name not in (".ci", ".github")
        if cache or path.name in NOT_OURS or path.is_symlink():
            continue
        if path.is_dir():
            yield from own_files(path)
        else:
            yield path


def text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


# Generated pages.


def test_the_generated_pages_are_fresh() -> None:
    command = [sys.executable, str(ROOT / "tools/generate_docs.py"), "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr


# What stands in a page and in the code as well.


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    needed += [each for extra in project["project"]["optional-dependencies"].values() for each in extra]
    told = (ROOT / "docs/explanation/dependencies.md").read_text(encoding="utf-8")
    names = [re.split(r"[<>=~!\[; ]", each)[0] for each in needed]
    assert [name for name in names if not re.search(rf"\b{re.escape(name)}\b", told)] == []


def test_every_promise_of_the_security_page_names_a_test_that_exists() -> None:
    assert len(_named_tests("security")) > 20
    assert _named_tests("security") - _defined_tests() == set()


def test_every_failure_on_the_page_about_tests_names_tests_that_exist() -> None:
    page = (ROOT / "docs/explanation/testing.md").read_text(encoding="utf-8")
    table = page.partition("## One failure at a time")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    assert [row for row in rows if "`test_" not in row.rsplit("|", 2)[1]] == []
    assert (_named_tests("testing") | _named_tests("reliability")) - _defined_tests() == set()


def _named_tests(page: str) -> set[str]:
    return set(re.findall(r"`(test_\w+)`", (ROOT / f"docs/explanation/{page}.md").read_text(encoding="utf-8")))


def _defined_tests() -> set[str]:
    return {name for path in (ROOT / "tests").rglob("test_*.py") for name in _tests_of(path)}


def _tests_of(path: Path) -> list[str]:
    return [] if NOT_OURS & set(path.parts) else re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M)


def test_every_dependency_is_locked_with_its_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {f"requirements-{name}.txt": needed for name, needed in project["optional-dependencies"].items()}
    for file, needed in {"requirements.txt": project["dependencies"], **extras}.items():
        locked = (ROOT / file).read_text(encoding="utf-8")
        for each in needed:
            name = re.split(r"[<>=~!\[; ]", each)[0]
            assert re.search(rf"^{re.escape(name)}==\S+ .*\n    --hash=sha256:", locked, re.MULTILINE), (file, name)


# Links.

LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
FENCE = re.compile(r"^(```+).*?^\1\s*$", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The names that a reader of Markdown gives to headings."""
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(FENCE.sub("", text))]
    return {heading.replace(" ", "-") for heading in plain}


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / unquote(name) if name else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    return broken


def test_every_link_in_the_pages_leads_somewhere() -> None:
    pages = [path for path in own_files() if path.suffix == ".md"]
    assert len(pages) > 5
    assert {str(page): found for page in pages if (found := broken_links(page))} == {}


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs/README.md"
    linked = {(index.parent / link).resolve() for link in LINK.findall(index.read_text(encoding="utf-8"))}
    assert set(index.parent.rglob("*.md")) - linked == {index}


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One `thing`, and more\n")
    text = """# Here
[a](other.md) [b](other.md#one-thing-and-more) [c](#here) [d](https://example.org/x)
[e](missing.md) [f](other.md#nothing) [g](#nowhere) [h](../gone/)
```
[i](in-a-block.md)
```
"""
    page = tmp_path / "page.md"
    page.write_text(text)
    assert broken_links(page) == ["missing.md", "other.md#nothing", "#nowhere", "../gone/"]


# What no file may name. The patterns are spelled so that this file passes them.

FORBIDDEN = {
    "a package registry": r"py[p]i\.org|python[h]osted\.org|npm[j]s\.(?:org|com)|registry\.[y]arnpkg|ghcr\.[i]o|docker\.[i]o",
    "a folder of one machine": r"(?<![\w.~$})>*\]-])/(?:work|root|home|Users)/[\w.]",
    "who or what wrote it": r"(?i)\bAI[- ]assistant|\blanguage[- ]model wrote|\bco-authored-by|\bgenerated (?:by|with) (?:an? )?(?:AI|LLM|Claude|GPT|Codex|Copilot|Gemini)\b",
    "how the work was split": r"(?i)\b(?:this|previous|next|earlier|last) (?:work|working|coding|chat) session|\bthe lead (?:dev|work|will|writes)|\b(?:see|in|of|for|closes|fixes) issue #?\d",
}


def offences(text: str) -> list[str]:
    return [f"{what}: {hit.group(0)}" for what, pattern in FORBIDDEN.items() for hit in re.finditer(pattern, text)]


def test_no_file_names_what_is_only_true_here() -> None:
    files = list(own_files())
    assert len(files) > 50
    found = {str(path.relative_to(ROOT)): told for path in files if (told := offences(text_of(path) or ""))}
    assert found == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("--index-url https://py" + "pi.org/simple", 1),
        ("https://files.python" + "hosted.org/packages", 1),
        ("'/ho" + "me/someone/x'", 1),
        ("in /wo" + "rk/main it is", 1),
        ("written by an AI " + "assistant", 1),
        ("Co-Authored" + "-By: someone", 1),
        ("in the previous coding " + "session", 1),
        ("see issue " + "#2", 1),
        ("askback/worker/turn.py, ~/work/x, $HOME/work/y", 0),
        ("the assistant's message and the engine's session", 0),
        ("PyPI is a package index", 0),
    ],
)
def test_what_must_not_be_named_is_found(text: str, found: int) -> None:
    assert len(offences(text)) == found
