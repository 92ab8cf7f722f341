"""Opens the book of the contract, chooses the database of each test (SQLite, PostgreSQL, or both for the mark `databases`),
and keeps the tests of a module that share a fixture on one worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from contract_book import open_book
from support import machines, postgres
from support.data_folder import World
from support.machines import Fleet
from support.object_store import CREDENTIALS, Bucket, S3Server
from support.postgres import databases


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--database", choices=("sqlite", "postgres"), help="run every test on this database alone")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("databases") and metafunc.config.getoption("--database") is None:
        metafunc.fixturenames.append("database_of_test")
        metafunc.parametrize("database_of_test", ["sqlite", "postgres"], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a module sets up once, often a server, would otherwise be set up by every worker."""
    for item in items:
        if _shares_with_its_module(item) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def _shares_with_its_module(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    names = item.fixturenames
    known = item._fixtureinfo.name2fixturedefs
    return any(known[name][-1].scope == "module" for name in names if known.get(name))


@pytest.fixture(scope="session", autouse=True)
def _database_server() -> Iterator[None]:
    yield
    databases.close()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Started for the first test that uses it."""
    pytest.importorskip("obstore")
    server = S3Server(tmp_path_factory.mktemp("moto"))
    yield server
    server.close()


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A new bucket, with its credentials in the environment."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    made = s3_server.make_bucket()
    yield made
    made.close()


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A data folder of the test's own, without skills."""
    return World(tmp_path)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address of an empty PostgreSQL database."""
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with databases.chosen(True):
        yield databases.make(tmp_path)


@pytest.fixture
def fleet(tmp_path: Path, bucket: Bucket) -> Iterator[Fleet]:
    """What several machines share: an empty database and an empty bucket."""
    if (reason := postgres.missing() or machines.missing()) is not None:
        pytest.skip(reason)
    with databases.chosen(True):
        address = databases.address(tmp_path)
        assert address is not None
        yield Fleet(tmp_path, address, bucket.address)


@pytest.fixture(autouse=True)
def database_of_test(request: pytest.FixtureRequest, _database_server: None) -> Iterator[str]:
    """The database of the worlds that this test makes."""
    name = str(getattr(request, "param", request.config.getoption("--database") or "sqlite"))
    if name == "postgres" and request.node.get_closest_marker("sqlite"):
        pytest.skip("this test is about the SQLite file")
    if name == "postgres" and (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with databases.chosen(name == "postgres"):
        yield name


def pytest_configure(config: pytest.Config) -> None:
    databases.in_use = config.getoption("--database") == "postgres" and postgres.missing() is None
    # How long an example takes on a busy machine says nothing of what is tested.
    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")
    open_book(config, Path(__file__).resolve().parent.parent)
