"""A browser for the tests of the page, one furnished server for all of them, and a fresh context for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright
from site_pages import FurnishedServer, Site, signed_in

from support.data_folder import World

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
]


# Not for the session: while it is open its event loop counts as running, and no other test could have one of its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"there is no browser here: none of {', '.join(_NAMES)} is on PATH")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=_ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def furnished_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FurnishedServer]:
    """With runs of other tests on it."""
    with FurnishedServer(World(tmp_path_factory.mktemp("site"))) as server:
        yield server


@pytest.fixture
def site(furnished_server: FurnishedServer, browser: Browser) -> Iterator[Site]:
    with signed_in(furnished_server, browser) as signed:
        yield signed
