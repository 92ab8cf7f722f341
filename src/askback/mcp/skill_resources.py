"""The Skills extension (SEP-2640): the skills of the server as `skill://` resources, with a manifest of their files."""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from askback.client import AsyncClient, CallFailed, Refused
from askback.mcp.caller import Caller
from askback.skills.front_matter import FILE, MAX_SKILL_BYTES, front_matter_as_json
from askback.wire.server import SkillFile

Context = ServerRequestContext[Any, Any]
Callers = Callable[[Context], Caller]
T = TypeVar("T")

SCHEME = "skill://"
_EXTENSION = "io.modelcontextprotocol/skills"
_MARKDOWN = "text/markdown"
_FOLDER = "inode/directory"
_MOST_FILES = 512
_MOST_BYTES = 16 * 1024 * 1024
"""What every host accepts of one skill; a larger one is not listed."""
_PAGE = 20
_LONG_PAGE = 500


class Manifest(BaseModel):
    uri: str
    frontmatter: dict[str, Any]
    resources: list[dict[str, Any]]


class ListSkillsResult(types.PaginatedResult, types.CacheableResult):
    skills: list[Manifest]
    result_type: Literal["complete"] = "complete"


class GetSkillResult(types.CacheableResult):
    skill: Manifest
    result_type: Literal["complete"] = "complete"


class ReadDirectoryResult(types.PaginatedResult, types.CacheableResult):
    resources: list[types.Resource]
    result_type: Literal["complete"] = "complete"


class UriParams(types.PaginatedRequestParams):
    uri: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSkill:
    """A skill by its URI. The last segment of `root` is the name in its front matter, as the extension demands."""

    id: str
    name: str
    description: str
    client: AsyncClient

    @property
    def root(self) -> str:
        return SCHEME + (self.id if self.id == self.name else f"{self.id}/{self.name}")

    def uri(self, path: str) -> str:
        return f"{self.root}/{quote(path)}"

    async def files(self) -> list[SkillFile]:
        return await self.client.skill_files(self.id)

    async def manifest(self) -> Manifest | None:
        """None if hosts could not load the skill."""
        files = await self.files()
        own = next((each for each in files if each.path == FILE), None)
        if own is None or len(files) > _MOST_FILES or sum(each.size for each in files) > _MOST_BYTES:
            return None
        if any("\\" in each.path for each in files):
            return None
        text = await self.content(own, MAX_SKILL_BYTES)
        front = await asyncio.to_thread(front_matter_as_json, text)
        # A name such as 2026 is a number for other readers of YAML.
        if front is None or front.get("name") != self.name or not isinstance(front.get("description"), str):
            return None
        resources = [
            {"uri": self.uri(each.path), "digest": f"sha256:{each.digest}", "size": each.size} for each in files
        ]
        return Manifest(uri=self.uri(FILE), frontmatter=front, resources=resources)

    async def file(self, path: str) -> SkillFile:
        for each in await self.files():
            if each.path == path:
                return each
        raise invalid(f"there is no file {self.uri(path)[:200]!r}", self.uri(path))

    async def content(self, file: SkillFile, most: int) -> bytes:
        """The bytes that the digest describes."""
        if file.size > most:
            uri = self.uri(file.path)
            raise invalid(f"{uri} is larger than {most} bytes; download it over HTTP", uri)
        with tempfile.TemporaryDirectory(prefix="askback-mcp-") as folder:
            saved = await self.client.download_skill_file(self.id, file.path, Path(folder) / "file")
            content = await asyncio.to_thread(_start_of, saved, file.size + 1)
        if hashlib.sha256(content).hexdigest() != file.digest:
            raise MCPError(types.INTERNAL_ERROR, f"{self.uri(file.path)} has just changed; read it again")
        return content


def add_skills(server: Server[Any], callers: Callers) -> None:
    """Declare the extension, and answer its methods."""

    async def list_skills(ctx: Context, params: types.PaginatedRequestParams) -> ListSkillsResult:
        with mcp_errors():
            return await _list_skills(callers(ctx).client, params.cursor)

    async def get_skill(ctx: Context, params: UriParams) -> GetSkillResult:
        with mcp_errors(params.uri):
            return GetSkillResult(skill=await _get_skill(callers(ctx).client, params.uri))

    async def read_directory(ctx: Context, params: UriParams) -> ReadDirectoryResult:
        with mcp_errors(params.uri):
            return await _read_directory(callers(ctx).client, params)

    server.extensions[_EXTENSION] = {"directoryRead": True}
    server.add_request_handler("skills/list", types.PaginatedRequestParams, list_skills)
    server.add_request_handler("skills/get", UriParams, get_skill)
    server.add_request_handler("resources/directory/read", UriParams, read_directory)


async def _list_skills(client: AsyncClient, cursor: str | None) -> ListSkillsResult:
    skills, after = _page({each.id: each for each in await _skills(client)}, cursor, _PAGE)
    found: list[Manifest] = []
    for skill in skills:
        # A skill that was removed or changed at this moment is listed the next time.
        with suppress(Refused, MCPError):
            manifest = await skill.manifest()
            if manifest is not None and _conforms(manifest.frontmatter):
                found.append(manifest)
    return ListSkillsResult(skills=found, next_cursor=after)


