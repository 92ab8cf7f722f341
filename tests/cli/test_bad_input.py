"""Whatever a user types that cannot be done: one clear message and the right exit code, in words and as JSON."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

from askback.engines import registry
from support.data_folder import ASK, FINISH, World, over, run_async, submit, waiting
from support.program import Ran, askback

BAD_INPUT, MACHINE = 2, 1
LONG = "x" * 100_000
INPUT = {
    "type": "object",
    "properties": {
        "pages": {"type": "integer", "minimum": 1},
        "colour": {"enum": ["red", "blue"]},
        "deep": {"type": "boolean"},
        "doc": {"type": "string", "x-input-source": "file"},
    },
    "additionalProperties": False,
}
PARAMETER = {"type": "object", "properties": {"language": {"type": "string", "maxLength": 5}}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is typed, `$W` standing for the world's folder, and a part of what is said."""

    args: Sequence[str | bytes]
    says: str
    code: int = BAD_INPUT
    env: Mapping[str, str] = field(default_factory=dict)
    reports: bool = False
    """The command's own report says what is wrong, on stdout."""


def bad(says: str, *args: str | bytes, code: int = BAD_INPUT, reports: bool = False, **env: str) -> Case:
    return Case(args=args, says=says, code=code, env=env, reports=reports)


def run(says: str, *args: str | bytes, **env: str) -> Case:
    return Case(args=("run", "$W/skills/good", "--engine", "scripted", *args), says=says, env=env)


def config(says: str, name: str) -> Case:
    return bad(says, "engines", "--config", f"$W/{name}.toml")


_CALL = ("runs", "--url", "http://127.0.0.1:1")

