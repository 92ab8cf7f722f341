"""`askback usage`: what the turns on a data folder, or of a server, have used."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from askback.cli.terminal import render
from askback.wire.server import UsageSum
from support.api import calling, over, start
from support.data_folder import World
from support.program import askback
from support.server import Server

USED = {"usage": {"input_tokens": 1200, "output_tokens": 20, "cached_tokens": 600, "model": "=big", "cost_usd": 0.5}}


def used_world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.skill([USED, {"finish": {"colour": "red"}}], name="costly")
    world.skill([{"usage": {"input_tokens": 5, "output_tokens": 1}}, {"finish": {"colour": "red"}}], name="cheap")
    return world


@pytest.mark.contract("U-2")
def test_a_server_and_its_command_say_the_same(tmp_path: Path) -> None:
    world = used_world(tmp_path)
    with Server(world) as server:
        with calling(server.url, server.token) as client:
            for skill in ("costly", "cheap"):
                over(client, start(client, skill))
            report = client.get("/v1/usage", params={"by": "skill", "days": 2}).json()
            refused = client.get("/v1/usage", params={"by": "weather"})
        assert refused.status_code == 422
        assert [(each["name"], each["input_tokens"], each["cost_usd"]) for each in report["items"]] == [
            ("costly", 1200, 0.5),
            ("cheap", 5, None),
        ]
        assert report["total"]["cost_usd"] == 0.5
        assert report["total"]["turns_with_cost"] == 1
    assert json.loads(askback(world, "usage", "--by", "skill", "--days", "2", "--json").stdout) == report
    shown = askback(world, "usage", "--by", "skill")
    lines = ["", *shown.stdout.splitlines()]
    assert lines[1].split() == ["costly", "1", "1,200", "600", "20", "$0.5000"]
    assert lines[2].split() == ["cheap", "1", "5", "0", "1"]
    assert lines[3].split() == ["–", "2", "1,205", "600", "21", "≥", "$0.5000"]
    rows = list(csv.DictReader(io.StringIO(askback(world, "usage", "--by", "model", "--csv").stdout)))
    # A name that a spreadsheet would take for a formula is text.
    assert [(row["name"], row["input_tokens"], row["cost_usd"]) for row in rows] == [
        ("'=big", "1200", "0.5"),
        ("", "5", ""),
    ]


def test_what_is_not_reported_is_empty() -> None:
    none = UsageSum(
        name=None,
        turns=1,
        input_tokens=None,
        output_tokens=None,
        cached_tokens=None,
        reasoning_tokens=None,
        cost_usd=None,
        turns_with_cost=0,
    )
    assert render.usage_line(none).split() == ["–", "1"]
    assert render.usage_values(none) == ("", "1", "", "", "", "", "", "0")
