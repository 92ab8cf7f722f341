"""Engines that are not signed in: never the default while another is there, and named with the command that fixes it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.data_folder import World
from support.program import Ran, Terminal, askback

_RECORDED = Path(__file__).parents[1] / "engines"
_PROGRAM = """#!{python}
import sys
if "--help" in sys.argv or "--version" in sys.argv:
    print("1.0.0\\nUsage: codex exec resume [OPTIONS] [SESSION_ID] --resume --session --output-format --json")
    sys.exit()
sys.stdin.read()
sys.stdout.write(open({stdout!r}).read())
sys.exit(1)
"""


def install(world: World, engine: str, ends_as: str = "no_key") -> None:
    """A program that prints what the real engine was recorded to print."""
    program = world.folder / "bin" / engine
    program.parent.mkdir(exist_ok=True)
    program.write_text(_PROGRAM.format(python=sys.executable, stdout=str(_RECORDED / engine / ends_as / "stdout")))
    program.chmod(0o755)


def on(world: World, *words: str, **env: str) -> Ran:
    return askback(world, *words, env={"PATH": f"{world.folder / 'bin'}:/usr/bin:/bin", **env})


def test_the_user_is_warned_before_the_run_and_gets_the_command_after_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    install(world, "codex")
    ran = on(world, "run", world.skill(), "--engine", "codex")
    assert ran.code == 1
    lines = ran.stderr.splitlines()
    assert lines[0] == "! codex is not signed in; sign in with: codex login"
    assert lines[1].startswith("▸ tested on codex")
    assert "  ENGINE_AUTH_REQUIRED: " in ran.stderr
    assert lines[-1] == "  → sign in with: codex login"


def test_an_engine_that_cannot_connect_may_only_lack_its_sign_in(tmp_path: Path) -> None:
    world = World(tmp_path)
    install(world, "codex", "nobody_listens")
    ran = on(world, "run", world.skill(), "--engine", "codex", CODEX_API_KEY="a key")
    assert ran.code == 1
    assert "is not signed in; " not in ran.stderr
    assert "  ENGINE_UNREACHABLE: " in ran.stderr
    advice = "check the network; if codex is not signed in, sign in with: codex login"
    assert ran.stderr.splitlines()[-1] == f"  → {advice}"


def test_an_engine_without_an_account_has_no_such_advice(tmp_path: Path) -> None:
    world = World(tmp_path)
    ran = on(world, "run", world.skill([{"misbehave": "auth"}]), "--engine", "scripted")
    assert "ENGINE_AUTH_REQUIRED" in ran.stderr
    assert "→" not in ran.stderr


@pytest.mark.parametrize(
    ("installed", "env", "chosen"),
    [
        (("claude", "codex"), {}, "claude"),
        (("claude", "codex"), {"CODEX_API_KEY": "a key"}, "codex"),
        (("claude", "codex", "opencode"), {}, "opencode"),
        (("claude", "codex", "opencode"), {"CODEX_API_KEY": "a key"}, "codex"),
    ],
)
def test_an_engine_that_is_signed_in_is_preferred_then_one_that_may_be(
    tmp_path: Path, installed: tuple[str, ...], env: dict[str, str], chosen: str
) -> None:
    world = World(tmp_path)
    for engine in installed:
        install(world, engine)
    ran = on(world, "run", world.skill(), "--json", "--mode", "auto", **env)
    assert ran.json["engine"] == chosen


def test_the_setting_and_the_user_decide_before_the_sign_in(tmp_path: Path) -> None:
    world = World(tmp_path)
    for engine in ("claude", "codex"):
        install(world, engine)
    key = {"CODEX_API_KEY": "a key"}
    by_setting = on(world, "run", world.skill(), "--json", "--mode", "auto", ASKBACK_DEFAULT_ENGINE="claude", **key)
    by_option = on(world, "run", world.skill(), "--json", "--mode", "auto", "--engine", "claude", **key)
    assert (by_setting.json["engine"], by_option.json["engine"]) == ("claude", "claude")


def test_a_skill_s_list_of_engines_is_sorted_by_sign_in_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    for engine in ("codex", "opencode"):
        install(world, engine)
    for names, chosen in (
        (["codex", "opencode"], "opencode"),
        (["codex", "scripted"], "scripted"),
        (["opencode", "scripted"], "opencode"),
    ):
        skill = world.skill([{"finish": {"colour": "red"}}], runner={"engines": names})
        assert on(world, "run", skill, "--json", "--mode", "auto").json["engine"] == chosen


def test_engines_and_doctor_mark_an_engine_that_is_not_signed_in(tmp_path: Path) -> None:
    world = World(tmp_path)
    install(world, "codex")
    listed = on(world, "engines").stdout
    assert "! codex      1.0.0, resumable, not signed in\n" in listed
    assert "    → sign in with: codex login\n" in listed
    assert "✔ codex      1.0.0, resumable, signed in\n" in on(world, "engines", CODEX_API_KEY="a key").stdout
    doctor = on(world, "doctor").stdout
    assert "! engine codex       installed, but not signed in\n" in doctor
    assert "! engines            no engine is signed in: runs will fail until one is" in doctor
    signed_in = on(world, "doctor", CODEX_API_KEY="a key").stdout
    assert "✔ engine codex       installed" in signed_in
    assert "engines            " not in signed_in


def test_probing_shows_progress_once_and_again_with_refresh(tmp_path: Path) -> None:
    world = World(tmp_path)
    install(world, "codex")
    env = {"PATH": f"{world.folder / 'bin'}:/usr/bin:/bin"}
    for words, shown in ((("engines",), True), (("engines",), False), (("engines", "--refresh"), True)):
        with Terminal(world, *words, env=env, columns=80) as terminal:
            ran = terminal.ended()
        assert ran.code == 0
        assert (b"asking codex for its version" in terminal.raw) is shown, words
    assert "asking" not in on(world, "engines", "--refresh").stderr
