"""The Skills extension: what it lists, what can be read, and for whom."""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from support.data_folder import World
from support.mcp_client import Door, key, run
from support.server import Server

EXTENSION = "io.modelcontextprotocol/skills"


class Anything(types.Result, extra="allow"):
    """A result with every field that came."""


class Given(types.RequestParams, extra="allow"):
    """Any parameters."""


async def asked(client: Client, method: str, **params: Any) -> dict[str, Any]:
    request = types.Request[Given, str](method=method, params=Given(**params))
    result = await client.session.send_request(request, Anything)
    return result.model_dump(by_alias=True)


async def refused_with(client: Client, method: str, **params: Any) -> int:
    with pytest.raises(MCPError) as raised:
        await asked(client, method, **params)
    return raised.value.error.code


async def content(client: Client, uri: str) -> bytes:
    (found,) = (await client.read_resource(uri)).contents
    return base64.b64decode(found.blob) if isinstance(found, types.BlobResourceContents) else found.text.encode()


@pytest.fixture
def modern(server: Server) -> Door:
    return Door(server=server, transport="http", mode="2026-07-28")


def test_a_skill_is_listed_with_its_files(one_door: Door, rich_skill: str, world: World) -> None:
    async def test() -> None:
        async with one_door.opened() as client:
            listed = await asked(client, "skills/list")
            assert (listed["ttlMs"], listed["cacheScope"]) == (0, "private")
            skill = {each["uri"]: each for each in listed["skills"]}[rich_skill]
            assert skill == (await asked(client, "skills/get", uri=rich_skill))["skill"]
            assert skill["frontmatter"] == {
                "name": "rich",
                "description": "Folded text: with two lines",
                "license": "Apache-2.0",
                "metadata": {"version": "1.10", "since": "2026-07-28", "on": "yes"},
            }
            folder = world.folder / "skills/rich"
            on_disk = {path.read_bytes() for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts}
            got = {each["uri"]: await content(client, each["uri"]) for each in skill["resources"]}
            assert set(got.values()) == on_disk
            for each in skill["resources"]:
                digest = hashlib.sha256(got[each["uri"]]).hexdigest()
                assert (each["digest"], each["size"]) == (f"sha256:{digest}", len(got[each["uri"]]))

    run(test)


def test_metadata_that_are_not_strings_keep_a_skill_from_the_list_alone(modern: Door, typed_skill: str) -> None:
    async def test() -> None:
        async with modern.opened() as client:
            listed = [each["uri"] for each in (await asked(client, "skills/list"))["skills"]]
            assert "skill://asking/SKILL.md" in listed
            assert typed_skill not in listed
            found = (await asked(client, "skills/get", uri=typed_skill))["skill"]
            many = [1, 31, None, "1", True, 1000.0]
            assert found["frontmatter"]["metadata"] == {"version": 1.1, "many": many, "empty": None}

    run(test)


def test_the_extension_is_declared(modern: Door) -> None:
    async def test() -> None:
        async with replace(modern, mode="auto").opened() as client:
            assert client.protocol_version == modern.mode
            capabilities = client.server_capabilities
            assert capabilities.extensions is not None
            assert capabilities.extensions[EXTENSION] == {"directoryRead": True}
            assert capabilities.resources is not None

    run(test)


def test_folders_are_read_level_by_level(one_door: Door, rich_skill: str) -> None:
    async def test() -> None:
        async with one_door.opened() as client:
            root = rich_skill.removesuffix("/SKILL.md")
            found = (await asked(client, "resources/directory/read", uri=root))["resources"]
            children = {each["name"]: each.get("mimeType") for each in found}
            assert list(children) == ["SKILL.md", "assets", "data.bin", "empty.txt", "references"]
            assert (children["SKILL.md"], children["references"]) == ("text/markdown", "inode/directory")
            (odd,) = (await asked(client, "resources/directory/read", uri=f"{root}/references"))["resources"]
            (notes,) = (await asked(client, "resources/directory/read", uri=odd["uri"]))["resources"]
            assert await content(client, notes["uri"]) == b"notes\n"
            for uri in (rich_skill, f"{root}/none", f"{root}/", "skill://no-such-skill", "skill://", f"{root}/refer"):
                assert await refused_with(client, "resources/directory/read", uri=uri) == types.INVALID_PARAMS

    run(test)


