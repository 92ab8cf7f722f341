"""What `askback doctor` and `/healthz` say about the store of `files`."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from askback.blobs.object_store import cause
from support.data_folder import ASK, DEADLINE_SEC, FINISH, World
from support.object_store import CREDENTIALS, Bucket, Door
from support.program import Ran, Started, askback, until
from support.server import Server


def _doctor(world: World, files: str) -> tuple[Ran, dict[str, Any]]:
    ran = askback(world, "doctor", "--json", env={"ASKBACK_FILES": files, **CREDENTIALS})
    return ran, next(each for each in ran.json["findings"] if each["what"] == "files")


def test_doctor_says_whether_files_can_be_stored(world: World, bucket: Bucket) -> None:
    _, told = _doctor(world, bucket.address)
    assert (told["ok"], told["message"]) == (
        True,
        f"can be stored in s3://{bucket.name}/some/prefix at {bucket.endpoint}",
    )
    ran, told = _doctor(world, bucket.address.replace(bucket.name, "absent"))
    assert (ran.code, told["ok"]) == (1, False)
    assert "NoSuchBucket" in told["message"]
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in ran.stdout + ran.stderr


def test_no_server_starts_with_a_bucket_that_does_not_exist(world: World, bucket: Bucket) -> None:
    skill = world.skill([ASK], [FINISH])
    env = {"ASKBACK_FILES": bucket.address, **CREDENTIALS}
    absent = {**env, "ASKBACK_FILES": bucket.address.replace(bucket.name, "absent")}
    # As the first store of a database, and in place of another one.
    for _ in range(2):
        refused = Started(world, "serve", "--port", "0", env=absent).ended()
        assert (refused.code, "NoSuchBucket: create the bucket, or correct `files`" in refused.stderr) == (1, True)
        assert (
            askback(world, "run", skill, "--engine", "scripted", "--mode", "interactive", "--json", env=env).code == 4
        )
    status = askback(world, "files", "status", "--json", env=absent)
    assert (status.code, status.json["reachable"], status.json["runs"]["stored"]) == (1, False, None)
    assert "have their files in the store" not in askback(world, "files", env=absent).stdout


def test_a_run_is_shown_while_its_files_cannot_be_listed(world: World, bucket: Bucket) -> None:
    skill = world.skill([{"finish": {"colour": "red"}}])
    env = {"ASKBACK_FILES": bucket.address, **CREDENTIALS}
    run_id = askback(world, "run", skill, "--engine", "scripted", "--json", env=env).json["id"]
    assert askback(world, "show", run_id, "--json", env=env).json["artifacts"] == []
    bucket.turn(Door.REFUSING)
    shown = askback(world, "show", run_id, env=env)
    assert shown.code == 0, shown.stderr
    assert f"run {run_id}: succeeded" in shown.stdout
    assert "! the files cannot be listed: the file store s3://" in shown.stdout
    told = askback(world, "show", run_id, "--json", env=env).json
    assert (told["state"], told["artifacts"]) == ("succeeded", None)
    assert "cannot be used" in told["files_unavailable"]


def test_the_page_of_a_run_is_shown_while_its_files_cannot_be_listed(world: World, bucket: Bucket) -> None:
    world.skill([ASK], [FINISH], name="asking")
    env = {"ASKBACK_FILES": bucket.address, **CREDENTIALS}
    with Server(world, env=env) as server, server.client() as client:
        assert f"looking at the file store s3://{bucket.name}/" in server.stderr
        run = client.create_run("asking", engine="scripted", mode="interactive")
        assert client.wait(run.id).state == "waiting_user"
        bearer = {"authorization": f"Bearer {server.token}"}
        for path in (f"/runs/{run.id}", f"/runs/{run.id}/files"):
            with_files = httpx.get(f"{server.url}{path}", headers=bearer, timeout=DEADLINE_SEC)
            assert (with_files.status_code, "files-unavailable" in with_files.text) == (200, False)
            bucket.turn(Door.REFUSING)
            without = httpx.get(f"{server.url}{path}", headers=bearer, timeout=DEADLINE_SEC)
            assert (without.status_code, "files-unavailable" in without.text) == (200, True)
            bucket.turn(Door.OPEN)
        assert "Which colour?" in httpx.get(f"{server.url}/runs/{run.id}", headers=bearer, timeout=DEADLINE_SEC).text


def test_a_skill_is_stored_when_a_command_installs_it(world: World) -> None:
    stored = world.folder / "stored"
    ran = askback(world, "skills", "install", world.skill([FINISH]), "--json", env={"ASKBACK_FILES": str(stored)})
    assert [path.name for path in (stored / "packages").iterdir()] == [f"{ran.json['digest']}.tar.zst"]


@pytest.mark.parametrize(
    ("said_by_library", "cause_of"),
    [
        ("Generic S3 error: Missing AccessKeyId", "AWS_ACCESS_KEY_ID is not set"),
        ("Generic S3 error: Missing SecretAccessKey", "AWS_SECRET_ACCESS_KEY is not set"),
        ("non-2xx status code: 401 Unauthorized: token=abc", "it answered with status 401; is it an object store?"),
        ("status code: 403: <Code>AccessDenied</Code>", "it answered AccessDenied"),
        ("something with a secret", "the request failed"),
    ],
)
def test_causes_are_told_apart(said_by_library: str, cause_of: str) -> None:
    assert cause(said_by_library) == cause_of


def test_an_endpoint_without_tls_is_told(world: World, bucket: Bucket) -> None:
    _, told = _doctor(world, bucket.address.replace("http://", "https://"))
    assert "it does not speak TLS" in told["message"]


def test_a_wrong_address_of_files_is_a_wrong_setting(world: World) -> None:
    skill = world.skill([FINISH])
    for address in ("bucket", "s3://key:secret@bucket", "s3://bucket?secret=x"):
        ran = askback(world, "run", skill, "--engine", "scripted", "--json", env={"ASKBACK_FILES": address})
        assert ran.json["error"]["code"] == "SETTINGS_INVALID", ran.stdout


def test_health_says_whether_files_can_be_stored(world: World) -> None:
    folder, elsewhere = world.folder / "stored", world.folder / "elsewhere"
    with Server(world, env={"ASKBACK_FILES": str(folder)}) as server:

        def told() -> tuple[int, str, str]:
            answer = httpx.get(f"{server.url}/healthz", timeout=60)
            return answer.status_code, answer.json()["status"], answer.json()["files"]

        assert folder.stat().st_mode & 0o077 == 0
        # Before the first question: a good answer is remembered for half a minute.
        folder.rename(elsewhere)
        until(lambda: told() == (503, "failing", "FILES_UNAVAILABLE"))
        elsewhere.rename(folder)
        until(lambda: told() == (200, "ok", "ok"))
