"""Keeps the books of the contract: which of its lines have a passing test, and whether a finished one lost its proof."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PROPERTY = "contract"
NOT_LONG = "not long"
"""The choice of `make test`. The long tests prove no line that the others do not prove."""


def open_book(config: pytest.Config, root: Path) -> None:
    """Keep the book of the contract in this repository."""
    try:
        known, finished = _tool(root, "contract_lines").read_contract(root)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    config.pluginmanager.register(ContractBook(config, known, finished), "contract-book")


def _tool(root: Path, name: str) -> ModuleType:
    """A module of tools/, which is no package and on nobody's path."""
    spec = importlib.util.spec_from_file_location(name, root / f"tools/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class ContractBook:
    """Collects the marks of passed tests. Under xdist the workers run tests, and the controller reads their reports."""

    def __init__(self, config: pytest.Config, known: list[str], finished: list[str]) -> None:
        self.config = config
        self.known = known
        self.finished = finished
        self.proven: set[str] = set()
        self.deselected = 0

    @property
    def is_worker(self) -> bool:
        return hasattr(self.config, "workerinput")

    # Where tests run.

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        ids = [line_id for mark in item.iter_markers("contract") for line_id in mark.args]
        unknown = [line_id for line_id in ids if line_id not in self.known]
        if unknown:
            pytest.fail(f"{', '.join(map(str, unknown))}: not in docs/contract.md; correct the mark", pytrace=False)
        item.user_properties.append((PROPERTY, " ".join(ids)))

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        self.deselected += sum(not self.is_left_out(item) for item in items)

    # Where reports arrive.

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.proven.update(*(str(ids).split() for name, ids in report.user_properties if name == PROPERTY))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.deselected += getattr(node, "workeroutput", {}).get("contract_deselected", 0)

    # The end.

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.is_worker:
            self.config.workeroutput["contract_deselected"] = self.deselected  # type: ignore[attr-defined]
        elif self.whole_run() and self.broken() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.whole_run():
            return
        unproven = [line_id for line_id in self.known if line_id not in self.proven]
        told = f"contract: {len(self.known) - len(unproven)} of {len(self.known)} lines proven"
        terminalreporter.write_line(f"{told}; without a test: {' '.join(unproven)}" if unproven else told)
        if self.broken():
            terminalreporter.write_line(
                f"contract: finished, but without a passing test: {' '.join(self.broken())}", red=True
            )

    def broken(self) -> list[str]:
        return [line_id for line_id in self.finished if line_id not in self.proven]

    def is_left_out(self, item: pytest.Item) -> bool:
        return self.config.option.markexpr == NOT_LONG and item.get_closest_marker("long") is not None

    def whole_run(self) -> bool:
        """Every test but the long ones was meant to run: no path, no choice by name or another mark, nothing left out."""
        choices = ("keyword", "deselect", "ignore", "ignore_glob", "collectonly", "lf", "stepwise")
        chosen = any(getattr(self.config.option, name, None) for name in choices)
        chosen = chosen or self.config.option.markexpr not in ("", NOT_LONG)
        return self.config.args_source is pytest.Config.ArgsSource.TESTPATHS and not chosen and not self.deselected
