"""Hostile engines that change the sign-in they were lent: the user's own home is looked at from outside, and is as it was."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from askback.app import App
from askback.core.errors import WarningCode
from askback.core.runs import Run, RunState
from askback.process.isolation import IsolationLevel
from support.data_folder import World, over, run_async, submit
from support.program import until
from support.server import Server
from support.stand_ins import stand_in, tree


def jwt(**claims: Any) -> str:
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims, 1)
    )


def openai(user: str, number: int) -> str:
    return jwt(sub=user, exp=number, **{"https://api.openai.com/auth": {"chatgpt_account_id": f"account-{user}"}})


OPENCODE, CODEX, CLAUDE = ".local/share/opencode/auth.json", ".codex/auth.json", ".claude/.credentials.json"
GEMINI, QWEN = ".gemini/oauth_creds.json", ".qwen/oauth_creds.json"
IFLOW, IFLOW_KEY, IFLOW_SETTINGS = ".iflow/oauth_creds.json", ".iflow/iflow_accounts.json", ".iflow/settings.json"


def signed_in(number: int) -> dict[str, Any]:
    """The sign-ins of all engines as the real ones write them, renewed so many times."""
    token = f"ada-secret-token-{number}"
    return {
        CODEX: {
            "auth_mode": "chatgpt",
            "OPENAI_API_KEY": None,
            "tokens": {
                "id_token": openai("ada", number),
                "access_token": openai("ada", number),
                "refresh_token": token,
                "account_id": "account-ada",
            },
            "last_refresh": f"2026-11-0{number}T12:00:00.123456789Z",
        },
        CLAUDE: {
            "claudeAiOauth": {
                "accessToken": token,
                "refreshToken": token,
                "expiresAt": 1_900_000_000_000 + number,
                "scopes": ["user:inference", "user:profile"],
                "subscriptionType": "max",
                "rateLimitTier": None,
            },
            "organizationUuid": "0f0f",
        },
        GEMINI: {
            "access_token": token,
            "refresh_token": "ada-secret-token-1",
            "scope": "openid https://www.googleapis.com/auth/cloud-platform",
            "token_type": "Bearer",
            "id_token": jwt(sub="ada", aud="gemini", exp=number),
            "expiry_date": 1_900_000_000_000 + number,
        },
        QWEN: {
            "access_token": token,
            "refresh_token": token,
            "token_type": "Bearer",
            "resource_url": "portal.qwen.ai",
            "expiry_date": 1_900_000_000_000 + number,
        },
        IFLOW: {
            "access_token": token,
            "refresh_token": token,
            "expiry_date": 1_900_000_000_000 + number,
            "token_type": "bearer",
            "userId": "ada",
            "apiKey": token,
        },
        IFLOW_KEY: {"iflowApiKey": token},
        OPENCODE: {
            "anthropic": {"type": "oauth", "refresh": token, "access": token, "expires": 1_900_000_000_000 + number},
            "openai": {"type": "api", "key": "ada-secret-key"},
            "https://ada.example": {"type": "wellknown", "key": "A", "token": "ada-secret-token"},
        },
    }


SETTINGS = {"selectedAuthType": "oauth-iflow", "apiKey": "ada-secret-key"}
FILES = {
    "codex": (CODEX,),
    "claude": (CLAUDE,),
    "gemini": (GEMINI,),
    "qwen": (QWEN,),
    "iflow": (IFLOW, IFLOW_KEY),
    "opencode": (OPENCODE,),
}


def user_home(folder: Path) -> Path:
    """A user who is signed in everywhere, and has keys that are nobody's business."""
    home = folder / "user"
    for name, document in {**signed_in(1), IFLOW_SETTINGS: SETTINGS}.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(json.dumps(document))
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("the key of the user")
    return home


def writing(files: Mapping[str, Any]) -> str:
    """The code of a case that writes these into its home."""
    return f"for name, document in json.loads({json.dumps(files)!r}).items(): (home / name).write_text(json.dumps(document))"


def put(name: str, *path: str, value: Any) -> dict[str, Any]:
    """A renewed sign-in with one thing in it that is none."""
    document = signed_in(2)[name]
    place = document
    for key in path[:-1]:
        place = place.setdefault(key, {})
    place[path[-1]] = value
    return {name: document}


