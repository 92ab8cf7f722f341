"""Engines that are made by settings alone: a program that speaks ACP, with every quirk that such programs have."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from askback.app import App
from askback.core.errors import ErrorCode, Invalid, RefusalCode
from askback.core.runs import ProfileKind, Run, RunState
from askback.process import tree
from support.data_folder import World, over, reach, run_async, submit

AGENT = str(Path(__file__).resolve().parents[1] / "support" / "acp_agent.py")


class Stranger(World):
    """A world with an engine that nobody has heard of."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lines: list[str] = []

    def config(self, *quirks: str) -> str:
        command = json.dumps([sys.executable, "-I", "-S", AGENT, *(f"--{each}" for each in quirks)])
        return "\n".join(("[engines.stranger]", 'protocol = "acp"', f"command = {command}", *self.lines))

    def play(self, *quirks: str, check: bool = True, later: tuple[str, ...] | None = None, **rest: Any) -> Run:
        """A run that asks and, if it waits, is answered in another program, with the quirks of then."""
        runs: list[Run] = []
        skill = self.skill()

        async def first(app: App) -> None:
            if check:
                assert (await app.service.engines.check("stranger")).resumes
            run = await submit(app, skill, engine="stranger", mode="interactive", **rest)
            runs.append(await settled(app, run.id))

        async def second(app: App) -> None:
            await app.service.reply(runs[0].id, "blue")
            runs.append(await over(app, runs[0].id))

        async def main() -> None:
            for then, body in ((quirks, first), (quirks if later is None else later, second)):
                if not runs or runs[-1].state is RunState.WAITING_USER:
                    async with self.working(self.config(*then)) as app:
                        await body(app)

        run_async(main)
        return runs[-1]

    def remembered(self, run: Run) -> list[dict[str, str]]:
        """What the program's own sessions say, if there is one only."""
        (file,) = (self.data_dir / "runs" / run.id / "home" / ".agent" / "sessions").iterdir()
        found: list[dict[str, str]] = json.loads(file.read_text())
        return found


async def settled(app: App, run_id: str) -> Run:
    return await reach(app, run_id, RunState.WAITING_USER, RunState.SUCCEEDED, RunState.FAILED)


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    return Stranger(tmp_path)


def kinds(said: list[dict[str, str]], *wanted: str) -> list[str]:
    return [each["text"] for each in said if each["kind"] in wanted]


# A session is continued in a new process.


@pytest.mark.contract("K-1", "K-2", "K-3", "H-1", "H-6")
@pytest.mark.parametrize("way", ["load", "resume"])
@pytest.mark.parametrize("quirk", ["close", "lazy", "echoes", "stays"])
def test_a_program_that_settings_alone_have_made_known_asks_waits_and_goes_on(
    stranger: Stranger, way: str, quirk: str
) -> None:
    """`lazy` stores its last message only when it is asked to close, and `stays` has to be killed."""
    quirks = (way, "close", "lazy") if quirk == "lazy" else (way, quirk)
    run = stranger.play(*quirks)
    assert (run.state, run.error, run.profile.kind) == (RunState.SUCCEEDED, None, ProfileKind.RESUMABLE)
    said = stranger.remembered(run)
    assert [each["kind"] for each in said] == ["set", "user", "agent", "user", "agent"][-len(said) :]
    assert len(kinds(said, "user")) == 2
    assert "<user_reply" in kinds(said, "user")[1]
    assert run.usage.total_tokens == 36


