"""Runs a skill with the client of FastMCP, and prints what it got as JSON. Run by the interpreter that has FastMCP.

The argument is a JSON object: `doors`, each with its `mode` and either `url` and `token` or `command` and `env`, and
`skill`, the URI of a skill to read.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from fastmcp.skills.client import SkillsClientExtension

LIMIT_SEC = 240
ANSWER = "red"


def opened(door: dict[str, Any], **more: Any) -> Client:
    if "url" in door:
        headers = {"Authorization": f"Bearer {door['token']}"}
        transport: Any = StreamableHttpTransport(door["url"], headers=headers)
    else:
        program, *args = door["command"]
        transport = StdioTransport(program, args, env=door["env"], keep_alive=False)
    return Client(transport, mode=door["mode"], timeout=LIMIT_SEC, **more)


async def started(client: Client) -> dict[str, Any]:
    arguments = {"skill": "asking", "engine": "scripted", "idempotency_key": uuid.uuid4().hex}
    return (await client.call_tool("run_skill", arguments)).structured_content


async def with_elicitation(door: dict[str, Any]) -> dict[str, Any]:
    asked: list[str] = []

    async def accept(message: str, *rest: Any) -> ElicitResult[dict[str, str]]:
        asked.append(message)
        return ElicitResult(action="accept", content={"answer": ANSWER})

    async with opened(door, elicitation_handler=accept) as client:
        return {"asked": asked, "done": await started(client), "version": client.session.protocol_version}


async def without_elicitation(door: dict[str, Any]) -> dict[str, Any]:
    async with opened(door) as client:
        waiting = await started(client)
        about = {"run_id": waiting["run_id"], "interaction_id": waiting["question"]["interaction_id"]}
        done = await client.call_tool("answer_question", {**about, "answer": ANSWER})
        (link,) = [each for each in done.content if each.type == "resource_link"]
        (artifact,) = await client.read_resource(link.uri)
        return {"waiting": waiting, "done": done.structured_content, "artifact": artifact.text}


async def skills(door: dict[str, Any], uri: str) -> dict[str, Any]:
    async with opened(door, extensions=[SkillsClientExtension()]) as client:
        listed = [str(each.uri) for each in await client.list_skills()]
        skill = await client.get_skill(uri)
        (text,) = await client.read_resource(uri)
        return {"listed": listed, "skill": skill.model_dump(mode="json"), "text": text.text}


async def main() -> None:
    given = json.loads(sys.argv[1])
    results = []
    async with asyncio.timeout(LIMIT_SEC):
        for door in given["doors"]:
            got = {"with": await with_elicitation(door), "without": await without_elicitation(door)}
            if door["mode"] != "legacy":
                got["skills"] = await skills(door, given["skill"])
            results.append(got)
    print(json.dumps(results))


asyncio.run(main())
