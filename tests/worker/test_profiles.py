"""Which engine a run gets, what its probe saw, and what is refused before a run exists."""

import json
import stat
from pathlib import Path

import pytest

from askback.core.errors import AskbackError, Invalid, RefusalCode
from askback.core.runs import ProfileKind, RunState
from askback.engines import registry
from askback.store.pages import RunFilter
from askback.wire.base import plain
from askback.wire.runs import Run as WireRun
from support.data_folder import ASK, FINISH, World, over, run_async, submit, waiting

ENGINE = registry.get("scripted")


def wrapper(folder: Path, *, hide: str = "", hang: bool = False) -> Path:
    """A program that behaves like an older or a broken version, counts its calls, and else is the real one."""
    path = folder / "engine"
    real = " ".join(f"'{word}'" for word in ENGINE.default_command)
    hidden = f"| grep -vE '{hide}'" if hide else ""
    probe = "sleep 600" if hang else f"{real} --help {hidden}"
    path.write_text(
        f'#!/bin/sh\necho "$1" >> "{folder}/calls"\nif [ "$1" = --help ]; then {probe}; else exec {real} "$@"; fi\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def using(program: Path) -> str:
    return f"[engines.scripted]\ncommand = [{json.dumps(str(program))}]\n"


@pytest.mark.contract("P-1", "P-3")
def test_a_passed_probe_makes_the_run_resumable_and_says_what_it_saw(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill, options={"session_timeout_sec": 77})
            assert run.profile.kind is ProfileKind.RESUMABLE
            assert plain(WireRun.of(run))["interactive_profile"] == {
                "kind": "resumable",
                "reason": run.profile.reason,
                "session_timeout_sec": 77,
            }
            assert "--resume" in run.profile.reason
            assert (await app.service.store.get(run.id)).profile == run.profile

    run_async(main)


@pytest.mark.contract("P-4")
def test_a_thousand_runs_probe_once_and_an_upgrade_is_seen(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "red"}}])
    program = wrapper(tmp_path)

    def helps() -> int:
        return (tmp_path / "calls").read_text().split().count("--help")

    async def main() -> None:
        for _ in range(2):
            async with world.working(using(program)) as app:
                runs = [await submit(app, skill) for _ in range(5)]
                for run in runs:
                    assert (await over(app, run.id)).state is RunState.SUCCEEDED
                assert helps() == 1
        program.write_text(program.read_text() + "# a new version\n")
        async with world.working(using(program)) as app:
            await submit(app, skill)
            assert helps() == 2

    run_async(main)


@pytest.mark.contract("P-4", "P-5")
def test_a_probe_that_hangs_has_failed_and_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is 15 s; here it is shortened, for the test's sake."""
    from askback.catalog import probes

    assert probes.PROBE_SEC == 15.0
    monkeypatch.setattr(probes, "PROBE_SEC", 0.5)
    world = World(tmp_path)
    skill = world.skill([ASK])
    program = wrapper(tmp_path, hang=True)

    async def main() -> None:
        async with world.working(using(program)) as app:
            with pytest.raises(Invalid) as refused:
                await submit(app, skill, options={"interactive_profile": "resumable"})
            assert refused.value.code is RefusalCode.PROFILE_UNAVAILABLE

    run_async(main)


@pytest.mark.contract("P-5")
@pytest.mark.parametrize("wanted", ["resumable", "sticky_process"])
def test_a_profile_that_the_engine_cannot_give_is_refused_with_the_reason(tmp_path: Path, wanted: str) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK])
    program = wrapper(tmp_path, hide="resume|stay")

    async def main() -> None:
        async with world.working(using(program)) as app:
            with pytest.raises(Invalid) as refused:
                await submit(app, skill, options={"interactive_profile": wanted})
            assert refused.value.code is RefusalCode.PROFILE_UNAVAILABLE
            assert f"does not support {wanted} runs" in refused.value.message
            assert "resume" in refused.value.message
            assert (await app.service.store.list_runs(RunFilter())).items == ()

    run_async(main)


@pytest.mark.contract("P-2", "P-4")
@pytest.mark.parametrize("broken", ["hides what it can", "hangs"])
def test_where_the_probe_saw_nothing_the_run_is_tried_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    from askback.catalog import probes

    monkeypatch.setattr(probes, "PROBE_SEC", 0.5 if broken == "hangs" else 60.0)
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    program = wrapper(tmp_path, hang=broken == "hangs", hide="resume|stay")

    async def main() -> None:
        async with world.working(using(program)) as app:
            run = await submit(app, skill)
            assert run.profile.kind is ProfileKind.STICKY_PROCESS
            asking = await waiting(app, run.id)
            await app.service.reply(run.id, "red")
            ended = await over(app, run.id)
            assert (ended.state, ended.attempt_number) == (RunState.SUCCEEDED, 2)
            assert asking.process is not None
            assert (tmp_path / "calls").read_text().split().count("--help") >= 1

    run_async(main)