@pytest.mark.contract("K-2", "H-11", "X-1")
@pytest.mark.parametrize(
    ("now", "words"),
    [
        (("load", "unknown"), "does not know the session"),
        (("resume", "unknown"), "does not know the session"),
        (("load", "forgets"), "0 of the 1 prompts"),
        (("load", "late"), "0 of the 1 prompts"),
        (("resume", "new-session=named"), "another session"),
        (("resume", "new-session"), "another session"),
        (("load", "new-session"), "0 of the 1 prompts"),
        ((), "cannot continue its sessions"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_a_session_that_is_not_continued_is_never_replaced_by_a_new_one(
    stranger: Stranger, now: tuple[str, ...], words: str
) -> None:
    run = stranger.play("load" if "load" in now else "resume", later=now)
    assert run.state is RunState.FAILED
    assert run.error is not None
    assert (run.error.code, run.error.cause) == (ErrorCode.SESSION_RESUME_FAILED, None)
    assert words in run.error.message
    if "new-session" not in " ".join(now):
        # The answer is in no session.
        assert len(kinds(stranger.remembered(run), "user")) == 1


@pytest.mark.contract("K-2", "X-9")
def test_a_session_that_cannot_be_continued_without_a_sign_in_says_so(stranger: Stranger) -> None:
    run = stranger.play("load", later=("load", "auth=key"))
    assert run.error is not None
    assert (run.error.code, run.error.cause) == (ErrorCode.SESSION_RESUME_FAILED, ErrorCode.ENGINE_AUTH_REQUIRED)
    stranger.lines = ['auth_method = "key"']
    assert stranger.play("load", "auth=key").state is RunState.SUCCEEDED


# Resumable only where it is proven.


@pytest.mark.contract("K-3", "P-2")
def test_a_program_that_was_not_checked_is_sticky(stranger: Stranger) -> None:
    profiles: list[ProfileKind] = []

    async def main() -> None:
        async with stranger.working(stranger.config("load")) as app:
            options = {"interactive_profile": "resumable"}
            with pytest.raises(Invalid) as refusal:
                await submit(app, stranger.skill(), engine="stranger", options=options)
            assert refusal.value.code is RefusalCode.PROFILE_UNAVAILABLE
            assert "askback engines check stranger" in refusal.value.message
            run = await settled(app, (await submit(app, stranger.skill(), engine="stranger")).id)
            profiles.append(run.profile.kind)
            await app.service.reply(run.id, "blue")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED

    run_async(main)
    assert profiles == [ProfileKind.STICKY_PROCESS]


@pytest.mark.contract("K-3")
@pytest.mark.parametrize(
    ("quirks", "words"),
    [
        (("resume", "forgets"), "did not remember"),
        (("load", "unknown"), "did not continue the session"),
        (("resume", "new-session=named"), "another session"),
        (("load", "silent"), "its first turn failed"),
    ],
    ids=lambda each: each[-1] if isinstance(each, tuple) else "",
)
def test_a_check_that_fails_is_remembered_for_this_version_alone(
    stranger: Stranger, quirks: tuple[str, ...], words: str
) -> None:
    async def main() -> None:
        async with stranger.working(stranger.config(*quirks)) as app:
            check = await app.service.engines.check("stranger")
            assert (check.resumes, check.version) == (False, "1.2.3")
            assert words in check.reason
            (shown,) = (each for each in await app.service.engines.views() if each.name == "stranger")
            assert shown.interactive_profile is not None
            assert shown.interactive_profile.kind == ProfileKind.STICKY_PROCESS
            assert words in shown.interactive_profile.reason
        async with stranger.working(stranger.config(quirks[0])) as app:
            assert (await app.service.engines.check("stranger")).resumes
        async with stranger.working(stranger.config(quirks[0], "version=1.2.4")) as app:
            assert (await shown_kind(app)) is ProfileKind.STICKY_PROCESS
        async with stranger.working(stranger.config(quirks[0])) as app:
            assert (await shown_kind(app)) is ProfileKind.RESUMABLE

    run_async(main)


async def shown_kind(app: App) -> ProfileKind:
    (shown,) = (each for each in await app.service.engines.views() if each.name == "stranger")
    assert shown.interactive_profile is not None
    return ProfileKind(shown.interactive_profile.kind)


@pytest.mark.contract("K-3")
def test_what_offers_no_way_to_continue_is_not_checked(stranger: Stranger) -> None:
    async def main() -> None:
        async with stranger.working(stranger.config("close")) as app:
            with pytest.raises(Invalid, match="no way to continue"):
                await app.service.engines.check("stranger")
            with pytest.raises(Invalid, match="nothing to check of engine 'scripted'"):
                await app.service.engines.check("scripted")

    run_async(main)


# Errors.


@pytest.mark.contract("K-1", "X-9", "T-6")
@pytest.mark.parametrize(
    ("quirk", "code"),
    [
        ("silent", ErrorCode.ENGINE_API_ERROR),
        ("error=401 Unauthorized", ErrorCode.ENGINE_AUTH_REQUIRED),
        ("error=429 Too Many Requests", ErrorCode.ENGINE_RATE_LIMITED),
        ("error=500 Internal Server Error", ErrorCode.ENGINE_API_ERROR),
        ("error=tcp connect error: ECONNREFUSED", ErrorCode.ENGINE_UNREACHABLE),
        ("dies", ErrorCode.ENGINE_CRASHED),
        ("floods", ErrorCode.OUTPUT_LIMIT_EXCEEDED),
        ("auth=key", ErrorCode.ENGINE_AUTH_REQUIRED),
    ],
)
def test_a_turn_that_fails_has_its_code(stranger: Stranger, quirk: str, code: ErrorCode) -> None:
    stranger.lines = ["[limits]", "output = 4"]
    run = stranger.play("load", quirk, check=False)
    assert run.error is not None
    assert run.error.code is code


# What every engine has.


@pytest.mark.contract("K-1")
def test_permissions_are_granted_by_their_kind_and_forms_are_declined(stranger: Stranger) -> None:
    stranger.lines = ['mode = "free"', 'model = "clever"']
    run = stranger.play("load", "permission", "elicits", "tool")
    assert run.state is RunState.SUCCEEDED
    said = stranger.remembered(run)
    assert [json.loads(each)["outcome"]["optionId"] for each in kinds(said, "permission")] == ["2", "2"]
    assert [json.loads(each)["action"] for each in kinds(said, "elicited")] == ["decline", "decline"]
    chosen = [json.loads(each) for each in kinds(said, "set")]
    assert [each.get("modeId") or (each["configId"], each["value"]) for each in chosen] == [
        "free",
        ("brain", "clever"),
    ] * (len(chosen) // 2)


@pytest.mark.contract("K-1", "F-5")
def test_the_ask_tool_is_passed_as_an_mcp_server(stranger: Stranger) -> None:
    stranger.lines = ["ask_tool = true"]
    run = stranger.play("load")
    assert run.state is RunState.SUCCEEDED
    assert "I have asked." in kinds(stranger.remembered(run), "agent")


@pytest.mark.contract("K-1", "B-3")
def test_nothing_of_the_program_outlives_its_turn(stranger: Stranger) -> None:
    async def main() -> None:
        async with stranger.working(stranger.config("load", "stays")) as app:
            await app.service.engines.check("stranger")
            run = await settled(app, (await submit(app, stranger.skill(), engine="stranger")).id)
            assert run.state is RunState.WAITING_USER
            assert tree.Tree(mark=run.id).members() == set()

    run_async(main)
