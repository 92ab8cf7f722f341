"""The bookkeeping of the contract, tried on small trees of tests in a pytest of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

CONTRACT = """
# The contract
Mentions B-1 in prose.
- A-1 [S0] The first line, see B-2.
- A-2 [S1] The second line; X-1 is another.
- B-1 [S0] `ONE`, B-2 [S0] `TWO`: see A.
- B-3 [S3] `THREE`; B-4 [S3] warning `FOUR`.
"""
SETTINGS = """
[pytest]
testpaths = tests
markers =
    contract(*ids): lines
    long: left out
addopts = --strict-markers
"""
CONFTEST = """
from pathlib import Path

from contract_book import open_book

def pytest_configure(config):
    open_book(config, Path(__file__).parent.parent)
"""
PROVES_A1 = """
import pytest

@pytest.mark.contract("A-1")
def test_first():
    assert True

def test_unmarked():
    assert True
"""
PROVES_REST = """
import pytest

@pytest.mark.contract("A-2", "B-1")
@pytest.mark.contract("B-2")
@pytest.mark.parametrize("number", [1, 2, 3])
def test_rest(number):
    assert number

@pytest.mark.contract("B-3")
def test_skipped():
    pytest.skip("not here")

@pytest.mark.contract("B-4")
@pytest.mark.xfail(reason="not yet")
def test_expected_to_fail():
    assert False
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of the smallest kind: two of its six contract lines have no passing test."""
    for name in ("tests/contract_book.py", "tools/contract_lines.py"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    write(tmp_path, "tests/conftest.py", CONFTEST)
    write(tmp_path, "docs/contract.md", CONTRACT)
    write(tmp_path, "docs/contract-done.txt", "A-1..A-2 B-1  # and no more")
    write(tmp_path, "pytest.ini", SETTINGS)
    write(tmp_path, "tests/test_one.py", PROVES_A1)
    write(tmp_path, "tests/test_two.py", PROVES_REST)
    return tmp_path


def write(tree: Path, name: str, text: str) -> None:
    (tree / name).parent.mkdir(exist_ok=True)
    (tree / name).write_text(text, encoding="utf-8")


def run_pytest(tree: Path, *args: str) -> tuple[int, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    plugins = ["-p", "no:cacheprovider", *(["-p", "xdist"] if "-n" in args else [])]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *args],
        cwd=tree,
        env=inherited | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_whole_run_lists_the_lines_without_a_passing_test(tree: Path, workers: tuple[str, ...]) -> None:
    status, told = run_pytest(tree, *workers)
    assert status == 0, told
    assert "contract: 4 of 6 lines proven; without a test: B-3 B-4" in told


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_without_the_long_tests_a_run_is_whole(tree: Path, workers: tuple[str, ...]) -> None:
    write(tree, "tests/test_three.py", PROVES_A1.replace("A-1", "B-3").replace("def test_first", "def test_long"))
    marked = (tree / "tests/test_three.py").read_text().replace("@pytest", "@pytest.mark.long\n@pytest", 1)
    write(tree, "tests/test_three.py", marked)
    _, told = run_pytest(tree, "-m", "not long", *workers)
    assert "contract: 4 of 6 lines proven; without a test: B-3 B-4" in told
    write(tree, "docs/contract-done.txt", "A-1..A-2 B-1 B-3")
    status, told = run_pytest(tree, "-m", "not long", *workers)
    assert (status, "finished, but without a passing test: B-3" in told) == (1, True)


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_finished_line_without_a_passing_test_fails_the_run(tree: Path, workers: tuple[str, ...]) -> None:
    write(tree, "docs/contract-done.txt", "A-1 B-2..B-3")
    status, told = run_pytest(tree, *workers)
    assert status == 1, told
    assert "contract: finished, but without a passing test: B-3" in told


@pytest.mark.parametrize(
    "choice",
    [
        ("-k", "first"),
        ("-m", "contract"),
        ("tests/test_one.py",),
        ("--deselect", "tests/test_two.py"),
        ("--ignore", "tests/test_two.py"),
        ("-n", "2", "-k", "first"),
    ],
    ids=" ".join,
)
def test_a_partial_run_says_nothing(tree: Path, choice: tuple[str, ...]) -> None:
    write(tree, "docs/contract-done.txt", "B-3")
    status, told = run_pytest(tree, *choice)
    assert status == 0, told
    assert "contract:" not in told


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_tests_left_out_by_a_plugin_make_the_run_partial(tree: Path, workers: tuple[str, ...]) -> None:
    hook = """
def pytest_collection_modifyitems(config, items):
    config.hook.pytest_deselected(items=[items.pop()])
"""
    write(tree, "docs/contract-done.txt", "B-3")
    write(tree, "leaving_out.py", hook)
    status, told = run_pytest(tree, "-p", "leaving_out", *workers)
    assert status == 0, told
    assert "contract:" not in told


def test_an_unknown_id_is_an_error_of_its_test(tree: Path) -> None:
    write(tree, "tests/test_one.py", PROVES_A1.replace("A-1", "Z-9"))
    status, told = run_pytest(tree, "-n", "2")
    assert status == 1
    assert "Z-9: not in docs/contract.md; correct the mark" in told
    assert "contract: 3 of 6 lines proven" in told


@pytest.mark.parametrize(
    ("finished", "complaint"),
    [
        ("A-1 C-1", "finished, but not in the contract: C-1"),
        ("A-1, A-2", "'A-1,' is not an id"),
        ("A-2..A-1", "'A-2..A-1' is not a row"),
        ("A-1..B-2", "'A-1..B-2' is not a row"),
    ],
)
def test_a_wrong_list_of_finished_lines_is_refused(tree: Path, finished: str, complaint: str) -> None:
    write(tree, "docs/contract-done.txt", finished)
    status, told = run_pytest(tree)
    assert status == pytest.ExitCode.USAGE_ERROR
    assert complaint in told


def test_an_id_that_is_defined_twice_is_refused(tree: Path) -> None:
    write(tree, "docs/contract.md", CONTRACT + "- A-1 [S0] The first line again.\n")
    status, told = run_pytest(tree)
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "defined twice in the contract: A-1" in told
