"""`askback database upgrade` of a later version, while programs of an older one are alive, and afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import postgres
from support.data_folder import World
from support.next_version import NextVersion
from support.postgres import databases
from support.program import Ran, askback

OLDER = """
INSERT INTO askback.programs (name, kind, host, pid, boot_id, version, lease_until, doc)
VALUES ('program-old', 'worker', 'h', 1, 'b', '0.0.1', now() + interval '1 hour',
'{"kind": "worker", "host": "h", "pid": 1, "boot_id": "b", "version": "0.0.1"}')
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with databases.chosen(False):
        made = World(tmp_path)
    made.database = databases.server.make_database()
    yield made
    databases.server.execute(f"DROP DATABASE {_name(made)} WITH (FORCE)")


def _name(world: World) -> str:
    return str(world.database).partition("@/")[2].partition("?")[0]


@pytest.mark.contract("M-10")
def test_a_step_that_is_not_additive_waits_for_older_programs_to_end(world: World, tmp_path: Path) -> None:
    def upgrade(version: NextVersion) -> Ran:
        return askback(world, "database", "upgrade", env=version.env, warm=False)

    databases.server.execute(OLDER, _name(world))
    # A step that the program needs comes after the one that must wait: nothing is changed.
    refused = upgrade(NextVersion(tmp_path / "one", needs_more=True))
    assert refused.code == 1
    assert "left unchanged: programs of an older version use it" in refused.stderr
    assert "program-old" in refused.stderr
    later = NextVersion(tmp_path / "two")
    assert askback(world, "database", "status", "--json").json["format"] == later.before
    waiting = upgrade(later)
    assert (waiting.code, f"format {later.before + 1}" in waiting.stderr) == (0, True), waiting.stderr
    assert "1 more step waits for programs of an older version to end: program-old (0.0.1)" in waiting.stderr
    databases.server.execute("UPDATE askback.programs SET lease_until = now()", _name(world))
    done = upgrade(later)
    assert (done.code, f"format {later.before + 2}" in done.stderr) == (0, True), done.stderr
    assert "upgrade Askback" in askback(world, "runs").stderr
