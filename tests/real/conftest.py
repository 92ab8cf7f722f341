"""What the tests with the real CLIs share: the double, the installed programs, and a place for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clis import FOLDER, NotInstalled, Station, find_cli, settle
from double import ModelDouble
from engines_under_test import ENGINES, FASTEST, EngineUnderTest
from suite import WARM, Stage, can_be_warm

from askback.catalog import probes as asking


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Without the mark, a test has the default settings: each turn is a new process."""
    if metafunc.definition.get_closest_marker("cold_and_warm"):
        ways = ["", pytest.param(WARM, marks=pytest.mark.long)]
        metafunc.parametrize("way", ways, ids=["cold", "warm"], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of one CLI's sample conversation share it, so they belong on one worker; all others may go anywhere."""
    # The hook gets the tests of the other folders as well.
    for item in (item for item in items if item.path.is_relative_to(FOLDER)):
        _mark_long(item)
        if item.path.name == "test_clis.py" and (case := getattr(item, "callspec", None)) is not None:
            item.add_marker(pytest.mark.xdist_group(case.id))


def _mark_long(item: pytest.Item) -> None:
    """With any other engine than the fastest, `make test` runs only the tests for every engine."""
    case = getattr(item, "callspec", None)
    named = {} if case is None else case.params
    engine = next((named[each] for each in ("engine", "talk") if named.get(each) in ENGINES), FASTEST)
    if engine != FASTEST and item.get_closest_marker("every_engine") is None:
        item.add_marker(pytest.mark.long)


@pytest.fixture(autouse=True)
def ample_time_for_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs are large and the machine is busy; how long a probe may take is tried elsewhere."""
    monkeypatch.setattr(asking, "PROBE_SEC", 180.0)


@pytest.fixture
def double() -> Iterator[ModelDouble]:
    with ModelDouble() as running:
        yield running


@pytest.fixture(scope="session")
def cli() -> Callable[[str], Path]:
    """The program of an engine; without it the test is skipped, with the reason."""

    def find(engine: str) -> Path:
        try:
            return find_cli(engine)
        except NotInstalled as missing:
            pytest.skip(str(missing))

    return find


@pytest.fixture
def station(double: ModelDouble, cli: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Station]:
    """A CLI in a home and working directory of its own, pointed at the double."""

    def build(engine: str) -> Station:
        return settle(engine, cli(engine), double.url, tmp_path / engine)

    return build


@pytest.fixture(scope="session")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What was seen of the programs, so that each is asked once and not by every test."""
    return tmp_path_factory.mktemp("probes")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> EngineUnderTest:
    """Each engine of the suite in turn; one that is not installed is skipped, with the reason."""
    found = ENGINES[request.param]
    try:
        found.find()
    except NotInstalled as missing:
        pytest.skip(str(missing))
    return found


@pytest.fixture
def way(request: pytest.FixtureRequest) -> str:
    """The settings that decide whether a process is kept while its run waits."""
    return str(getattr(request, "param", ""))


@pytest.fixture
def stage(engine: EngineUnderTest, way: str, double: ModelDouble, tmp_path: Path, probes: Path) -> Iterator[Stage]:
    """Askback with one real engine, pointed at the double."""
    if way and not can_be_warm(engine.name):
        pytest.skip(f"{engine.name} is not kept warm")
    built = Stage(tmp_path, engine, double.url, probes / f"{engine.name}.json", way)
    yield built
    built.keep_probes()
