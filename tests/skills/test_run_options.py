"""Options of a run, from a package and from a request."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.core.runs import OnLostSession, ProfileChoice, RunOptions, Validation
from askback.skills.json_schema import compile_schema
from askback.skills.manifest import MAX_MODEL_LENGTH, OPTION_SCHEMAS, TEN_YEARS_SEC, merge_options, read_options


def test_every_option_of_a_run_is_known_here() -> None:
    names = {each.name for each in fields(RunOptions)}
    assert set(OPTION_SCHEMAS) == names
    assert read_options(dict.fromkeys(names, object()), "options")[1].__len__() == len(names)


def test_good_options_are_typed() -> None:
    options, problems = read_options(
        {
            "session_timeout_sec": 5,
            "turn_timeout_sec": 0.5,
            "interactive_require_user_reply": False,
            "interactive_profile": "resumable",
            "ask_user_validation": "strict",
            "repair_attempts": 0,
            "on_lost_session": "rebuild",
            "model": "-odd\nname",
        },
        "options",
    )
    assert problems == ()
    assert options["interactive_profile"] is ProfileChoice.RESUMABLE
    assert options["ask_user_validation"] is Validation.STRICT
    assert options["on_lost_session"] is OnLostSession.REBUILD
    assert options["model"] == "-odd\nname"


@pytest.mark.parametrize("name", ["session_timeout_sec", "turn_timeout_sec"])
@pytest.mark.parametrize("value", [0, -1, True, "5", None, float("nan"), float("inf"), TEN_YEARS_SEC + 1, [1]])
def test_a_time_is_a_positive_number_of_seconds_up_to_ten_years(name: str, value: Any) -> None:
    options, (problem,) = read_options({name: value}, "options")
    assert options == {}
    assert problem.startswith(f"options.{name}: ")
    assert len(problem) < 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("repair_attempts", -1),
        ("repair_attempts", 11),
        ("repair_attempts", 1.5),
        ("repair_attempts", True),
        ("repair_attempts", float("nan")),
        ("repair_attempts", float("inf")),
        ("repair_attempts", "1"),
        ("interactive_require_user_reply", 1),
        ("interactive_require_user_reply", "yes"),
        ("interactive_profile", "sticky"),
        ("interactive_profile", ["auto"]),
        ("ask_user_validation", {}),
        ("on_lost_session", "retry"),
        ("on_lost_session", True),
        ("model", ""),
        ("model", "  "),
        ("model", "a\0b"),
        ("model", "\ud800"),
        ("model", "x" * 1_000_000),
        ("model", 4),
    ],
)
def test_an_improper_value_is_named_by_its_path(name: str, value: Any) -> None:
    options, (problem,) = read_options({name: value}, "options")
    assert options == {}
    assert problem.startswith(f"options.{name}: ")


@pytest.mark.contract("E-5")
def test_the_longest_name_of_a_model_can_be_put_on_a_command_line() -> None:
    longest = "🙂" * MAX_MODEL_LENGTH
    assert read_options({"model": longest}, "options") == ({"model": longest}, ())
    argv = [sys.executable, "-c", "import sys; print(len(sys.argv[1]))", f"--model={longest}"]
    printed = subprocess.run(argv, capture_output=True, check=True, text=True, env={"PYTHONUTF8": "1"})
    assert int(printed.stdout) == len("--model=") + MAX_MODEL_LENGTH
    assert read_options({"model": longest + "x"}, "options")[0] == {}


def test_an_unknown_option_lists_the_known_ones_or_the_near_one() -> None:
    _, (far, near) = read_options({"zzz": 1, "turn_timeout": 1}, "options")
    assert all(name in far for name in OPTION_SCHEMAS)
    assert near == "options.turn_timeout: is unknown; did you mean 'turn_timeout_sec'?"


@pytest.mark.parametrize("raw", [None, [], "x", 3])
def test_options_are_an_object(raw: Any) -> None:
    assert read_options(raw, "options")[1][0].startswith("options: ")


def test_the_runs_own_options_win_over_the_packages() -> None:
    merged = merge_options({"turn_timeout_sec": 7, "repair_attempts": 3}, {"turn_timeout_sec": 9})
    assert (merged.turn_timeout_sec, merged.repair_attempts) == (9, 3)
    assert merged.session_timeout_sec == RunOptions().session_timeout_sec


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=3,
)


@given(st.sampled_from(sorted(OPTION_SCHEMAS)), json_values)
def test_the_schemas_of_the_options_say_the_same_as_the_readers(name: str, value: Any) -> None:
    by_schema = compile_schema(OPTION_SCHEMAS[name], name).problems(value) == ()
    by_reader = read_options({name: value}, "options")[1] == ()
    blank_model = name == "model" and isinstance(value, str) and ("\0" in value or not value.strip())
    assert by_reader == by_schema or blank_model


def test_a_number_too_long_to_print_is_told_too() -> None:
    problems = read_options({"turn_timeout_sec": 10**5000, "repair_attempts": 10**5000}, "options")[1]
    assert len(problems) == 2
