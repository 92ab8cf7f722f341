"""Two API servers and a worker, each on its own machine: the files of a run are the same on all of them."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import httpx
import pytest

from support.api import calling, over, reach, reply, start
from support.data_folder import FINISH
from support.machines import Fleet
from support.object_store import CREDENTIALS

FILE = {"type": "object", "required": ["plan"], "properties": {"plan": {"type": "string", "x-input-source": "file"}}}
ASK_FILE = {"ask": {"interaction_id": "colour", "prompt": "Which plan?", "kind": "file"}}
WRITE = {"write": {"path": "artifacts/plan.txt", "text": "one\n"}}
REWRITE = {"write": {"path": "artifacts/plan.txt", "text": "two\n"}}


def upload(client: httpx.Client, name: str, content: bytes) -> dict[str, str]:
    made = client.post("/v1/uploads", files={"file": (name, content)})
    assert made.status_code == 201, made.text
    return {"upload_id": made.json()["upload_id"]}


def packed(folder: Path) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return made.getvalue()


@pytest.mark.long
@pytest.mark.contract("M-7")
def test_any_server_has_the_files_of_any_run(fleet: Fleet) -> None:
    one, two, third = (fleet.machine(name) for name in ("one", "two", "third"))
    skill = third.skill([WRITE, ASK_FILE], [REWRITE, FINISH], name="filing", schemas={"input": FILE}, output=None)
    content = packed(Path(skill))
    third.skill([FINISH], name="unused")
    env = dict(CREDENTIALS)
    with (
        one.server(env={**env, "ASKBACK_SKILLS_DIR": ""}) as first,
        two.server(env={**env, "ASKBACK_SKILLS_DIR": ""}) as second,
        calling(first.url, first.token) as here,
        calling(second.url, second.token) as there,
    ):
        archive = upload(here, "skill.zip", content)
        with third.worker(env=env):
            # Uploaded at the one, used at the other, executed on the third.
            plan = upload(here, "plan.txt", b"the plan")
            run_id = start(there, archive, input={"plan": plan})
            reach(here, run_id, "waiting_user")
            inputs = third.runs / run_id / "work" / "inputs"
            assert (inputs / "plan" / "plan.txt").read_bytes() == b"the plan"
            # So is the file of a reply.
            assert reply(there, run_id, upload(here, "answer.txt", b"the answer")).status_code == 202
            assert over(here, run_id)["state"] == "succeeded"
            assert [path.read_bytes() for path in inputs.rglob("answer.txt")] == [b"the answer"]
        third.lose_disk()
        run = f"/v1/runs/{run_id}"
        paths = (
            "artifacts",
            "artifacts/plan.txt",
            "versions?path=plan.txt",
            "diff?path=plan.txt&from=1&to=2",
            "result",
        )
        answers = [[client.get(f"{run}/{path}") for path in paths] for client in (here, there)]
        assert [[each.status_code for each in found] for found in answers] == [[200] * len(paths)] * 2
        assert [each.content for each in answers[0]] == [each.content for each in answers[1]]
        assert answers[0][1].text == "two\n"
        assert "-one\n+two\n" in answers[0][3].json()["diff"]
        with zipfile.ZipFile(io.BytesIO(there.get(f"{run}/bundle").content)) as bundle:
            assert bundle.read("plan.txt") == b"two\n"
        assert there.delete(run).status_code == 204
        assert here.get(f"{run}/artifacts").status_code == 404