@pytest.mark.contract("P-2")
def test_an_engine_that_cannot_stay_after_all_fails_its_run_by_its_own_code(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    program = wrapper(tmp_path, hide="resume|stay")
    program.write_text(
        program.read_text().replace("else exec", 'elif [ "$*" != "${*#*--stay}" ]; then exit 2; else exec')
    )

    async def main() -> None:
        async with world.working(using(program)) as app:
            run = await submit(app, skill)
            assert run.profile.kind is ProfileKind.STICKY_PROCESS
            ended = await over(app, run.id)
            assert ended.error is not None
            assert ended.error.code == "ENGINE_CRASHED"

    run_async(main)


@pytest.mark.contract("P-6")
def test_an_engine_that_is_not_installed_is_refused_with_what_to_install(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK])

    async def main() -> None:
        async with world.working(using(tmp_path / "nowhere")) as app:
            with pytest.raises(Invalid) as refused:
                await submit(app, skill)
            assert refused.value.code is RefusalCode.ENGINE_NOT_FOUND
            assert ENGINE.install in refused.value.message
            assert (await app.service.store.list_runs(RunFilter())).items == ()

    run_async(main)


def test_an_engine_that_was_removed_meanwhile_fails_the_turn_by_name(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    program = wrapper(tmp_path)

    async def main() -> None:
        async with world.working(using(program)) as app:
            run = await waiting(app, (await submit(app, skill)).id)
            program.unlink()
            await app.service.reply(run.id, "red")
            ended = await over(app, run.id)
            assert ended.error is not None
            assert ended.error.code == "ENGINE_NOT_FOUND"

    run_async(main)


@pytest.mark.parametrize(
    ("rest", "code", "words"),
    [
        ({"engine": "scriptd"}, "ENGINE_UNKNOWN", "did you mean 'scripted'"),
        ({"mode": "manual"}, "INPUT_INVALID", "mode: 'manual'"),
        ({"options": {"turn_timeout_sec": -1}}, "INPUT_INVALID", "options.turn_timeout_sec"),
        ({"options": {"turntimeout": 1}}, "INPUT_INVALID", "options.turntimeout"),
        ({"input": {"pages": 12}}, "INPUT_INVALID", 'input.pages: 12 is not of type "string"'),
        ({"parameter": {"depth": "x"}}, "INPUT_INVALID", "parameter.depth"),
    ],
)
def test_every_mistake_is_named_before_a_run_exists(
    tmp_path: Path, rest: dict[str, object], code: str, words: str
) -> None:
    world = World(tmp_path)
    strings = {"type": "object", "properties": {"pages": {"type": "string"}}}
    numbers = {"type": "object", "properties": {"depth": {"type": "integer"}}}
    skill = world.skill([FINISH], schemas={"input": strings, "parameter": numbers})

    async def main() -> None:
        async with world.working() as app:
            with pytest.raises(AskbackError) as refused:
                await submit(app, skill, **rest)
            assert refused.value.code == code
            assert words in "\n".join((refused.value.message, *refused.value.problems))
            assert (await app.service.store.list_runs(RunFilter())).items == ()

    run_async(main)


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    strings = {"type": "object", "properties": {"pages": {"type": "string"}}, "required": ["title"]}
    skill = world.skill([FINISH], schemas={"input": strings})

    async def main() -> None:
        async with world.working() as app:
            with pytest.raises(Invalid) as refused:
                await submit(app, skill, mode="x", input={"pages": 1}, options={"repair_attempts": 99})
            problems = "\n".join(refused.value.problems)
            for words in ("mode:", "input.pages", "input.title", "options.repair_attempts"):
                assert words in problems

    run_async(main)


@pytest.mark.contract("B-5")
def test_a_plain_skill_folder_runs_without_our_files(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: plain\ndescription: Nothing but text.\n---\nDo it.\n")
    world = World(tmp_path)

    async def main() -> None:
        async with world.working() as app:
            for mode in ("auto", "interactive"):
                run = await over(app, (await submit(app, str(folder), mode=mode, input={"any": "thing"})).id)
                assert run.state is RunState.SUCCEEDED

    run_async(main)


def test_the_first_mode_of_the_skill_is_the_default(tmp_path: Path) -> None:
    world = World(tmp_path)
    runner = {"id": "tested", "execution_modes": ["interactive", "auto"], "engines": ["scripted"]}
    skill = world.skill([FINISH], runner=runner)

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill, mode=None, engine=None)
            assert (run.mode, run.engine) == ("interactive", "scripted")

    run_async(main)


def test_the_default_engine_is_that_of_the_settings_unless_the_skill_does_not_run_on_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    stand_in = json.dumps(list(ENGINE.default_command))
    settings = f'default_engine = "scripted"\n[engines.gemini]\ncommand = {stand_in}\n'
    plain = world.skill([FINISH])
    other = world.skill([FINISH], name="other", runner={"unsupported_engines": ["scripted"]})
    none = world.skill([FINISH], name="none", runner={"unsupported_engines": list(registry.engines())})

    async def main() -> None:
        async with world.working('default_engine = "iflow"\n') as app:
            with pytest.raises(
                Invalid, match="default engines is installed; install one, or name the engine 'scripted'"
            ) as refused:
                await submit(app, plain, engine=None, mode="auto")
            (problem,) = refused.value.problems
            assert problem.startswith("iflow: it can no longer be installed; if you have a copy")
        async with world.working(settings) as app:
            assert (await submit(app, plain, engine=None, mode="auto")).engine == "scripted"
            assert (await submit(app, other, engine=None, mode="auto")).engine == "gemini"
            with pytest.raises(Invalid) as refused:
                await submit(app, none, engine=None, mode="auto")
            assert refused.value.code is RefusalCode.ENGINE_NOT_FOUND

    run_async(main)
