"""A turn that would wait but named no session cannot be gone on with: it fails, it does not wait."""

import json
import shlex
import stat
from pathlib import Path

import pytest

from askback.core.errors import ErrorCode
from askback.core.events import EventType
from askback.core.runs import RunState
from support.data_folder import World, over, run_async, submit

QUESTION = json.dumps({"ask_user": {"interaction_id": "colour", "prompt": "Which colour?"}})
FINISHED = json.dumps({"__SKILL_DONE__": True, "colour": "red"})


def codex(text: str) -> tuple[str, str]:
    events = [
        {"type": "turn.started"},
        {"type": "item.completed", "item": {"id": "item_0", "type": "agent_message", "text": text}},
        {"type": "turn.completed", "usage": {"input_tokens": 1, "cached_input_tokens": 0, "output_tokens": 1}},
    ]
    return "\n".join(json.dumps(event) for event in events), ""


def gemini(text: str) -> tuple[str, str]:
    events = [
        {"type": "message", "role": "assistant", "content": text, "delta": True},
        {"type": "result", "status": "success", "stats": {"total_tokens": 2, "input_tokens": 1, "output_tokens": 1}},
    ]
    return "\n".join(json.dumps(event) for event in events), ""


def iflow(text: str) -> tuple[str, str]:
    info = {"conversation-id": "c", "assistantRounds": 1, "executionTimeMs": 5}
    return text, f"<Execution Info>\n{json.dumps(info, indent=2)}\n</Execution Info>"


HELP = {
    "codex": "Usage: codex exec resume [OPTIONS] [SESSION_ID] [PROMPT] --json --skip-git-repo-check --model",
    "gemini": "--resume --acp stream-json",
    "iflow": "--resume",
}
PROGRAMS = {"codex": codex, "gemini": gemini, "iflow": iflow}


def program(folder: Path, engine: str, text: str) -> str:
    """A program that prints a whole good turn of the engine, except that it never says which session it is in."""
    stdout, stderr = PROGRAMS[engine](text)
    path = folder / engine
    path.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *--help*) echo {shlex.quote(HELP[engine])}; exit 0;; *--version*) echo 9.9.9; exit 0;; esac\n'
        f"cat > /dev/null\nprintf '%s\\n' {shlex.quote(stdout)}\nprintf '%s\\n' {shlex.quote(stderr)} >&2\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"[engines.{engine}]\ncommand = [{json.dumps(str(path))}]\n"


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("codex", marks=pytest.mark.contract("X-2")),
        pytest.param("gemini", marks=pytest.mark.contract("X-3")),
        pytest.param("iflow", marks=pytest.mark.contract("X-4")),
    ],
)
def test_a_turn_that_asks_without_naming_its_session_fails_and_one_that_completes_does_not(
    tmp_path: Path, engine: str
) -> None:
    world = World(tmp_path)
    skill = world.skill()

    async def main() -> None:
        async with world.working(program(tmp_path, engine, QUESTION)) as app:
            run = await over(app, (await submit(app, skill, engine=engine)).id)
            assert run.error is not None
            assert run.error.code is ErrorCode.SESSION_RESUME_FAILED
            states = [e.data["to"] for e in await app.service.store.events(run.id) if e.type is EventType.RUN_STATE]
            assert states == ["queued", "running", "failed"]
        async with world.working(program(tmp_path, engine, FINISHED)) as app:
            run = await over(app, (await submit(app, skill, engine=engine)).id)
            assert (run.state, run.error) == (RunState.SUCCEEDED, None)

    run_async(main)
