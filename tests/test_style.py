"""The check of wording finds what it must, in every kind of file, and nothing in code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "tools/check_style.py"
sys.path.insert(0, str(PROGRAM.parent))

import check_style  # noqa: E402


def checked(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def test_the_docs_pass() -> None:
    ran = checked()
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("page.md", "One.\n\nThe client is\ntold so.\n", ["4: avoid 'told'; write: reported, notified, said"]),
        ("page.md", "It can go\non with it.\n", ["1: avoid 'go on with'; write: resume"]),
        ("page.md", "It was Taken  up.\n", ["1: avoid 'Taken up'; write: restart"]),
        ("page.md", "Run `mend`:\n\n```sh\nmend told\n```\n\n[text](told.md) untold\n\n    mend\n", []),
        ("module.py", 'def f() -> str:\n    """Heeds it."""\n', ["2: avoid 'Heeds'; write: follow, respect"]),
        ("module.py", "heed = 1  # mend it\nx = 'told'\n", ["1: avoid 'mend'; write: fix"]),
        (
            "module.py",
            "class RunManager:\n    def _told_so(self) -> None: ...\n\ndef untold() -> None: ...\n",
            [
                "1: avoid 'RunManager'; write: a noun for what it holds",
                "2: avoid '_told_so'; write: reported, shown",
            ],
        ),
        (
            "words.json",
            '{\n  "a.told": "Fine",\n  "b": "Kept for ever"\n}',
            ["3: avoid 'for ever'; write: forever, indefinitely"],
        ),
        (
            "page.js",
            'let told = 1; // It is\n// told `told`.\n/* mend\n */ go("to https://told.example/ told");\n',
            ["2: avoid 'told'; write: reported, notified, said", "3: avoid 'mend'; write: fix"],
        ),
        ("query.sql", "SELECT told -- for\n-- ever\n", ["1: avoid 'for ever'; write: forever, indefinitely"]),
        ("Makefile", "told: ## mend it\n\techo told\n", ["1: avoid 'mend'; write: fix"]),
        (
            "page.html",
            '<p class="told">{{ told }}</p>\n<p>whoever</p>\n',
            ["2: avoid 'whoever'; write: anyone who, the client that"],
        ),
    ],
)
def test_words_to_avoid_are_found(tmp_path: Path, name: str, text: str, expected: list[str]) -> None:
    path = tmp_path / name
    path.write_text(text)
    ran = checked(str(path))
    assert ran.stderr.splitlines() == [f"{path}:{each}" for each in expected]
    assert ran.returncode == (1 if expected else 0)


def test_what_is_left_for_later_exists_and_can_be_checked() -> None:
    everything, now = (check_style.files(ROOT, later=later) for later in (True, False))
    names = {path.relative_to(ROOT).as_posix() for path in everything}
    assert {Path(name).parts[0] for name in names} == {
        *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "docs", "examples", "src", "tests"),
    }
    assert "src/askback/web/translations/en/inbox.json" in names
    assert [each for each in check_style.LATER if not any(check_style.fnmatch(name, each) for name in names)] == []
    assert set(now) < set(everything)
    assert any(each.path == check_style.GLOSSARY for each in check_style.report(ROOT, everything))


@pytest.mark.parametrize(
    ("name", "line", "found"),
    [
        ("a.py", "if error.message.startswith(GONE): ...", True),
        ("a.py", "if signal.why == FILES_UNAVAILABLE: ...", True),
        ("a.py", "found = _OFFERS.fullmatch(profile.reason)", True),
        ("a.py", "if error.code is RefusalCode.GONE: ...", False),
        ("a.js", 'if (error.message.includes("gone")) close();', True),
        ("a.js", "if (/^input/.test(error.problem)) close();", True),
        ("a.js", 'if (error.code === "GONE") close();', False),
    ],
)
def test_a_comparison_with_a_message_is_found(name: str, line: str, found: bool) -> None:
    assert bool(list(check_style.comparisons(Path(name), f"src/{name}", line))) is found


SLOW_COOKIES = re.compile(
    r"\.cookies\b|\bcookie_parser\b|from http import cookies|\bimport http\.cookies|from http\.cookies"
)
"""The parser of the standard library, which Starlette uses as well, takes quadratic time in some versions of Python."""


def test_cookies_of_strangers_meet_only_our_own_parser() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "src/askback").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if SLOW_COOKIES.search(line)
    ]
    assert [each for each in found if not each.startswith("src/askback/cli/commands/doctor.py")] == []


@pytest.mark.parametrize(
    "line",
    [
        'found = request.cookies.get("session")',
        "from starlette.requests import cookie_parser",
        "from http.cookies import SimpleCookie",
        "import http.cookies",
    ],
)
def test_the_other_parsers_are_recognized(line: str) -> None:
    assert SLOW_COOKIES.search(line)
