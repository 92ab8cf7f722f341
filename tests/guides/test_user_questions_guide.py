"""The guide for questions of an app's users works as it is printed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.api import calling, over
from support.data_folder import World
from support.guide import Reader
from support.server import Server


@pytest.mark.long
@pytest.mark.contract("N-5")
def test_each_user_answers_the_own_question_and_sees_no_other(tmp_path: Path) -> None:
    world = World(tmp_path)
    reader = Reader("user-questions.md", world)
    start = re.sub(r"^make demo .*\n", "", reader.next())
    set_up, serve = start.removeprefix(". .venv/bin/activate\n").splitlines()
    assert serve == "askback serve"
    reader.type(set_up)
    with Server(world) as server, calling(server.url, server.token) as main:
        reader.type(reader.next(), {". .venv/bin/activate\n": "", "http://127.0.0.1:8765": server.url})
        reader.write_next()
        reader.type(reader.next())
        inbox = json.loads(reader.type(reader.next()))
        assert (inbox["total"], [each["summary"] for each in inbox["items"]]) == (1, ["Lisbon, 3 days"])
        assert inbox["items"][0]["labels"] == {"customer": "4711"}
        assert reader.type(reader.next()) == "404\n"
        assert json.loads(reader.type(reader.next()))["labels"] == {"customer": "4711"}
        assert over(main, reader.env["RUN"])["state"] == "succeeded"
        with calling(server.url, reader.env["BEN"]) as ben:
            assert [each["summary"] for each in ben.get("/v1/inbox").json()["items"]] == ["Kyoto, 3 days"]
            assert ben.get("/v1/interactions").json()["items"] == []
    reader.finish()