def test_skills_are_resources_for_clients_without_the_extension(one_door: Door, rich_skill: str) -> None:
    async def test() -> None:
        async with one_door.opened() as client:
            listed = {each.uri: each for each in (await client.list_resources()).resources}
            found = listed[rich_skill]
            assert (found.name, found.mime_type) == ("rich", "text/markdown")
            assert found.description == "Folded text: with two lines"
            assert (await content(client, rich_skill)).startswith(b"---\r\nname: rich")

    run(test)


def test_only_files_of_the_package_are_read(modern: Door, rich_skill: str, world: World) -> None:
    (world.folder / "skills/rich/.git").mkdir(exist_ok=True)
    (world.folder / "skills/rich/.git/config").write_text("secret")
    root = rich_skill.removesuffix("/SKILL.md")
    unknown = [
        f"{root}/.git/config",
        f"{root}/../../asking/SKILL.md",
        f"{root}/%2e%2e/asking/SKILL.md",
        f"{root}/assets",
        f"{root}/SKILL.md/",
        f"{root}//SKILL.md",
        f"{root}/{'x' * 5000}",
        "skill://rich/SKILL.md",
        "skill://Rich.Skill/SKILL.md",
        "skill://%2e%2e/SKILL.md",
        "skill:///etc/hostname",
    ]

    async def test() -> None:
        async with modern.opened() as client:
            for uri in unknown:
                with pytest.raises(MCPError) as raised:
                    await client.read_resource(uri)
                assert raised.value.error.code == types.INVALID_PARAMS, uri
                assert await refused_with(client, "skills/get", uri=uri) == types.INVALID_PARAMS, uri
            assert await refused_with(client, "skills/get", uri=f"{root}/empty.txt") == types.INVALID_PARAMS

    run(test)


def test_reading_skills_needs_the_scope_read(modern: Door, rich_skill: str) -> None:
    async def test() -> None:
        with modern.server.client() as api:
            names = [f"skills-{key()[:8]}" for _ in range(2)]
            submits = api.create_token(names[0], ["submit"]).token
            restricted = api.create_token(names[1], ["read"], labels={"team": "a"}).token
            try:
                async with modern.with_token(submits).opened() as client:
                    assert await refused_with(client, "skills/list") == types.INVALID_PARAMS
                    assert (await client.list_resources()).resources == []
                    with pytest.raises(MCPError):
                        await client.read_resource(rich_skill)
                async with modern.with_token(restricted).opened() as client:
                    assert rich_skill in [each["uri"] for each in (await asked(client, "skills/list"))["skills"]]
            finally:
                for name in names:
                    api.revoke_token(name)

    run(test)


@pytest.fixture
def many(world: World) -> Iterator[list[str]]:
    """More skills than a page has, and one with more files than clients accept."""
    names = [f"many-{number:02}" for number in range(25)]
    folders = [Path(world.skill([{"finish": {"colour": "red"}}], name=name)) for name in [*names, "large", "numeric"]]
    for number in range(513):
        (folders[-2] / f"{number}.txt").touch()
    (folders[-1] / "SKILL.md").write_text("---\nname: 2026\ndescription: A number.\n---\nDo it.\n")
    yield names
    for folder in folders:
        shutil.rmtree(folder)


def test_skills_come_in_pages_without_those_that_clients_cannot_load(modern: Door, many: list[str]) -> None:
    async def test() -> None:
        async with modern.opened() as client:
            names: list[str] = []
            cursor: dict[str, str] = {}
            pages = 0
            while pages < 10 and (pages == 0 or cursor):
                page = await asked(client, "skills/list", **cursor)
                names += [each["frontmatter"]["name"] for each in page["skills"]]
                cursor = {"cursor": page["nextCursor"]} if page.get("nextCursor") else {}
                pages += 1
            assert 1 < pages < 10
            assert len(set(names)) == len(names)
            assert set(many) < set(names)
            assert not {"large", "2026", 2026} & set(names)
            assert await refused_with(client, "skills/get", uri="skill://large/SKILL.md") == types.INVALID_PARAMS
            assert (await content(client, "skill://large/SKILL.md")).startswith(b"---")

    run(test)
