"""The form of a new run that is filled from an earlier one: a secret of that run stays secret, whatever skill is named."""

from __future__ import annotations

import html
from typing import Any

import httpx
import pytest

from support.api import calling, over, start
from support.data_folder import World
from support.server import Server

PASSWORD = "hunter2-correct-horse"
TEXT = {"type": "string"}
SECRET = {"type": "string", "format": "password"}


def form(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


OTHERS: dict[str, dict[str, Any]] = {
    "public": {"input": form(city=TEXT, pin=TEXT), "parameter": form(key=TEXT)},
    "anything": {"input": {"type": "object"}},
    "hidden-pattern": {"input": {"type": "object", "patternProperties": {"^p": SECRET}}},
}


@pytest.mark.sqlite
def test_a_password_that_is_refused_is_not_repeated(own_world: World) -> None:
    limited = {**SECRET, "maxLength": 5}
    nested = {"type": "object", "properties": {"pin": {**limited, "pattern": "^[0-9]+$"}}, "required": ["pin"]}
    choice = {"anyOf": [limited, {"type": "integer", "writeOnly": True}]}
    own_world.skill(
        [{"finish": {}}],
        name="strict",
        output=None,
        schemas={"input": form(city=TEXT, pin=limited, deep=nested, choice=choice), "parameter": form(key=limited)},
    )
    with Server(own_world) as server, calling(server.url, server.token) as client:
        given = {"city": 7, "pin": PASSWORD, "deep": {"pin": PASSWORD}, "choice": PASSWORD}
        body = {"skill": "strict", "engine": "scripted", "input": given, "parameter": {"key": PASSWORD}}
        answer = client.post("/v1/runs", json=body)
        assert answer.status_code == 422
        assert PASSWORD not in answer.text
        for place in ("input.city", "input.pin", "input.deep", "input.choice", "parameter.key"):
            assert place in answer.text


@pytest.mark.sqlite
def test_the_form_of_another_skill_does_not_show_a_password(own_world: World) -> None:
    own = {"input": form(city=TEXT, pin=SECRET), "parameter": form(key=SECRET)}
    own_world.skill([{"finish": {}}], name="secretive", output=None, schemas=own)
    for name, schemas in OTHERS.items():
        own_world.skill([{"finish": {}}], name=name, output=None, schemas=schemas)
    with Server(own_world) as server, calling(server.url, server.token) as client:
        given = {"input": {"city": "Rome", "pin": PASSWORD}, "parameter": {"key": PASSWORD}}
        run_id = start(client, "secretive", **given)
        over(client, run_id)
        browser = server.session()
        for name in ("secretive", *OTHERS):
            for way in ("again", "follow"):
                url = f"{server.url}/new?skill={name}&{way}={run_id}"
                page = httpx.get(url, headers={**browser, "Accept": "text/html"}, timeout=120)
                assert page.status_code == 200
                assert PASSWORD not in html.unescape(page.text), (name, way)
        kept = httpx.get(f"{server.url}/new?skill=public&again={run_id}", headers=browser, timeout=120)
        assert "Rome" in kept.text
