"""Two servers and a worker, each on its own machine: what one server has made or taken works at the other."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from support import machines, postgres
from support.api import PATIENCE_SEC, calling, over, reach, reply, start, waiting
from support.data_folder import ASK, FINISH, World
from support.machines import Fleet, Machine, WorkerProgram
from support.object_store import CREDENTIALS, S3Server
from support.postgres import databases
from support.program import Ran, askback, until
from support.server import Server

HOST = {"host": "askback.example"}
"""A name that leads to both, as a proxy does."""
ENV = {
    **CREDENTIALS,
    "ASKBACK_SERVER__PUBLIC_URL": "http://askback.example",
    "ASKBACK_SKILLS_DIR": "",
    "ASKBACK_SLOTS": "2",
}
FILE = {"type": "object", "required": ["plan"], "properties": {"plan": {"type": "string", "x-input-source": "file"}}}
ASK_FILE = {"ask": {"interaction_id": "colour", "prompt": "Which plan?", "kind": "file"}}
WRITE = {"write": {"path": "artifacts/plan.txt", "text": "one\n"}}
REWRITE = {"write": {"path": "artifacts/plan.txt", "text": "two\n"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    one: Server
    other: Server
    worlds: tuple[Machine, Machine]
    third: Machine
    """Where turns are executed."""


def env_of(machine: Machine) -> dict[str, str]:
    """Without a token in the settings, the first server makes one."""
    return {name: value for name, value in machine.env.items() if name != "ASKBACK_SERVER__TOKEN"} | ENV


def served(machine: Machine) -> Server:
    return Server(machine, "--no-worker", env=env_of(machine), program=machine.program)


def command(machine: Machine, *words: str) -> Ran:
    return askback(machine, *words, env=env_of(machine))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[Pair]:
    if (reason := postgres.missing() or machines.missing()) is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("several")
    bucket = s3_server.make_bucket()
    with databases.chosen(True):
        fleet = Fleet(folder, databases.make(folder), bucket.address)
        first, second, third = (fleet.machine(name) for name in ("one", "other", "third"))
        with (
            served(first) as one,
            served(second) as other,
            WorkerProgram(third, env=env_of(third)),
            calling(one.url, one.token) as client,
        ):
            install(client, Path(World(folder / "written").skill([ASK], [FINISH], name="asking")))
            yield Pair(one=one, other=other, worlds=(first, second), third=third)
    bucket.close()


def install(client: httpx.Client, skill: Path) -> None:
    answer = client.post("/v1/skills", files={"file": (f"{skill.name}.zip", packed(skill))})
    assert answer.status_code == 201, answer.text


def packed(folder: Path) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return content.getvalue()


def upload(client: httpx.Client, name: str, content: bytes) -> dict[str, str]:
    answer = client.post("/v1/uploads", files={"file": (name, content)})
    assert answer.status_code == 201, answer.text
    return {"upload_id": answer.json()["upload_id"]}


def made(client: httpx.Client, path: str, **body: Any) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code in (201, 202), answer.text
    found: dict[str, Any] = answer.json()
    return found


def status(server: Server, token: str, path: str = "/v1/runs") -> int:
    with calling(server.url, token) as client:
        return client.get(path).status_code


@pytest.mark.contract("M-7")
def test_both_have_the_same_token_which_commands_on_each_machine_find(pair: Pair) -> None:
    assert pair.one.token == pair.other.token
    for world in pair.worlds:
        assert (world.data_dir / "token").read_text().strip() == pair.one.token
        listed = command(world, "runs", "--json")
        assert listed.code == 0, listed.stderr


@pytest.mark.contract("M-7")
def test_a_token_of_one_is_valid_and_revoked_at_the_other(pair: Pair) -> None:
    with calling(pair.one.url, pair.one.token) as client:
        token = made(client, "/v1/tokens", name="app", scopes=["read"])["token"]
        assert status(pair.other, token) == 200
        again = client.post("/v1/tokens", json={"name": "app", "scopes": ["read"]})
        assert again.status_code == 422
        client.delete("/v1/tokens/app").raise_for_status()
    assert status(pair.one, token) == 401, "at once where it was revoked"
    until(lambda: status(pair.other, token) == 401)
    by_command = command(pair.worlds[1], "tokens", "create", "cli", "--scope", "read", "--json")
    assert by_command.code == 0, by_command.stderr
    assert status(pair.one, by_command.json["token"]) == 200
    assert command(pair.worlds[0], "tokens", "revoke", "cli").code == 0
    for server in (pair.one, pair.other):
        until(lambda server=server: status(server, by_command.json["token"]) == 401)  # type: ignore[misc]


def signed_in(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.headers["set-cookie"].partition(";")[0].partition("=")[2])


def browser(server: Server, session: str) -> httpx.Client:
    """The name of the cookie has the port of the server, which is the same on the machines of one site."""
    return calling(server.url, None, **HOST, cookie=f"askback_session_{server.port}={session}")


def entered(server: Server, **form: str) -> httpx.Response:
    return httpx.post(f"{server.url}/enter", data=form, headers=HOST, timeout=PATIENCE_SEC)


@pytest.mark.contract("M-7")
def test_a_browser_that_signed_in_at_one_is_signed_in_and_out_at_the_other(pair: Pair) -> None:
    session = signed_in(entered(pair.one, token=pair.one.token))
    with browser(pair.other, session) as there, browser(pair.one, session) as here:
        assert there.get("/v1/runs").status_code == 200
        assert here.get("/v1/runs").status_code == 200
        there.delete("/v1/sessions", headers={"origin": "http://askback.example"}).raise_for_status()
        assert there.get("/v1/runs").status_code == 401
        until(lambda: here.get("/v1/runs").status_code == 401)


@pytest.mark.contract("M-7")
def test_an_invitation_of_one_is_used_once_at_the_other(pair: Pair) -> None:
    with calling(pair.one.url, pair.one.token) as client:
        made(client, "/v1/tokens", name="anna", scopes=["answer"])
        invitation = made(client, "/v1/invitations", token="anna")
    secret = parse_qs(urlsplit(invitation["url"]).query)["invitation"][0]
    session = signed_in(entered(pair.other, invitation=secret))
    for server in (pair.one, pair.other):
        assert entered(server, invitation=secret).status_code == 401
        with browser(server, session) as phone:
            assert phone.get("/v1/inbox").status_code == 200


@pytest.mark.contract("M-7")
def test_a_link_of_one_shows_its_question_at_the_other_until_it_is_revoked(pair: Pair) -> None:
    with calling(pair.one.url, pair.one.token) as client:
        run_id = waiting(client)
        links = [made(client, f"/v1/runs/{run_id}/interaction/link")["url"] for _ in range(2)]
        paths = [urlsplit(url).path for url in links]
        with calling(pair.other.url, None) as holder:
            shown = [holder.get(path) for path in paths]
            assert [each.json()["interaction_id"] for each in shown] == ["colour", "colour"]
            listed = client.get(f"/v1/runs/{run_id}/interaction/links").json()["items"]
            client.delete(f"/v1/runs/{run_id}/interaction/links/{listed[0]['id']}").raise_for_status()
            until(lambda: sorted(holder.get(path).status_code for path in paths) == [200, 401])
            (valid,) = [path for path in paths if holder.get(path).status_code == 200]
            answered = holder.post(valid, json={"response": "red"})
            assert answered.status_code == 202, answered.text
        over(client, run_id)
        client.delete(f"/v1/runs/{run_id}").raise_for_status()
    names = databases.server.execute("SELECT name FROM askback.collections", _name(pair.worlds[0]))
    assert not [name for (name,) in names if run_id in name], "the links end with their run"


def is_listed(server: Server, skill: str) -> bool:
    with calling(server.url, server.token) as client:
        return skill in [each["id"] for each in client.get("/v1/skills").json()["items"]]


@pytest.mark.contract("M-7")
def test_a_skill_that_is_installed_at_one_is_used_and_removed_at_the_other(pair: Pair, tmp_path: Path) -> None:
    skill = Path(World(tmp_path).skill([{"finish": {"colour": "red"}}], name="travelling"))
    with calling(pair.one.url, pair.one.token) as here, calling(pair.other.url, pair.other.token) as there:
        install(here, skill)
        until(lambda: is_listed(pair.other, "travelling"))
        listed = {each["path"] for each in there.get("/v1/skills/travelling/files").json()["items"]}
        assert "SKILL.md" in listed
        assert there.get("/v1/skills/travelling/files/SKILL.md").text == (skill / "SKILL.md").read_text()
        assert over(here, start(there, "travelling"))["state"] == "succeeded"
        there.delete("/v1/skills/travelling").raise_for_status()
        until(lambda: not is_listed(pair.one, "travelling"))
    assert command(pair.worlds[0], "skills", "install", "trip-planner").code == 0
    for server in (pair.one, pair.other):
        until(lambda server=server: is_listed(server, "trip-planner"))  # type: ignore[misc]


@pytest.mark.contract("M-7")
def test_any_server_has_the_files_events_and_result_of_any_run(pair: Pair, tmp_path: Path) -> None:
    made_by = World(tmp_path)
    skill = made_by.skill([WRITE, ASK_FILE], [REWRITE, FINISH], name="filing", schemas={"input": FILE}, output=None)
    with calling(pair.one.url, pair.one.token) as here, calling(pair.other.url, pair.other.token) as there:
        # Uploaded at the one, used at the other, executed on the third.
        archive, plan = upload(here, "skill.zip", packed(Path(skill))), upload(here, "plan.txt", b"the plan")
        run_id = start(there, archive, input={"plan": plan})
        reach(here, run_id, "waiting_user")
        inputs = pair.third.runs / run_id / "work" / "inputs"
        assert (inputs / "plan" / "plan.txt").read_bytes() == b"the plan"
        # So is the file of a reply.
        assert reply(there, run_id, upload(here, "answer.txt", b"the answer")).status_code == 202
        assert over(here, run_id)["state"] == "succeeded"
        assert [path.read_bytes() for path in inputs.rglob("answer.txt")] == [b"the answer"]
        run = f"/v1/runs/{run_id}"
        read_everywhere(run, here, there)
        assert there.delete(run).status_code == 204
        assert here.get(f"{run}/artifacts").status_code == 404


def read_everywhere(run: str, *clients: httpx.Client) -> None:
    """Everything that is told of a run is the same at each server."""
    rest = ("artifacts", "artifacts/plan.txt", "versions?path=plan.txt", "diff?path=plan.txt&from=1&to=2")
    paths = (run, *(f"{run}/{path}" for path in (*rest, "result", "events", "interactions", "deliveries")))
    answers = [{path: client.get(path) for path in paths} for client in clients]
    assert {each.status_code for found in answers for each in found.values()} == {200}
    assert len({tuple(each.content for each in found.values()) for found in answers}) == 1
    assert answers[0][f"{run}/artifacts/plan.txt"].text == "two\n"
    assert "-one\n+two\n" in answers[0][paths[4]].json()["diff"]
    stored = answers[0][f"{run}/events"].json()["items"]
    for client in clients:
        with zipfile.ZipFile(io.BytesIO(client.get(f"{run}/bundle").content)) as bundle:
            assert bundle.read("plan.txt") == b"two\n"
        stream = client.get(f"{run}/events", headers={"accept": "text/event-stream"})
        lines = [line.removeprefix("data: ") for line in stream.text.splitlines() if line.startswith("data: ")]
        assert [json.loads(line) for line in lines] == stored


def _name(world: World) -> str:
    return str(world.database).partition("@/")[2].partition("?")[0]


def test_the_keys_are_in_the_database_alone(pair: Pair) -> None:
    for world in pair.worlds:
        records = world.records
        keys = [records.known_secret(name) for name in ("token", "link-key", "push-key")]
        assert None not in keys
        assert not (world.data_dir / "link-key").exists(), "it is in the database alone"