COMMAND = {"type": "local", "command": ["sh", "-c", "touch /tmp/owned"], "enabled": True}
WELL_KNOWN = {"type": "wellknown", "key": "K", "token": "x"}
TAKEN = {"type": "oauth", "refresh": "x", "access": "x", "expires": 1_900_000_000_000}
ATTACKS: dict[str, dict[str, str]] = {
    "iflow": {
        "commands-in-settings": writing({IFLOW_SETTINGS: {**SETTINGS, "mcpServers": {"x": COMMAND}}}),
        "commands-in-tokens": writing(put(IFLOW, "mcpServers", "x", value=COMMAND)),
        "another-account": writing(put(IFLOW, "userId", value="mallory")),
        "another-account-and-key": writing(
            {**put(IFLOW, "userId", value="mallory"), **put(IFLOW_KEY, "iflowApiKey", value="m")}
        ),
        "more-in-accounts": writing(put(IFLOW_KEY, "baseUrl", value="http://mallory")),
    },
    "opencode": {
        "well-known": writing(put(OPENCODE, "http://127.0.0.1:9", value=WELL_KNOWN)),
        "becomes-well-known": writing(put(OPENCODE, "anthropic", value=WELL_KNOWN)),
        "type-alone": writing(put(OPENCODE, "anthropic", "type", value="wellknown")),
        "well-known-renewed": writing(put(OPENCODE, "https://ada.example", "token", value="x")),
        "well-known-as-oauth": writing(put(OPENCODE, "https://ada.example", value=TAKEN)),
        "another-provider": writing(put(OPENCODE, "mallory", value=TAKEN)),
        "a-key": writing(put(OPENCODE, "openai", "key", value="mallory")),
        "an-address": writing(put(OPENCODE, "anthropic", "enterpriseUrl", value="http://mallory")),
    },
    "codex": {
        "another-account": writing(put(CODEX, "tokens", "account_id", value="account-mallory")),
        "token-of-another": writing(put(CODEX, "tokens", "id_token", value=openai("mallory", 2))),
        "access-of-another": writing(put(CODEX, "tokens", "access_token", value=openai("mallory", 2))),
        "a-key": writing(put(CODEX, "OPENAI_API_KEY", value="sk-mallory")),
        "mode": writing(put(CODEX, "auth_mode", value="apikey")),
    },
    "claude": {
        "connectors": writing(put(CLAUDE, "mcpOAuth", "x", value={"serverUrl": "http://mallory"})),
        "another-organization": writing(put(CLAUDE, "organizationUuid", value="1e1e")),
        "gateway": writing(put(CLAUDE, "enterpriseGateway", value={"url": "http://mallory"})),
    },
    "gemini": {
        "token-of-another": writing(put(GEMINI, "id_token", value=jwt(sub="mallory", aud="gemini"))),
        "another-type": writing(put(GEMINI, "type", value="external_account")),
    },
    "qwen": {"an-address": writing(put(QWEN, "resource_url", value="mallory.example"))},
}
_TOKENS = {
    CODEX: ("tokens", "refresh_token"),
    CLAUDE: ("claudeAiOauth", "accessToken"),
    GEMINI: ("access_token",),
    QWEN: ("access_token",),
    IFLOW: ("access_token",),
    OPENCODE: ("anthropic", "access"),
}
for engine, (file, *_) in FILES.items():
    token = _TOKENS[file]
    ATTACKS[engine] |= {
        "long": writing(put(file, *token, value="x" * 100_000)),
        "control": writing(put(file, *token, value="x\n\u001b[2Jx")),
        "structure": writing(put(file, *token, value={"x": "x"})),
        "a-link": f"(home / {file!r}).unlink(); (home / {file!r}).symlink_to('USER/.ssh/id')",
        "a-folder": f"(home / {file!r}).unlink(); (home / {file!r}).mkdir()",
        "a-pipe": f"(home / {file!r}).unlink(); os.mkfifo(home / {file!r})",
        "endless": f"os.truncate(home / {file!r}, 1 << 26)",
        "no-json": f"(home / {file!r}).write_text('[[[')",
    }

PLACES = [
    *(("opencode", sandbox) for sandbox in ("on", "off")),
    *(pytest.param("iflow", sandbox, marks=pytest.mark.long) for sandbox in ("on", "auto", "off")),
    pytest.param("opencode", "auto", marks=pytest.mark.long),
    *((engine, "on") for engine in ("codex", "claude", "gemini", "qwen")),
]
CRASHED, CRASHES = "-crashed", "os._exit(3)"
NOT_LOOKED_AT = ("a-link", "a-folder", "a-pipe", "commands-in-settings")
"""What is no file, or none that could be renewed, is passed over."""


async def check_sandbox(app: App, sandbox: str) -> None:
    isolation = await app.spawner.isolation()
    if sandbox != "off" and isolation.level is not IsolationLevel.BUBBLEWRAP:
        pytest.skip(f"no sandbox here: {isolation.why_not_more}")


async def play(app: App, skill: str, engine: str, *cases: str) -> dict[str, Run]:
    """A run of every case, to its end."""
    runs = {case: await submit(app, skill, engine=engine, mode="auto", options={"model": case}) for case in cases}
    return {case: await over(app, run.id) for case, run in runs.items()}


@pytest.mark.contract("Q-3")
@pytest.mark.parametrize(("engine", "sandbox"), PLACES)
def test_nothing_that_an_engine_plants_in_its_sign_in_reaches_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, sandbox: str
) -> None:
    home = user_home(tmp_path)
    monkeypatch.setenv("HOME", str(home))
    before = tree(home)
    world = World(tmp_path)
    skill = world.skill([])
    cases = {case: code.replace("USER", str(home)) for case, code in ATTACKS[engine].items()}
    cases |= {f"{case}{CRASHED}": f"{code}\n{CRASHES}" for case, code in cases.items()}
    config = f'sandbox = "{sandbox}"\nslots = 2\n' + stand_in(tmp_path / "programs", engine, cases)

    async def main() -> None:
        async with world.working(config) as app:
            await check_sandbox(app, sandbox)
            runs = await play(app, skill, engine, *cases)
            for case, run in runs.items():
                assert run.state is (RunState.FAILED if case.endswith(CRASHED) else RunState.SUCCEEDED), case
                refused = WarningCode.SIGN_IN_CHANGE_REFUSED in [warning.code for warning in run.warnings]
                assert refused or case.removesuffix(CRASHED) in NOT_LOOKED_AT, case

    run_async(main)
    after = tree(home)
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == set()