CASES = {
    # The command line itself.
    "no command": bad("Start here:\n  demo "),
    "unknown command": bad("command 'frobnicate' is unknown; known: demo, ", "frobnicate"),
    "mistyped command": bad("did you mean 'reply'?", "repyl", "x"),
    "command with a surrogate": bad("is unknown; known: demo", b"\xff\xfe"),
    "empty command": bad("command '' is unknown", ""),
    "very long command": bad("is unknown; known: demo", LONG),
    "unknown option": bad("No such option '--nope'", "--nope"),
    "unknown option of run": run("No such option '--colour'", "--colour", "red"),
    "unknown short option": run("No such option", "-x"),
    "option without its value": run("requires an argument", "--input"),
    "flag with a value": run("does not take a value", "--json=yes"),
    "too many arguments": run("unexpected extra argument", "another"),
    "unknown mode": run("'sometimes' is not one of 'auto', 'interactive'", "--mode", "sometimes"),
    "empty folder to work in": run("Invalid value for '--workdir': the path is empty.", "--workdir", ""),
    "empty data folder": run("Invalid value for '--data-dir': the path is empty.", "--data-dir", ""),
    "empty data folder in the environment": run("data_dir: the path is empty", ASKBACK_DATA_DIR=""),
    "empty skill to check": bad("the path is empty.", "skills", "check", ""),
    "empty skill to install": bad("the path is empty.", "skills", "install", ""),
    "empty file of variables": run("--env-file: the file '' cannot be read", "--env-file", ""),
    "variable given twice": run("--env FOO: given more than once", "--env", "FOO=12345678", "--env", "FOO=23456789"),
    "empty mode": run("'' is not one of", "--mode", ""),
    "subcommand that is none": bad("No such command 'remove'", "skills", "remove", "x"),
    **{
        f"{command} without a run": bad("name a RUN; `askback runs` lists them", command)
        for command in ("reply", "show", "watch", "cancel", "delete")
    },
    "check without a folder": bad("Missing argument 'FOLDER'", "skills", "check"),
    "install without a source": bad("Missing argument 'ZIP_OR_FOLDER'", "skills", "install"),
    # Skills.
    "neither skill nor run": bad("name a SKILL to run, or a run to continue", "run"),
    "skill and run": run("name a SKILL or --continue RUN, not both", "--continue", "x"),
    "continue with an input": bad("only --answer can be added", "run", "--continue", "x", "--input", "a=b"),
    "unknown skill": bad("skill 'nosuch' is unknown", "run", "nosuch"),
    "empty skill": bad("skill '' is unknown", "run", ""),
    "skill like an option": bad("skill '-x' is unknown", "run", "--", "-x"),
    "skill after two dashes": bad("skill '--json' is unknown", "run", "--", "--json"),
    "skill with a surrogate": bad("is unknown", "run", b"sk\xffill"),
    "very long skill": bad("is unknown", "run", LONG),
    "very long path of a skill": bad("there is no folder", "run", f"./{LONG}"),
    "missing folder": bad("there is no folder nowhere/skill", "run", "nowhere/skill"),
    "file as a skill": bad("is a file; name the folder of a skill", "run", "$W/text.txt"),
    "folder without SKILL.md": bad("SKILL.md: is missing", "run", "$W/empty"),
    "broken front matter": bad("SKILL.md", "run", "$W/skills/broken-front"),
    "front matter without a name": bad("name", "run", "$W/skills/no-name"),
    "SKILL.md that is no text": bad("SKILL.md", "run", "$W/skills/binary"),
    "broken runner.json": bad("assets/runner.json", "run", "$W/skills/broken-runner"),
    "wrong type in runner.json": bad("max_attempt", "run", "$W/skills/wrong-runner"),
    "schema that is not JSON": bad("assets/input.schema.json", "run", "$W/skills/broken-schema"),
    "schema that is no schema": bad("assets/output.schema.json", "run", "$W/skills/wrong-schema"),
    "no engine for the skill": bad("needs one of these engines", "run", "$W/skills/other-engine"),
    "engine that the skill forbids": bad(
        "does not run on 'scripted'", "run", "$W/skills/other-engine", "--engine", "scripted"
    ),
    # Inputs, parameters, options.
    "input without =": run("--input 'pages': write it as NAME=VALUE", "--input", "pages"),
    "input without a name": run("write it as NAME=VALUE", "--input", "=3"),
    "empty input": run("write it as NAME=VALUE", "--input", ""),
    "input given twice": run("--input pages: given more than once", "--input", "pages=1", "--input", "pages=2"),
    "unknown input": run("input.page: is unknown; did you mean 'pages'?", "--input", "page=3"),
    "input of a wrong type": run("input.pages", "--input", "pages=three"),
    "input out of range": run("input.pages", "--input", "pages=0"),
    "input out of a list": run("input.colour", "--input", "colour=green"),
    "endless number": run("input.pages", "--input", "pages=" + "9" * 5000),
    "number that is none": run("input.pages", "--input", "pages=NaN"),
    "input with a surrogate": run("input.colour", "--input", b"colour=\xff"),
    "input name with a surrogate": run("has a property name that is not a valid string", "--input", b"\xff=1"),
    "text where a file is wanted": run("write --input doc=@FILE", "--input", "doc=text"),
    "missing file": run("input.doc: there is no file", "--input", "doc=@nowhere.txt"),
    "folder as a file": run("input.doc: there is no file", "--input", "doc=@$W/empty"),
    "file without a name": run("input.doc: there is no file", "--input", "doc=@"),
    "very long file name": run("input.doc: there is no file", "--input", f"doc=@{LONG}"),
    "file of an unknown user": run("input.doc: there is no file", "--input", "doc=@~no-such-user/x"),
    "missing text file": run("the file 'nowhere.txt' cannot be read: No such file", "--input", "colour=@nowhere.txt"),
    "folder as a text file": run("cannot be read: Is a directory", "--input", "colour=@$W/empty"),
    "text file without a name": run("cannot be read", "--input", "colour=@"),
    "binary text file": run("not UTF-8 text", "--input", "colour=@$W/binary"),
    "text file with NUL": run("input.colour", "--input", "colour=@$W/nul.txt"),
    "endless text file": run("it is larger than", "--input", "colour=@/dev/zero", ASKBACK_LIMITS__BODY="1"),
    "very long text file name": run("cannot be read: File name too long", "--input", f"colour=@{LONG}"),
    "text file of an unknown user": run("cannot be read", "--input", "colour=@~no-such-user/x"),
    "parameter too long": run("parameter.language", "--param", "language=English"),
    "parameter without =": run("--param 'language': write it as", "--param", "language"),
    "unknown run option": run("options.turn_timeout: is unknown", "--option", "turn_timeout=3"),
    "run option of a wrong type": run("options.turn_timeout_sec", "--option", "turn_timeout_sec=soon"),
    "run option out of range": run("options.repair_attempts", "--option", "repair_attempts=-1"),
    "run option that is no number": run("options.turn_timeout_sec", "--option", "turn_timeout_sec=NaN"),
    "run option without end": run("options.turn_timeout_sec", "--option", "turn_timeout_sec=1e999"),
    "run option deeply nested": run("options.model", "--option", "model=", "--option", "repair_attempts=" + "[" * 9999),
    "profile that cannot be had": run(
        "does not support resumable runs",
        *("--mode", "interactive", "--option", "interactive_profile=resumable"),
        ASKBACK_ENGINES__SCRIPTED__COMMAND=json.dumps([*registry.get("scripted").default_command, "--no-resume"]),
    ),
    "mode that the skill has not": bad(
        "mode: 'interactive' is not a mode of this skill",
        *("run", "$W/skills/auto-only", "--engine", "scripted", "--mode", "interactive"),
    ),
    "several mistakes at once": run(
        "input.colour", "--input", "pages=0", "--input", "colour=green", "--param", "language=English"
    ),
    "unknown engine": bad("engine 'codx' is unknown", "run", "$W/skills/good", "--engine", "codx"),
    "empty engine": bad("engine '' is unknown", "run", "$W/skills/good", "--engine", ""),
    "engine with a surrogate": bad("is unknown", "run", "$W/skills/good", "--engine", b"\xff"),
    "engine that is not installed": bad(
        "engine 'codex' is not installed: codex was not found; install it with",
        *("run", "$W/skills/good", "--engine", "codex"),
        PATH="/nowhere",
    ),
    "answer with a surrogate": run("--answer: not UTF-8 text", "--answer", b"r\xffd"),
    # Settings.
    "missing settings file": bad("there is no settings file", "engines", "--config", "nowhere.toml"),
    "folder as a settings file": bad("there is no settings file", "engines", "--config", "$W/empty"),
    "empty settings file name": bad("'--config': the path is empty.", "engines", "--config", ""),
    "very long settings file name": bad("there is no settings file", "engines", "--config", LONG),
    "settings with a syntax error": config("the file cannot be read", "syntax"),
    "settings that are no text": config("the file cannot be read", "binary"),
    "settings with an unknown key": config("slotz: there is no such setting; did you mean 'slots'?", "unknown-key"),
    "settings of a wrong type": config("slots: ", "wrong-type"),
    "settings with an unknown engine": config("engines.codx: there is no such engine", "unknown-engine"),
    "settings with a NUL": config("a\\x00b' cannot be a folder", "nul"),
    "settings with an unknown home": config("cannot be a folder", "no-home"),
    "sandbox that is not there": bad(
        "sandbox: bubblewrap is not installed", "engines", ASKBACK_SANDBOX="on", PATH="/nowhere"
    ),
    "settings with a broken default engine": config("default_engine: there is no such engine", "default-engine"),
    "settings with a folder of skills that is not there": bad(
        "there is no folder /nowhere/skills", "doctor", ASKBACK_SKILLS_DIR="/nowhere/skills", code=MACHINE, reports=True
    ),
    "environment of a wrong type": bad("slots: ", "engines", ASKBACK_SLOTS="many"),
    "environment with a broken table": bad("ASKBACK_ENGINES: is not JSON", "engines", ASKBACK_ENGINES="{"),
    # The data folder.
    "data folder that is a file": bad(
        "is a file; name a folder with --data-dir", "engines", "--data-dir", "$W/text.txt"
    ),
    "data folder below a file": bad(
        "cannot be created: Not a directory", "engines", "--data-dir", "$W/text.txt/data", code=MACHINE
    ),
    "data folder that cannot be": bad("cannot be created", "engines", "--data-dir", "/proc/x", code=MACHINE),
    "very long data folder": bad("cannot be created: File name too long", "engines", "--data-dir", LONG, code=MACHINE),
    "skills in a data folder that is a file": bad("is a file", "skills", "--data-dir", "$W/text.txt"),
    "corrupt database": bad("is not a valid database", "engines", "--data-dir", "$W/corrupt", code=MACHINE),
    "newer database": bad("was written by a newer Askback", "engines", "--data-dir", "$W/newer", code=MACHINE),
    "database of another program": bad(
        "is a database of another program", "reply", "x", "y", "--data-dir", "$W/foreign", code=MACHINE
    ),
    "doctor of a corrupt database": bad(
        "is not a valid database", "doctor", "--data-dir", "$W/corrupt", code=MACHINE, reports=True
    ),
    "doctor of a very long data folder": bad(
        "File name too long", "doctor", "--data-dir", LONG, code=MACHINE, reports=True
    ),
    # Installing and checking.
    "install what is missing": bad("there is no file or folder nowhere", "skills", "install", "nowhere"),
    "install a text file": bad(
        "is not a zip archive; name a zip of the folder that contains SKILL.md", "skills", "install", "$W/text.txt"
    ),
    "install a folder without SKILL.md": bad("SKILL.md: is missing", "skills", "install", "$W/empty"),
    "install an empty zip": bad("empty.zip", "skills", "install", "$W/empty.zip"),
    "install a hostile zip": bad("../../evil.txt", "skills", "install", "$W/hostile.zip"),
    "install a zip without a skill": bad("SKILL.md", "skills", "install", "$W/no-skill.zip"),
    "install a very long name": bad("there is no file or folder", "skills", "install", LONG),
    "install a surrogate": bad("there is no file or folder", "skills", "install", b"\xff.zip"),
    "check nothing": bad("is not a folder", "skills", "check", "nowhere", reports=True),
    "check a file": bad("is not a folder", "skills", "check", "$W/text.txt", reports=True),
    "check a folder without SKILL.md": bad("SKILL.md: is missing", "skills", "check", "$W/empty", reports=True),
    "check a broken skill": bad("assets/runner.json", "skills", "check", "$W/skills/broken-runner", reports=True),
    "check a very long name": bad("cannot be read", "skills", "check", LONG, reports=True),
    "check a surrogate": bad("is not a folder", "skills", "check", b"\xff", reports=True),
    # Runs.
    "reply to an unknown run": bad("there is no run 'nosuch'; these can be continued:", "reply", "nosuch", "red"),
    "reply to a run like an option": bad("there is no run '-x'", "reply", "--", "-x", "red"),
    "reply to an empty name": bad("there is no run ''", "reply", "", "red"),
    "reply to a surrogate": bad("there is no run", "reply", b"\xff", "red"),
    "reply to a very long name": bad("there is no run", "reply", LONG, "red"),
    "reply to a finished run": bad("has no pending question; its state is succeeded", "reply", "$FINISHED", "red"),
    "reply to another question": bad("'size' of run", "reply", "$WAITING", "red", "--interaction", "size"),
    "reply with nothing": bad("the pipe is empty", "reply", "$WAITING"),
    "reply with an empty text": bad("the answer is empty", "reply", "$WAITING", ""),
    "reply with a surrogate": bad("TEXT: not UTF-8 text", "reply", "$WAITING", b"r\xffd"),
    "continue an unknown run": bad("there is no run 'nosuch'; these can be continued:", "run", "--continue", "nosuch"),
    "continue an empty name": bad("there is no run ''", "run", "--continue", ""),
    "continue a surrogate": bad("there is no run", "run", "--continue", b"\xff"),
    "token that cannot be sent": bad("the token contains an invalid character", *_CALL, "--token", "geheimnüs"),
    "token of two lines": bad("the token contains an invalid character", *_CALL, "--token", "geheim\nnis"),
    "serve on a host that is none": bad(
        "cannot listen on nowhere.invalid:0: ", "serve", "--port", "0", "--host", "nowhere.invalid", code=MACHINE
    ),
    "serve on a host that is elsewhere": bad(
        "; choose another with --host", "serve", "--port", "0", "--host", "192.0.2.1", code=MACHINE
    ),
    "serve on a host that cannot be": bad(
        "; choose another with --host", "serve", "--port", "0", "--host", LONG, code=MACHINE
    ),
    "serve on a host with a dot too many": bad(
        "; choose another with --host", "serve", "--port", "0", "--host", "a..b", code=MACHINE
    ),
    "serve on no host": bad("--host is empty", "serve", "--port", "0", "--host", ""),
    "no host in the environment": bad("server.host: ", "serve", "--port", "0", ASKBACK_SERVER__HOST=""),
    "demo with a surrogate": bad("--answer: not UTF-8 text", "demo", "--answer", b"\xff"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the cases are tried: skills, files and data folders with one mistake each, and two runs."""

    world: World
    waiting: str
    finished: str

    def args(self, case: Case) -> list[bytes]:
        names = {"$W": str(self.world.folder), "$WAITING": self.waiting, "$FINISHED": self.finished}
        words = [os.fsencode(word) if isinstance(word, str) else word for word in case.args]
        for name in sorted(names, key=len, reverse=True):
            words = [word.replace(name.encode(), os.fsencode(names[name])) for word in words]
        return words


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    world = World(tmp_path_factory.mktemp("bad"))
    _write_skills(world)
    _write_files(world.folder)
    _write_zips(world.folder)
    _write_databases(world.folder)
    return _with_runs(world)


def _write_skills(world: World) -> None:
    schemas = {"input": INPUT, "parameter": PARAMETER}
    world.skill([ASK], [FINISH], name="good", schemas=schemas)
    world.skill([FINISH], name="plain")
    world.skill([FINISH], name="auto-only", runner={"id": "auto-only", "execution_modes": ["auto"]})
    world.skill([FINISH], name="other-engine", runner={"id": "other-engine", "engines": ["nosuch"]})
    world.skill([FINISH], name="wrong-runner", runner={"id": "wrong-runner", "max_attempt": "often"})
    world.skill([FINISH], name="wrong-schema", output={"type": "nonsense"})
    for name, file, content in (
        ("broken-front", "SKILL.md", b"---\nname: [\n---\nDo it.\n"),
        ("no-name", "SKILL.md", b"---\ndescription: Something.\n---\nDo it.\n"),
        ("binary", "SKILL.md", b"---\nname: binary\n---\n\xff\xfe\x00"),
        ("broken-runner", "assets/runner.json", b"{"),
        ("broken-schema", "assets/input.schema.json", b"{]"),
    ):
        (Path(world.skill([FINISH], name=name)) / file).write_bytes(content)


def _write_files(folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "text.txt").write_text("text")
    (folder / "nul.txt").write_text("re\0d")
    (folder / "binary").write_bytes(b"\xff\xfe\x00\x01")
    for name, content in (
        ("syntax", b"slots = = 3"),
        ("binary", b"\xff\xfe"),
        ("unknown-key", b"slotz = 3"),
        ("wrong-type", b'slots = "many"'),
        ("unknown-engine", b'[engines.codx]\nmodel = "x"'),
        ("nul", b'skills_dir = ["a\\u0000b"]'),
        ("no-home", b'skills_dir = ["~no-such-user/skills"]'),
        ("default-engine", b'default_engine = "codx"'),
    ):
        (folder / f"{name}.toml").write_bytes(content)


def _write_zips(folder: Path) -> None:
    for name, entries in (("empty", []), ("hostile", ["SKILL.md", "../../evil.txt"]), ("no-skill", ["README.md"])):
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
            for entry in entries:
                archive.writestr(entry, "---\nname: x\ndescription: y\n---\n")


def _write_databases(folder: Path) -> None:
    (folder / "corrupt").mkdir()
    (folder / "corrupt" / "askback.db").write_bytes(b"this is no database" * 100)
    for name, application_id in (("newer", 0x41736B42), ("foreign", 7)):
        (folder / name).mkdir()
        connection = apsw.Connection(str(folder / name / "askback.db"))
        connection.execute(f"PRAGMA application_id = {application_id}; PRAGMA user_version = 99; CREATE TABLE t (x)")
        connection.close()


def _with_runs(world: World) -> Place:
    asks, ends = world.skill([ASK], [FINISH], name="asks"), world.skill([{"finish": {"colour": "x"}}], name="ends")
    ids: list[str] = []

    async def main() -> None:
        async with world.working() as app:
            ids.append((await waiting(app, (await submit(app, asks)).id)).id)
            ids.append((await over(app, (await submit(app, ends)).id)).id)

    run_async(main)
    return Place(world=world, waiting=ids[0], finished=ids[1])


@pytest.mark.parametrize("name", ["folder without SKILL.md", "install a hostile zip", "unknown input"])
def test_no_mistake_is_told_twice(place: Place, name: str) -> None:
    told = askback(place.world, *place.args(CASES[name])).stderr
    assert told.count(CASES[name].says) == 1


def test_there_are_many_cases() -> None:
    assert len(CASES) >= 60


REAL = [
    *(name for name, case in CASES.items() if any(isinstance(word, bytes) for word in case.args)),
    *("no command", "unknown command", "unknown option of run", "unknown skill", "broken front matter"),
    *("several mistakes at once", "missing text file", "settings with a syntax error", "data folder that cannot be"),
    *("corrupt database", "newer database", "doctor of a corrupt database", "check nothing", "install a hostile zip"),
    *("reply to a finished run", "reply with nothing", "continue an unknown run"),
]
"""Tried as a program of its own too: what Python itself makes of the words, and of the program's end."""


def judge(name: str, ran: Ran) -> None:
    case = CASES[name]
    told, other = (ran.stdout, ran.stderr) if case.reports else (ran.stderr, ran.stdout)
    assert ran.code == case.code, ran
    assert "Traceback" not in ran.stderr
    assert case.says in told
    assert other == ""
    assert told.count("askback: ") == (0 if case.reports or name == "no command" else 1)


@pytest.mark.parametrize("name", CASES)
def test_bad_input_gets_one_clear_message(place: Place, name: str) -> None:
    judge(name, askback(place.world, *place.args(CASES[name]), env=CASES[name].env))


@pytest.mark.parametrize("name", REAL)
def test_bad_input_gets_it_from_the_real_program(place: Place, name: str) -> None:
    judge(name, askback(place.world, *place.args(CASES[name]), env=CASES[name].env, warm=False))


@pytest.mark.parametrize("name", [name for name in CASES if name != "no command"])
def test_bad_input_gets_one_json_document(place: Place, name: str) -> None:
    case = CASES[name]
    ran = askback(place.world, *_with_json(place.args(case)), env=case.env)
    assert (ran.code, ran.stderr) == (case.code, "")
    document = ran.json
    if case.reports:
        assert document["ok"] is False
        return
    assert list(document) == ["error"]
    error: dict[str, Any] = document["error"]
    assert list(error) == ["code", "message", "problems"]
    assert error["code"].isupper()
    assert case.says in "\n".join([error["message"], *error["problems"]])


def _with_json(args: list[bytes]) -> list[bytes]:
    """Right behind the command, where nothing can take it for something else."""
    words = 2 if args[0] == b"skills" and len(args) > 1 and args[1] in (b"install", b"check") else 1
    return [*args[:words], b"--json", *args[words:]]
