"""The built files are whole: installed alone, with what they declare and nothing else, they run without a clone."""

from __future__ import annotations

import re
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from askback import __version__
from support.data_folder import World
from support.installation import CLIENT, ROOT, SERVER, Installation, build_wheel
from support.program import DEADLINE_SEC
from support.server import Server

pytestmark = pytest.mark.xdist_group("distribution")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of both distributions."""
    folder = tmp_path_factory.mktemp("built")
    for project, name in ((SERVER, "askback"), (CLIENT, "askback_client")):
        build_wheel(project, name, folder)
    return folder


def wheel(built: Path, name: str) -> Path:
    return built / f"{name}-{__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return Installation(tmp_path_factory.mktemp("installed"), wheel(built, "askback"))


def source_files() -> Iterator[str]:
    for path in (ROOT / "src").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(ROOT / "src").as_posix()


def test_the_wheel_contains_every_file_of_the_package(built: Path) -> None:
    with zipfile.ZipFile(wheel(built, "askback")) as archive:
        names = {name for name in archive.namelist() if not re.match(r"askback-[\w.]+\.dist-info/", name)}
    assert names == set(source_files())


def test_the_demo_of_the_wheel_asks_and_prints_its_output(installed: Installation) -> None:
    assert installed.run("askback", "--version") == f"askback, version {__version__}\n"
    where = installed.run("python", "-c", "import askback; print(askback.__file__)")
    assert Path(where.strip()).is_relative_to(installed.packages)
    shown = installed.run("askback", "demo", "--answer", "relaxed")
    assert '"pace": "relaxed"' in shown


@pytest.mark.long
def test_the_server_of_the_wheel_serves_the_page_and_carries_out_a_run(installed: Installation) -> None:
    with Server(installed.world, program=[str(installed.bin / "askback")]) as server, server.client() as client:
        signed_in = server.session()
        with httpx.Client(base_url=server.url, headers=signed_in, timeout=DEADLINE_SEC) as browser:
            page = browser.get("/")
            assert (page.status_code, 'lang="en"' in page.text) == (200, True)
            assert 'lang="zh' in browser.get("/", headers={"accept-language": "zh-CN"}).text
            linked = re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text)
            assert linked
            assert {browser.get(path).status_code for path in linked} == {200}
        skill = next(installed.packages.glob("askback/skills/demo/trip-planner"))
        client.install_skill(skill)
        run = client.create_run("trip-planner", engine="scripted", input={"destination": "Oslo", "days": 2})
        question = client.wait(run.id).pending_interaction
        assert question is not None
        client.reply(run.id, question.interaction_id, "relaxed")
        assert client.wait(run.id).state == "succeeded"


# The client alone.

DRIVE = """
import asyncio, importlib, os, pkgutil, sys
import askback
from askback.client import AsyncClient, Client

for module in pkgutil.walk_packages(askback.__path__, "askback."):
    importlib.import_module(module.name)

url, token = os.environ["URL"], os.environ["TOKEN"]
with Client(url, token) as client:
    run = client.create_run("tested", engine="scripted", mode="interactive")
    question = client.wait(run.id, timeout_sec=100).pending_interaction
    client.reply(run.id, question.interaction_id, "blue")

async def main():
    async with AsyncClient(url, token) as client:
        assert (await client.wait(run.id, timeout_sec=100)).state == "succeeded"
        return (await client.result(run.id)).data

print(asyncio.run(main()))
"""


@pytest.mark.long
def test_the_client_alone_drives_a_server(built: Path, tmp_path: Path) -> None:
    installed = Installation(tmp_path / "client", wheel(built, "askback_client"))
    assert {"httpx", "msgspec"} <= set(installed.names)
    assert set(installed.names).isdisjoint({"starlette", "uvicorn", "apsw", "click", "pydantic", "pyyaml"})
    world = World(tmp_path / "server")
    world.skill([{"ask": {"interaction_id": "colour", "prompt": "Which?"}}], [{"finish": {"colour": "{{reply}}"}}])
    with Server(world) as server:
        shown = installed.run("python", "-c", DRIVE, URL=server.url, TOKEN=server.token)
    assert shown == "{'colour': 'blue'}\n"


def test_the_client_requires_what_the_server_requires() -> None:
    """Also the licence and the supported versions of Python are those of the server."""
    both = [tomllib.loads((each / "pyproject.toml").read_text()) for each in (SERVER, CLIENT)]
    server, client = (each["project"] for each in both)
    assert set(client["dependencies"]) <= set(server["dependencies"])
    assert both[0]["build-system"] == both[1]["build-system"]
    for key in ("requires-python", "license", "dynamic"):
        assert server[key] == client[key]
    assert (CLIENT / "LICENSE").read_text() == (SERVER / "LICENSE").read_text()
