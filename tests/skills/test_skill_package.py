"""Reading and validating whole packages: with and without optional files, valid and broken."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from skill_folders import GOOD, make_skill

from askback.core.errors import Invalid, RefusalCode
from askback.core.runs import Mode, Validation
from askback.skills.diagnostics import Problem, Severity, errors_of
from askback.skills.package import check_package, read_package

OBJECT: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}


def wrong(folder: Path) -> list[str]:
    return [f"{problem.where}: {problem.message}" for problem in errors_of(check_package(folder))]


def warned(folder: Path) -> list[str]:
    return [each.where for each in check_package(folder) if each.severity is Severity.WARNING]


# Fields and their defaults.


@pytest.mark.contract("B-5")
def test_a_plain_agent_skills_folder_is_a_package(tmp_path: Path) -> None:
    package = read_package(make_skill(tmp_path, files={"references/more.md": "x", "scripts/run.sh": "echo"}))
    assert (package.id, package.name, package.version) == ("good-skill", "good-skill", None)
    assert package.body == "Do the good thing."
    assert package.execution_modes == (Mode.AUTO, Mode.INTERACTIVE)
    assert (package.engines, package.max_attempt, package.options) == (None, None, {})
    assert (package.input_schema, package.parameter_schema, package.output_schema) == (None, None, None)
    assert package.allows_engine("anything")


@pytest.mark.contract("B-5")
def test_runner_json_and_schemas_are_read(tmp_path: Path) -> None:
    runner = {
        "id": "good-skill",
        "version": "2.1",
        "execution_modes": ["interactive", "auto"],
        "engines": ["codex", "gemini"],
        "max_attempt": 3,
        "ask_user_validation": "strict",
        "options": {"turn_timeout_sec": 60},
        "schemas": {"output": "schemas/out.json"},
    }
    folder = make_skill(tmp_path, runner=runner, input=OBJECT, files={"schemas/out.json": '{"type": "array"}'})
    package = read_package(folder)
    assert check_package(folder) == ()
    assert (package.version, package.engines, package.max_attempt) == ("2.1", ("codex", "gemini"), 3)
    assert package.execution_modes == (Mode.INTERACTIVE, Mode.AUTO)
    assert package.ask_user_validation is Validation.STRICT
    assert package.options == {"turn_timeout_sec": 60, "ask_user_validation": Validation.STRICT}
    assert (package.input_schema, package.output_schema) == (OBJECT, {"type": "array"})
    assert package.parameter_schema is None


def test_the_options_own_word_on_validation_wins(tmp_path: Path) -> None:
    runner = {"ask_user_validation": "strict", "options": {"ask_user_validation": "lenient"}}
    assert read_package(make_skill(tmp_path, runner=runner)).options["ask_user_validation"] is Validation.LENIENT


def test_runner_json_at_the_root_counts_and_the_one_in_assets_wins(tmp_path: Path) -> None:
    alone = make_skill(tmp_path / "a", files={"runner.json": '{"version": "root"}'})
    both = make_skill(tmp_path / "b", runner={"version": "assets"}, files={"runner.json": '{"version": "root"}'})
    assert read_package(alone).version == "root"
    assert read_package(both).version == "assets"
    assert warned(both) == ["runner.json"]


def test_default_schema_files_count_without_being_named(tmp_path: Path) -> None:
    package = read_package(make_skill(tmp_path, runner={"id": "good-skill"}, parameter=OBJECT))
    assert package.parameter_schema == OBJECT


def test_a_package_for_skill_runner_is_read_unchanged(tmp_path: Path) -> None:
    runner = {
        "id": "good-skill",
        "version": "1.0.0",
        "name": "Good skill",
        "description": "…",
        "engines": ["gemini", "codex", "iflow"],
        "unsupported_engines": ["iflow"],
        "effective_engines": ["gemini", "codex"],
        "execution_modes": ["auto"],
        "entrypoint": {"prompts": {"gemini": "{{ input.x }}"}, "result_json_filename": "r.json"},
        "runtime": {"language": "python", "dependencies": ["pandas"], "default_options": {"hard_timeout_seconds": 9}},
        "artifacts": [{"role": "result", "pattern": "out.txt", "required": True}],
        "engine_configs": {"gemini": "assets/gemini_settings.json"},
        "mcp": {"required_servers": []},
        "schemas": {key: f"assets/{key}.schema.json" for key in ("input", "parameter", "output")},
    }
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"f": {"type": "string", "x-type": "artifact", "x-role": "result", "extensions": [".md"]}},
    }
    folder = make_skill(
        tmp_path,
        runner=runner,
        input=schema,
        parameter=schema,
        output=schema,
        files={"assets/gemini_settings.json": "{}", "AGENTS.md": "x", "CLAUDE.md": "x"},
    )
    package = read_package(folder)
    assert package.engines == ("gemini", "codex")
    assert wrong(folder) == []


def test_unsupported_engines_alone_leave_all_others(tmp_path: Path) -> None:
    package = read_package(make_skill(tmp_path, runner={"unsupported_engines": ["iflow"]}))
    assert package.engines is None
    assert not package.allows_engine("iflow")
    assert package.allows_engine("codex")


# Errors.


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("id", 3),
        ("id", ""),
        ("id", "../x"),
        ("id", "a/b"),
        ("id", ".hidden"),
        ("id", "x" * 65),
        ("id", "a\nb"),
        ("version", 1.0),
        ("version", ""),
        ("version", "1\n2"),
        ("execution_modes", []),
        ("execution_modes", ["auto", "manual"]),
        ("execution_modes", "auto"),
        ("execution_modes", [1]),
        ("engines", []),
        ("engines", "codex"),
        ("engines", [""]),
        ("unsupported_engines", "codex"),
        ("max_attempt", 0),
        ("max_attempt", -1),
        ("max_attempt", 1.5),
        ("max_attempt", True),
        ("max_attempt", "3"),
        ("summary", 3),
        ("summary", ""),
        ("summary", "x" * 201),
        ("summary", "{{parameter.language}}"),
        ("ask_user_validation", "hard"),
        ("ask_user_validation", True),
        ("options", []),
        ("options", 0),
        ("schemas", []),
    ],
)
def test_each_mistake_of_runner_json_is_named_by_its_key(tmp_path: Path, key: str, value: Any) -> None:
    (problem,) = errors_of(check_package(make_skill(tmp_path, runner={key: value})))
    assert problem.where == f"assets/runner.json: {key}"


def test_options_are_named_by_their_path(tmp_path: Path) -> None:
    folder = make_skill(tmp_path, runner={"options": {"turn_timeout_sec": -1, "nope": 1}})
    assert [problem.where for problem in check_package(folder)] == [
        "assets/runner.json: options.turn_timeout_sec",
        "assets/runner.json: options.nope",
    ]


def test_engines_that_are_all_unsupported_are_an_error(tmp_path: Path) -> None:
    folder = make_skill(tmp_path, runner={"engines": ["a"], "unsupported_engines": ["a"]})
    assert wrong(folder) == ["assets/runner.json: engines: unsupported_engines excludes all of them"]


def test_an_unknown_key_is_a_warning_with_the_near_one(tmp_path: Path) -> None:
    (problem,) = check_package(make_skill(tmp_path, runner={"max_attempts": 3}))
    assert (problem.severity, problem.where) == (Severity.WARNING, "assets/runner.json: max_attempts")
    assert "'max_attempt'" in problem.message
    (problem,) = check_package(make_skill(tmp_path / "other", runner={"zzz": 3}))
    # Fields of Skill-Runner are known as well.
    assert {"max_attempt", "schemas", "entrypoint", "runtime"} <= set(
        problem.message.partition("known: ")[2].split(", ")
    )


def test_an_id_that_differs_from_the_name_is_a_warning(tmp_path: Path) -> None:
    folder = make_skill(tmp_path, runner={"id": "other"})
    assert warned(folder) == ["assets/runner.json: id"]
    assert read_package(folder).id == "other"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "is not an object"),
        ("null", "is not an object"),
        (b"\xff", "is not UTF-8"),
        ('{"max_attempt": NaN}', "NaN is not a JSON number"),
        ("[" * 100_000, "nested too deep"),
        ('{"max_attempt": ' + "9" * 5000 + "}", "is not valid JSON"),
        (b" " * 1_000_001, "is larger than 1 MB"),
    ],
    ids=["cut off", "list", "null", "not utf-8", "nan", "deep", "digits", "large"],
)
def test_unreadable_json_says_why(tmp_path: Path, content: str | bytes, says: str) -> None:
    (problem,) = check_package(make_skill(tmp_path, runner=content))
    assert says in problem.message
    assert problem.where.startswith("assets/runner.json")
    (problem,) = check_package(make_skill(tmp_path / "b", output=content))
    assert problem.where.startswith("assets/output.schema.json")


def test_a_key_that_stands_twice_is_warned_of(tmp_path: Path) -> None:
    (problem,) = check_package(make_skill(tmp_path, runner='{"version": "1", "version": "2"}'))
    assert (problem.severity, problem.message) == (Severity.WARNING, '"version" occurs twice')


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x.json", "a/../../x.json", "..\\x.json", "nowhere.json", "assets", 3, ""]
)
def test_a_schema_path_stays_within_the_package(tmp_path: Path, path: Any) -> None:
    (tmp_path / "x.json").write_text("{}")
    folder = make_skill(tmp_path, runner={"schemas": {"input": path}})
    (problem,) = errors_of(check_package(folder))
    assert problem.where == "assets/runner.json: schemas.input"
    assert ("is outside the package" in problem.message) == (str(path).startswith("/") or ".." in str(path))


def test_mistakes_in_a_schema_are_named_by_file_and_path(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "sting"}, "b": {"minimum": "1"}}}
    folder = make_skill(tmp_path, input=schema, output={"$ref": "https://example.com/x.json"})
    assert [problem.where for problem in check_package(folder)] == [
        "assets/input.schema.json: properties.a.type",
        "assets/input.schema.json: properties.b.minimum",
        "assets/output.schema.json: $ref",
    ]


def test_the_place_of_a_mistake_in_a_schema_is_data_and_is_not_parsed_from_its_text(tmp_path: Path) -> None:
    many = {f"p{number:02}": {"type": 1} for number in range(60)}
    folder = make_skill(tmp_path, output={"properties": {"a: b": {"type": 1}, **many}})
    problems = errors_of(check_package(folder))
    assert problems[0].where == 'assets/output.schema.json: properties["a: b"].type'
    assert not problems[0].message.startswith("b")
    assert (problems[-1].where, problems[-1].message) == ("assets/output.schema.json", "and 11 more")


def test_input_and_parameter_are_always_objects(tmp_path: Path) -> None:
    folder = make_skill(tmp_path, input={"type": "string"}, parameter={"type": ["array"]}, output={"type": "string"})
    assert [problem.where for problem in check_package(folder)] == [
        "assets/input.schema.json: type",
        "assets/parameter.schema.json: type",
    ]


def test_an_unknown_input_source_is_a_warning(tmp_path: Path) -> None:
    folder = make_skill(tmp_path, input={"type": "object", "properties": {"a": {"x-input-source": "disk"}}})
    assert warned(folder) == ["assets/input.schema.json: properties.a.x-input-source"]


def test_check_reports_all_mistakes_at_once_and_read_raises_them(tmp_path: Path) -> None:
    folder = make_skill(
        tmp_path,
        text="---\nname: not a name\n---\n",
        runner={"max_attempt": 0, "id": "/"},
        input={"type": 1},
        files={".env": "x"},
    )
    places = [problem.where for problem in errors_of(check_package(folder))]
    assert places == [
        ".env",
        "SKILL.md: name",
        "SKILL.md: description",
        "assets/runner.json: id",
        "assets/runner.json: max_attempt",
        "assets/input.schema.json: type",
    ]
    with pytest.raises(Invalid) as caught:
        read_package(folder)
    assert caught.value.code is RefusalCode.SKILL_INVALID
    assert len(caught.value.problems) == 6
    assert "and 3 more" in caught.value.message
    assert "\n" not in caught.value.message


def test_every_problem_says_how_to_mend_it(tmp_path: Path) -> None:
    folder = make_skill(tmp_path, text="x", runner={"max_attempt": 0, "engines": []}, input={"type": 1})
    assert all(problem.fix for problem in errors_of(check_package(folder)))


def test_missing_folders_and_files_are_problems_and_no_exceptions(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "lower").mkdir()
    (tmp_path / "lower/skill.md").write_text(GOOD)
    (tmp_path / "file").write_text("x")
    assert wrong(tmp_path / "nowhere")
    assert wrong(tmp_path / "file")
    assert wrong(tmp_path / "empty") == ["SKILL.md: is missing"]
    assert check_package(tmp_path / "lower")[0].fix == "rename skill.md to SKILL.md"
    (tmp_path / "folder/SKILL.md").mkdir(parents=True)
    assert wrong(tmp_path / "folder")


def test_a_folder_that_is_no_skill_is_told_only_that(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("x")
    (tmp_path / "link").symlink_to("/")
    assert wrong(tmp_path) == ["SKILL.md: is missing"]


def test_a_skill_md_of_more_than_a_megabyte_is_refused(tmp_path: Path) -> None:
    folder = make_skill(tmp_path, text=GOOD + "x" * 1_000_000)
    assert wrong(folder) == ["SKILL.md: is larger than 1 MB"]


# What a package must not contain.

REFUSED = [
    ".tool/config.toml",
    "tool.json",
    ".mcp.json",
    ".env",
    ".env.local",
    ".Tool/settings.json",
    ".MCP.JSON",
    "deep/down/.TOOL/settings.json",
    "deep/.ENV.production",
]


@pytest.mark.parametrize("name", REFUSED)
def test_content_that_configures_a_cli_is_refused_by_name(tmp_path: Path, name: str) -> None:
    folder = make_skill(tmp_path, files={name: "x"})
    (problem,) = errors_of(check_package(folder, frozenset({".tool", "tool.json"})))
    assert name.startswith(problem.where)
    assert "configures a coding-agent CLI" in problem.message


@pytest.mark.parametrize(
    "name", ["environment.txt", "claude/notes.md", "codex", "envs/.environment", "mcp.json", "GEMINI.md"]
)
def test_names_that_only_resemble_them_are_allowed(tmp_path: Path, name: str) -> None:
    assert check_package(make_skill(tmp_path, files={name: "x"})) == ()


def test_links_pipes_and_sockets_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_skill(tmp_path)
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "looped").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        assert wrong(folder) == [
            "link: is a symbolic link",
            "looped: is a symbolic link",
            "pipe: is neither a file nor a folder",
            "socket: is neither a file nor a folder",
        ]


@pytest.mark.parametrize("name", ["SKILL.md", "assets/runner.json", "assets/input.schema.json"])
def test_a_file_that_we_read_is_never_a_link(tmp_path: Path, name: str) -> None:
    folder = make_skill(tmp_path, runner={}, input=OBJECT)
    outside = tmp_path / "outside"
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside)
    assert f"{name}: is a symbolic link" in wrong(folder)


def test_a_folder_that_is_itself_reached_by_a_link_is_read(tmp_path: Path) -> None:
    folder = make_skill(tmp_path)
    (tmp_path / "link").symlink_to(folder)
    assert read_package(tmp_path / "link").folder == folder


def test_names_that_cannot_be_printed_are_refused(tmp_path: Path) -> None:
    folder = make_skill(tmp_path)
    (folder / "a\nb").write_text("x")
    Path(os.fsdecode(os.fsencode(folder) + b"/bad\xff")).write_text("x")
    assert len(wrong(folder)) == 2
    assert all(problem.isprintable() for problem in wrong(folder))


def test_a_folder_that_cannot_be_opened_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_skill(tmp_path)

    def deny(_: object) -> object:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(os, "listdir", deny)
    monkeypatch.setattr(os, "scandir", deny)
    (problem,) = check_package(folder)
    assert "Permission denied" in problem.message


# The digest.


def digest(folder: Path) -> str:
    return read_package(folder).digest


def test_the_digest_names_content_names_and_executable_bits(tmp_path: Path) -> None:
    one = make_skill(tmp_path / "1", files={"a.txt": "x", "b/c.txt": "y"})
    same = make_skill(tmp_path / "2", files={"b/c.txt": "y", "a.txt": "x"})
    assert digest(one) == digest(same)
    (same / "a.txt").write_text("z")
    changed = digest(same)
    (same / "a.txt").write_text("x")
    (same / "a.txt").rename(same / "d.txt")
    renamed = digest(same)
    (same / "d.txt").rename(same / "a.txt")
    (same / "a.txt").chmod(0o755)
    assert len({digest(one), changed, renamed, digest(same)}) == 4


def test_bytes_moved_from_one_file_to_the_next_change_the_digest(tmp_path: Path) -> None:
    one = make_skill(tmp_path / "1", files={"a": "xy", "b": ""})
    two = make_skill(tmp_path / "2", files={"a": "x", "b": "y"})
    assert digest(one) != digest(two)


def test_leavings_of_tools_count_for_nothing(tmp_path: Path) -> None:
    plain = make_skill(tmp_path / "1")
    littered = make_skill(
        tmp_path / "2", files={"scripts/__pycache__/x.pyc": "x", ".DS_Store": "x", ".git/hooks/pre-commit": "x"}
    )
    assert check_package(littered) == ()
    assert digest(plain) == digest(littered)


def test_a_problem_reads_as_one_line() -> None:
    problem = Problem(severity=Severity.ERROR, where="SKILL.md: name", message="is missing", fix="write it")
    assert str(problem) == "SKILL.md: name: is missing; write it"


def test_problems_do_not_tell_where_the_package_is(tmp_path: Path) -> None:
    assert wrong(tmp_path / "nowhere") == ["nowhere: is not a folder"]
    folder = make_skill(tmp_path)
    (folder / "assets").symlink_to(folder / "assets")
    assert not any(str(tmp_path) in each for each in wrong(folder))