def _conforms(front: dict[str, Any]) -> bool:
    """Whether the optional fields have the types of the Agent Skills format. Some clients drop the whole list if not."""
    texts = (front.get(key, "") for key in ("license", "compatibility", "allowed-tools"))
    metadata = front.get("metadata", {})
    if not isinstance(metadata, dict):
        return False
    return all(isinstance(each, str) for each in (*texts, *metadata.values()))


async def _get_skill(client: AsyncClient, uri: str) -> Manifest:
    skill, path = await _served(client, uri)
    manifest = await skill.manifest() if path == FILE else None
    if manifest is None:
        limits = f"{_MOST_FILES} files and {_MOST_BYTES} bytes"
        raise invalid(
            f"{uri[:200]!r} is not the {FILE} of a skill that clients can load; one has at most {limits}", uri
        )
    return manifest


async def _read_directory(client: AsyncClient, params: UriParams) -> ReadDirectoryResult:
    skill, folder = await _served(client, params.uri)
    above = f"{folder}/" if folder else ""
    children: dict[str, types.Resource] = {}
    for each in await skill.files():
        name, below, _ = each.path.removeprefix(above).partition("/")
        if each.path.startswith(above) and name not in children:
            uri = skill.uri(above + name)
            kind, size = (_FOLDER, None) if below else (_media_type(name), each.size)
            children[name] = types.Resource(uri=uri, name=name, mime_type=kind, size=size)
    if not children:
        raise invalid(f"{params.uri[:200]!r} is not a folder of a skill", params.uri)
    resources, after = _page(children, params.cursor, _LONG_PAGE)
    return ReadDirectoryResult(resources=resources, next_cursor=after)


async def list_skill_files(client: AsyncClient, cursor: str | None) -> types.ListResourcesResult:
    """The `SKILL.md` of each skill, for clients that do not know the extension."""
    skills, after = _page({each.id: each for each in await _skills(client)}, cursor, _LONG_PAGE)
    resources = [
        types.Resource(uri=each.uri(FILE), name=each.name, description=each.description, mime_type=_MARKDOWN)
        for each in skills
    ]
    return types.ListResourcesResult(resources=resources, next_cursor=after)


async def read_file(client: AsyncClient, uri: str) -> types.ReadResourceResult:
    skill, path = await _served(client, uri)
    content = await skill.content(await skill.file(path), _MOST_BYTES)
    return types.ReadResourceResult(contents=[resource_contents(uri, path, content)])


async def _skills(client: AsyncClient) -> list[ServedSkill]:
    """Of several skills with the same ID, new runs use the first."""
    first = {each.id: each for each in reversed(await client.skills())}
    return [
        ServedSkill(id=each.id, name=each.name, description=each.description or "", client=client)
        for each in first.values()
        if each.problem is None and each.name is not None
    ]


async def _served(client: AsyncClient, uri: str) -> tuple[ServedSkill, str]:
    """The skill that a URI belongs to, and the path in it, which is empty for the skill's own folder."""
    found = await client.skill(unquote(uri.removeprefix(SCHEME).partition("/")[0]))
    skill = ServedSkill(id=found.id, name=found.name or "", description=found.description or "", client=client)
    if uri == skill.root:
        return skill, ""
    if not uri.startswith(f"{skill.root}/") or uri.endswith("/"):
        message = f"{uri[:200]!r} is not the URI of a skill; that of skill {found.id!r} is {skill.uri(FILE)!r}"
        raise invalid(message, uri)
    return skill, unquote(uri.removeprefix(f"{skill.root}/"))


def _page(items: dict[str, T], cursor: str | None, size: int) -> tuple[list[T], str | None]:
    """The items after the key `cursor`, and the next cursor."""
    keys = sorted(key for key in items if cursor is None or key > cursor)
    shown = keys[:size]
    return [items[key] for key in shown], shown[-1] if len(keys) > size else None


def resource_contents(uri: str, path: str, content: bytes) -> types.TextResourceContents | types.BlobResourceContents:
    """Text as text, and anything else as Base64."""
    kind = _media_type(path)
    try:
        return types.TextResourceContents(uri=uri, mime_type=kind or "text/plain", text=content.decode())
    except UnicodeDecodeError:
        blob = b64encode(content).decode()
        return types.BlobResourceContents(uri=uri, mime_type=kind or "application/octet-stream", blob=blob)


def _media_type(path: str) -> str | None:
    """From the extension alone: `guess_type` takes names such as `data:…` for URLs."""
    return mimetypes.guess_type(f"/{path}")[0]


def _start_of(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)


def invalid(message: str, uri: str | None = None) -> MCPError:
    return MCPError(types.INVALID_PARAMS, message, None if uri is None else {"uri": uri})


@contextmanager
def mcp_errors(uri: str | None = None) -> Iterator[None]:
    """What the server refuses is an error of the request; without a server there is no answer."""
    try:
        yield
    except Refused as error:
        raise invalid(error.message, uri) from None
    except CallFailed as error:
        raise MCPError(types.INTERNAL_ERROR, error.message) from None