@pytest.mark.parametrize(("engine", "sandbox"), PLACES)
def test_an_honest_renewal_reaches_the_user_and_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, sandbox: str
) -> None:
    home = user_home(tmp_path)
    monkeypatch.setenv("HOME", str(home))
    world = World(tmp_path)
    skill = world.skill([])
    files = FILES[engine]
    renewed = {name: signed_in(2)[name] for name in files}
    seen = "; ".join(
        f"assert json.loads((home / {name!r}).read_text()) == json.loads({json.dumps(renewed[name])!r})"
        for name in files
    )
    cases = {"renew": writing(renewed), "renew-and-crash": f"{writing(renewed)}\n{CRASHES}", "later": seen}
    config = f'sandbox = "{sandbox}"\n' + stand_in(tmp_path / "programs", engine, cases)

    async def main() -> None:
        async with world.working(config) as app:
            await check_sandbox(app, sandbox)
            for case in ("renew", "renew-and-crash"):
                for name in files:
                    (home / name).write_text(json.dumps(signed_in(1)[name]))
                runs = await play(app, skill, engine, case)
                assert {name: json.loads((home / name).read_text()) for name in files} == renewed
                assert runs[case].warnings == ()
            assert (await play(app, skill, engine, "later"))["later"].state is RunState.SUCCEEDED

    run_async(main)
    assert all((home / name).stat().st_mode & 0o777 == 0o600 for name in files)


def test_two_runs_side_by_side_do_not_sign_each_other_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both renew what they were lent; who is first is kept, and whole."""
    home = user_home(tmp_path)
    monkeypatch.setenv("HOME", str(home))
    world = World(tmp_path)
    skill = world.skill([])
    meet = tmp_path / "meet"
    meet.mkdir()
    waits = (
        f"(Path({str(meet)!r}) / model).touch()\nwhile len(list(Path({str(meet)!r}).iterdir())) < 2: time.sleep(0.01)\n"
    )
    cases = {f"renew-{number}": waits + writing({CODEX: signed_in(number)[CODEX]}) for number in (2, 3)}
    config = "slots = 2\n" + stand_in(tmp_path / "programs", "codex", cases)

    async def main() -> None:
        async with world.working(config) as app:
            runs = await asyncio.gather(*(play(app, skill, "codex", case) for case in cases))
            assert [run.warnings for each in runs for run in each.values()] == [(), ()]

    run_async(main)
    assert json.loads((home / CODEX).read_text()) in (signed_in(2)[CODEX], signed_in(3)[CODEX])


def test_taking_back_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = user_home(tmp_path)
    monkeypatch.setenv("HOME", str(home))
    before = tree(home)
    world = World(tmp_path)
    skill = world.skill([])
    config = stand_in(tmp_path / "programs", "claude", {"renew": writing({CLAUDE: signed_in(2)[CLAUDE]})})

    async def main() -> None:
        async with world.working(config + "renew_sign_in = false\n") as app:
            assert (await play(app, skill, "claude", "renew"))["renew"].state is RunState.SUCCEEDED

    run_async(main)
    assert tree(home) == before


def test_no_token_is_left_when_the_server_is_killed_while_a_run_is_canceled(tmp_path: Path) -> None:
    """The next server says that the run is canceled, and no turn of it comes any more."""
    home = user_home(tmp_path)
    world = World(tmp_path)
    world.skill([], name="tested")
    cases = {"stays": "import signal; signal.signal(15, signal.SIG_IGN); (work / 'started').touch(); time.sleep(600)"}
    config = tmp_path / "askback.toml"
    config.write_text('sandbox = "off"\n' + stand_in(tmp_path / "programs", "codex", cases))
    first = Server(world, "--config", str(config), env={"HOME": str(home)})
    try:
        with first.client() as client:
            run = client.create_run("tested", engine="codex", mode="auto", options={"model": "stays"})
            folder = world.data_dir / "runs" / run.id
            until((folder / "work" / "started").exists)
            assert token_places(folder) == [f"home/{CODEX}"]
            client.cancel(run.id)
    finally:
        first.kill()
    second = Server(world, "--config", str(config), env={"HOME": str(home)})
    try:
        with second.client() as client:
            until(lambda: client.get_run(run.id).state.final)
            assert client.get_run(run.id).state == RunState.CANCELED
        assert token_places(folder) == []
    finally:
        second.kill()


def token_places(folder: Path) -> list[str]:
    """Where a token of the user is found below a folder."""
    return [name for name, content in tree(folder).items() if b"ada-secret" in content]
