"""SKILL.md by the rules of the Agent Skills format, and hostile YAML."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from askback.skills.diagnostics import Severity, errors_of
from askback.skills.front_matter import MAX_FRONT_MATTER_BYTES, front_matter_as_json, read_skill_text


def read(front: str, body: str = "Do it.", folder: str = "a-skill"):
    return read_skill_text(f"---\n{front}\n---\n{body}\n".encode(), folder)


def told(front: str, **kwargs: str) -> list[str]:
    return [str(problem) for problem in read(front, **kwargs)[1]]


NAMED = "name: a-skill\ndescription: Does it."


def test_good_front_matter_is_read_without_a_word() -> None:
    text, problems = read(NAMED + "\nlicense: MIT\ncompatibility: needs git\nallowed-tools: Bash Read")
    assert problems == ()
    assert (text.name, text.description, text.body) == ("a-skill", "Does it.", "Do it.")


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf---\nname: a-skill\ndescription: Does it.\n---\nDo it.\n",
        b"---\r\nname: a-skill\r\ndescription: Does it.\r\n---\r\nDo it.\r\n",
        b"---  \nname: a-skill\ndescription: Does it.\n--- \n\n\nDo it.\n\n",
    ],
)
def test_bom_crlf_and_trailing_blanks_change_nothing(content: bytes) -> None:
    text, problems = read_skill_text(content, "a-skill")
    assert problems == ()
    assert (text.name, text.body) == ("a-skill", "Do it.")


@pytest.mark.parametrize("name", ["-a", "a b", "", "ä", "a" * 65, "a/b", "..", "../../etc", ".hidden", "a\u200bb"])
def test_a_name_that_no_folder_can_have_is_an_error(name: str) -> None:
    problems = errors_of(read(f"name: '{name}'\ndescription: x", folder=name)[1])
    assert [problem.where for problem in problems] == ["SKILL.md: name"]
    assert "lowercase" in problems[0].fix


@pytest.mark.parametrize("name", ["a", "a1-b2", "7", "a" * 64])
def test_a_proper_name_passes(name: str) -> None:
    assert told(f"name: {name}\ndescription: x", folder=name) == []


def test_a_name_that_differs_from_the_folder_is_only_a_warning() -> None:
    (problem,) = read(NAMED, folder="other")[1]
    assert (problem.severity, problem.where) == (Severity.WARNING, "SKILL.md: name")


def test_all_mistakes_are_told_at_once() -> None:
    front = "name: BAD\ndescription: ''\ncompatibility: " + "x" * 501 + "\nlicense: [a]\nmetadata: text\ncolour: red"
    assert [problem.split(":")[1].strip() for problem in told(front)] == [
        "name",
        "description",
        "license",
        "compatibility",
        "metadata",
        "colour",
    ]


@pytest.mark.parametrize(
    ("front", "where", "says"),
    [
        ("description: x", "SKILL.md: name", "is missing"),
        ("name: a-skill", "SKILL.md: description", "is missing"),
        ("name: a-skill\ndescription:", "SKILL.md: description", "is empty"),
        ("name: a-skill\ndescription: '   '", "SKILL.md: description", "is empty"),
        ("name: a-skill\ndescription: [x]", "SKILL.md: description", "is not a string"),
        ("name: {a: b}\ndescription: x", "SKILL.md: name", "is not a string"),
        ("name: a-skill\nname: b\ndescription: x", "SKILL.md: name", "occurs twice (line 3)"),
        ("name: a-skill\ndescription: x\nmetadata: {a: b, a: c}", "SKILL.md: metadata.a", "occurs twice"),
        ("name: a-skill\ndescription: Use when: asked", "SKILL.md: line 3", "is not YAML"),
        ("- a\n- b", "SKILL.md", "not a list of `key: value` lines"),
        ("just text", "SKILL.md", "not a list of `key: value` lines"),
        ("", "SKILL.md: name", "is missing"),
        ("? [a]\n: b", "SKILL.md: line 2", "a key is not a string"),
    ],
)
def test_each_mistake_has_its_place_and_a_way_to_fix_it(front: str, where: str, says: str) -> None:
    problem = errors_of(read(front)[1])[0]
    assert problem.where == where
    assert says in problem.message
    assert problem.fix


def test_description_of_1024_characters_passes() -> None:
    assert told("name: a-skill\ndescription: " + "x" * 1024) == []


IMPROPER = ("A-skill", "a_skill", "a-", "a--b", "PDF_Tools.v2")


@pytest.mark.parametrize(
    ("front", "where", "says"),
    [
        ("name: a-skill\ndescription: " + "x" * 1068, "SKILL.md: description", "1068 characters"),
        *((f"name: {name}\ndescription: x", "SKILL.md: name", "other programs may refuse") for name in IMPROPER),
        (NAMED + "\ncompatibility: " + "x" * 501, "SKILL.md: compatibility", "501 characters"),
    ],
)
def test_a_rule_that_is_broken_without_a_doubt_about_the_meaning_is_a_warning(
    front: str, where: str, says: str
) -> None:
    (problem,) = read(front, folder="")[1]
    assert (problem.severity, problem.where) == (Severity.WARNING, where)
    assert says in problem.message
    assert problem.fix


def test_metadata_is_a_map_of_texts() -> None:
    assert told(NAMED + "\nmetadata:\n  version: 1.0\n  author: me") == []
    (nested,) = read(NAMED + "\nmetadata:\n  deep:\n    er: x")[1]
    assert (nested.severity, nested.where) == (Severity.WARNING, "SKILL.md: metadata.deep")


def test_an_unknown_key_is_a_warning_that_names_the_near_one() -> None:
    (problem,) = read(NAMED + "\nlicence: MIT")[1]
    assert problem.severity is Severity.WARNING
    assert "'license'" in problem.message


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"# no front matter\n", "has no front matter"),
        (b"", "has no front matter"),
        (b"\n---\nname: x\n---\n", "has no front matter"),
        (b"---\nname: x\n", "has no end"),
        (b"---\nname: \xff\xfe\n---\n", "byte 10 is not UTF-8"),
        ("---\nname: x\n---\n".encode("utf-16"), "not UTF-8"),
    ],
)
def test_a_file_without_readable_front_matter_says_so(content: bytes, says: str) -> None:
    (problem,) = read_skill_text(content, "x")[1]
    assert says in problem.message
    assert problem.severity is Severity.ERROR


def test_a_skill_without_instructions_is_warned() -> None:
    (problem,) = read(NAMED, body="  ")[1]
    assert (problem.severity, problem.message) == (Severity.WARNING, "has no instructions")


LAUGHS = "a: &a [x, x]\n" + "\n".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]" for n in range(9)
)
HOSTILE = {
    "alias bomb": LAUGHS,
    "anchor": "name: &x a-skill\ndescription: x",
    "alias": "name: a-skill\ndescription: x\nmetadata:\n  a: *x",
    "merge key": "base: &b {name: x}\n<<: *b",
    "deep flow": "x: " + "[" * 5000 + "]" * 5000,
    "deep map": "x: " + "{a: " * 5000,
    "deep block": "\n".join("  " * n + f"k{n}:" for n in range(200)),
    "python object": "name: !!python/object/apply:os.system [echo]\ndescription: x",
    "own tag": "name: !evil x\ndescription: x",
    "binary": "name: !!binary aGk=\ndescription: x",
    "too large": "description: " + "x" * MAX_FRONT_MATTER_BYTES,
    "control characters": "name: a\x00b\ndescription: \x07",
    "two documents": "name: a-skill\n...\nother: x\n",
    "many keys": "\n".join(f"k{n}: v" for n in range(4000)),
    "open quote": "name: 'a-skill\ndescription: x",
    "tabs": "name:\n\t- x",
    "no character": 'name: a-skill\ndescription: "\\UFFFFFFFF"',
    "half a character": 'name: a-skill\ndescription: "\\uD800"',
    "half a character in a key": 'name: a-skill\ndescription: x\n"\\uD800": x',
    "endless version": "%YAML 1." + "9" * 5000,
}


def test_the_front_matter_may_not_be_larger_than_64_kb() -> None:
    front = f"{NAMED}\nmetadata:\n  long: "
    assert told(front + "x" * (MAX_FRONT_MATTER_BYTES - len(front))) == []
    assert "larger than 64 kB" in told(front + "x" * (MAX_FRONT_MATTER_BYTES - len(front) + 1))[0]


@pytest.mark.parametrize("front", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_yaml_is_refused_in_short_time(front: str) -> None:
    began = time.perf_counter()
    _, problems = read(front)
    assert errors_of(problems)
    assert time.perf_counter() - began < 20


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=300),
        st.text(max_size=300).map(lambda text: f"---\n{text}\n---\n".encode("utf-8", "replace")),
    )
)
def test_no_content_makes_the_reader_raise(content: bytes) -> None:
    text, problems = read_skill_text(content, "x")
    assert text.name or errors_of(problems)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1.10", 1.1),
        ("'1.10'", "1.10"),
        ("-7", -7),
        ("0o17", 15),
        ("0x1f", 31),
        ("1e3", 1000.0),
        ("1e999", "1e999"),
        (".inf", ".inf"),
        ("9" * 5000, "9" * 5000),
        ("yes", "yes"),
        ("True", True),
        ("~", None),
        ("", None),
        ('""', ""),
        ("2026-07-28", "2026-07-28"),
        ("[1, a]", [1, "a"]),
        ("|\n  1", "1"),
    ],
)
def test_front_matter_as_json_has_the_types_of_yaml(written: str, value: object) -> None:
    text = f"---\r\nname: a\ndescription: b\nx: {written}\n---\n"
    front = front_matter_as_json(text.encode())
    assert front == {"name": "a", "description": "b", "x": value}
    assert type(front["x"]) is type(value)


@pytest.mark.parametrize("content", [b"", b"no front matter", b"---\nname: a\n", b"---\na: &x 1\n---\n", b"\xff"])
def test_front_matter_as_json_is_nothing_for_an_invalid_file(content: bytes) -> None:
    assert front_matter_as_json(content) is None
