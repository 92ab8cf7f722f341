"""A question on a terminal: what is shown, what a typed line means, and who may answer instead."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from askback.cli.connection import system_user
from askback.cli.terminal.prompt import QuietTime
from askback.core.interactions import AnsweredBy, InteractionOutcome
from askback.core.runs import RunState
from support.data_folder import ASK, FINISH, World, run_async, submit
from support.program import ASKBACK, Terminal, askback, stored, until

ANY: dict[str, Any] = {"type": "object"}
COLOURS = [{"label": "Dark red", "value": "red", "description": "like wine"}, {"label": "Blue", "value": "blue"}]


def ask(name: str, **rest: Any) -> dict[str, Any]:
    return {"ask": {"interaction_id": name, "prompt": f"Which {name}?", **rest}}


def sit_down(world: World, *turns: Any, **rest: Any) -> Terminal:
    """Start a skill of these turns on a terminal, its result going into a file."""
    skill = world.skill(*turns, **rest)
    return Terminal(world, "run", skill, "--engine", "scripted", stdout=world.folder / "result")


def test_options_are_numbered_and_enter_takes_the_default(tmp_path: Path) -> None:
    with sit_down(World(tmp_path), [ask("colour", options=COLOURS, default="blue")], [FINISH]) as terminal:
        shown = terminal.expect("Your answer (1-2 or your own words, Enter for blue): ")
        assert "  ? Which colour?\n    1) Dark red: like wine\n    2) Blue  (default)\n" in shown
        terminal.enter()
        ran = terminal.ended()
    assert (ran.code, json.loads(ran.stdout)) == (0, {"colour": "blue"})


def test_a_deadline_that_was_announced_at_the_prompt_is_not_shown_after_the_answer(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    waits = ("--option", "interactive_require_user_reply=false", "--option", "session_timeout_sec=3600")
    soon = {"ASKBACK_NOTIFICATIONS__REMINDERS__BEFORE_DEADLINE_SEC": "3599"}
    with Terminal(world, "run", skill, "--engine", "scripted", *waits, env=soon) as terminal:
        run_id = terminal.run_id()
        terminal.expect("Your answer")
        until(lambda: stored(world, run_id).expiring)
        terminal.enter("red")
        ran = terminal.ended()
    assert ran.code == 0
    assert "expires at" not in ran.stderr


def test_enters_in_quick_succession_do_not_answer_the_next_question(tmp_path: Path) -> None:
    turns = [[ask(f"step {number}", kind="confirm", default="yes")] for number in range(3)]
    with sit_down(World(tmp_path), *turns, [{"finish": {"all": "{{replies}}"}}], output=ANY) as terminal:
        terminal.expect("Your answer [Y/n]: ")
        terminal.write("y\n\n\n\n")
        terminal.expect("Which step 1?")
        terminal.expect("Your answer [Y/n]: ")
        terminal.enter("n")
        terminal.expect("Which step 2?")
        terminal.expect("Your answer [Y/n]: ")
        terminal.enter()
        ran = terminal.ended()
    assert json.loads(ran.stdout) == {"all": ["yes", "no", "yes"]}


def test_what_was_typed_ahead_does_not_answer_the_next_question(tmp_path: Path) -> None:
    turns = [[ask(f"step {number}", kind="confirm", default="yes")] for number in range(2)]
    with sit_down(World(tmp_path), *turns, [{"finish": {"all": "{{replies}}"}}], output=ANY) as terminal:
        terminal.expect("Your answer [Y/n]: ")
        terminal.write("y\ry\r")
        terminal.expect("Which step 1?")
        terminal.expect("Your answer [Y/n]: ")
        terminal.enter("n")
        ran = terminal.ended()
    assert json.loads(ran.stdout) == {"all": ["yes", "no"]}


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_enters_in_quick_succession_do_not_answer_the_next_field(tmp_path: Path, term: str) -> None:
    world = World(tmp_path)
    names = ("first", "second", "third")
    schema = {"type": "object", "properties": {name: {"type": "string", "default": "unseen"} for name in names}}
    skill = world.skill([ask("trip", response_schema=schema)], [{"finish": {"trip": "{{reply_json}}"}}], output=ANY)
    arguments = ("run", skill, "--engine", "scripted")
    with Terminal(world, *arguments, stdout=tmp_path / "result", env={"TERM": term}) as terminal:
        terminal.expect("first (text, Enter for unseen): ")
        terminal.write("1\n\n\n\n")
        terminal.expect("second (text, Enter for unseen): ")
        terminal.enter("2")
        terminal.expect("third (text, Enter for unseen): ")
        terminal.enter()
        ran = terminal.ended()
    assert json.loads(ran.stdout) == {"trip": {"first": "1", "second": "2", "third": "unseen"}}


def test_each_early_enter_starts_the_quiet_time_again() -> None:
    # The first reading is the prompt's; each early Enter takes two.
    readings = iter([0.0, 0.5, 0.5, 1.0, 1.0, 1.5, 1.5, 2.2])
    quiet = QuietTime(clock=lambda: next(readings))
    assert [quiet.ignores_empty_line() for _ in range(4)] == [True, True, True, False]


def test_a_line_means_an_option_by_number_label_or_value_or_else_itself(tmp_path: Path) -> None:
    lines = {"2": "blue", "Dark red": "red", "blue": "blue", " own words ": " own words "}
    turns = [[ask(f"colour {number}", options=COLOURS)] for number in range(len(lines))]
    with sit_down(World(tmp_path), *turns, [{"finish": {"all": "{{replies}}"}}], output=ANY) as terminal:
        for line in lines:
            terminal.expect("Your answer (1-2 or your own words): ")
            terminal.enter(line)
        ran = terminal.ended()
    assert json.loads(ran.stdout) == {"all": list(lines.values())}


def test_an_empty_line_is_no_answer_where_there_is_no_default(tmp_path: Path) -> None:
    with sit_down(World(tmp_path), [ask("colour")], [FINISH]) as terminal:
        terminal.expect("Your answer: ")
        terminal.enter()
        terminal.expect("an answer is required")
        terminal.expect("Your answer: ")
        terminal.enter("grün")
        assert json.loads(terminal.ended().stdout) == {"colour": "grün"}


def test_what_was_typed_before_the_question_is_no_answer(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = [{"wait_for": "go"}, ask("colour", default="blue")]
    with sit_down(world, first, [FINISH]) as terminal:
        run_id = terminal.run_id()
        terminal.enter("too early")
        terminal.expect("too early")
        (world.data_dir / "runs" / run_id / "work").mkdir(parents=True, exist_ok=True)
        (world.data_dir / "runs" / run_id / "work" / "go").touch()
        terminal.expect("Enter for blue): ")
        terminal.enter("in time")
        assert json.loads(terminal.ended().stdout) == {"colour": "in time"}


def test_a_secret_is_not_shown_and_the_terminal_shows_the_next_line_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    secret = ask("password", kind="secret")
    turns = ([secret], [ask("colour")], [{"finish": {"all": "{{replies}}"}}])
    with sit_down(world, *turns, output=ANY) as terminal:
        run_id = terminal.run_id()
        terminal.expect("Your answer (not shown): ")
        terminal.enter("hunter2")
        terminal.expect("Which colour?")
        terminal.expect("Your answer: ")
        terminal.enter("visible")
        ran = terminal.ended()
    assert json.loads(ran.stdout) == {"all": ["[redacted]", "visible"]}
    assert "hunter2" not in ran.stderr
    assert "visible" in ran.stderr
    assert stored(world, run_id).state is RunState.SUCCEEDED


def test_what_is_typed_while_a_secret_is_still_being_asked_for_is_not_shown_either(tmp_path: Path) -> None:
    # The question is longer than a terminal holds, so the program is in the middle of it while nobody reads on.
    secret = {"ask": {"interaction_id": "password", "kind": "secret", "prompt": "Which password? " + "word " * 5_000}}
    with sit_down(World(tmp_path), [secret], [FINISH]) as terminal:
        assert terminal.shows_what_is_typed
        terminal.expect("Which password?")
        assert not terminal.shows_what_is_typed
        terminal.expect("Your answer (not shown): ")
        assert not terminal.shows_what_is_typed
        terminal.enter("hunter2")
        terminal.expect("turn 2")
        assert terminal.shows_what_is_typed
        assert "hunter2" not in terminal.ended().stderr


FORM = {
    "type": "object",
    "required": ["days", "pace"],
    "properties": {
        "days": {"type": "integer", "title": "Days", "description": "how long.", "minimum": 1, "maximum": 14},
        "pace": {"type": "string", "enum": ["slow", "fast"]},
        "guide": {"type": "boolean", "default": False},
        "tags": {"type": "array", "items": {"anyOf": [{"const": "f", "title": "Food"}, {"const": "m"}]}},
        "from": {"type": "string", "format": "date"},
        "note": {"type": "string"},
    },
}


def test_a_form_is_asked_field_by_field_and_again_until_it_fits(tmp_path: Path) -> None:
    turns = ([ask("trip", response_schema=FORM)], [{"finish": {"trip": "{{reply_json}}"}}])
    with sit_down(World(tmp_path), *turns, output=ANY) as terminal:
        for hint, line, problem in (
            ("Days (how long; whole number, 1 to 14): ", "soon", "      soon is not a whole number"),
            ("Days (how long; whole number, 1 to 14): ", "0", "      0 is less than"),
            ("Days (how long; whole number, 1 to 14): ", "", "an answer is required"),
            ("Days (how long; whole number, 1 to 14): ", "3", None),
            (
                "    pace:\n      1) slow\n      2) fast\n    pace (1-2): ",
                "medium",
                "medium is not offered; choose from: 1-2",
            ),
            ("pace (1-2): ", "3", "3 is not offered; choose from: 1-2"),
            ("pace (1-2): ", "2", None),
            ("guide [y/N]: ", "perhaps", "answer y or n"),
            ("guide [y/N]: ", "Yes", None),
            ("1) Food\n      2) m\n    tags (any of 1-2, separated by commas, optional): ", "1, 7", "7 is not offered"),
            ("tags (any of 1-2, separated by commas, optional): ", "1, m, 1", None),
            ("from (date, YYYY-MM-DD, optional): ", "1.5.2026", "1.5.2026 is not a date; write it as YYYY-MM-DD"),
            ("from (date, YYYY-MM-DD, optional): ", "2026-02-30", "2026-02-30 is not a date"),
            ("from (date, YYYY-MM-DD, optional): ", "2026-05-01", None),
            ("note (text, optional): ", "", None),
        ):
            terminal.expect(hint)
            terminal.enter(line)
            if problem is not None:
                terminal.expect(problem)
        ran = terminal.ended()
    assert "response." not in ran.stderr
    wanted = {"days": 3, "pace": "fast", "guide": True, "tags": ["f", "m"], "from": "2026-05-01"}
    assert (ran.code, json.loads(ran.stdout)) == (0, {"trip": wanted})


def test_a_confirmation_takes_yes_or_no_and_sends_what_the_page_sends(tmp_path: Path) -> None:
    typed = {"y": "yes", "No": "no", "": "yes"}
    turns = [[ask(f"step {number}", kind="confirm", default="yes")] for number in range(len(typed))]
    turns.append([ask("flag", response_schema={"type": "boolean"})])
    with sit_down(World(tmp_path), *turns, [{"finish": {"all": "{{replies}}"}}], output=ANY) as terminal:
        for line in typed:
            terminal.expect("Your answer [Y/n]: ")
            terminal.enter("maybe")
            terminal.expect("answer y or n")
            terminal.expect("Your answer [Y/n]: ")
            terminal.enter(line)
        terminal.expect("Your answer [y/n]: ")
        terminal.enter("")
        terminal.expect("an answer is required")
        terminal.expect("Your answer [y/n]: ")
        terminal.enter("n")
        ran = terminal.ended()
    assert json.loads(ran.stdout)["all"][:3] == list(typed.values())


def test_a_number_that_no_option_has_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    with sit_down(world, [ask("colour", options=COLOURS)], [FINISH]) as terminal:
        run_id = terminal.run_id()
        terminal.expect("Your answer (1-2 or your own words): ")
        terminal.enter("9")
        terminal.expect("there is no option 9; choose 1-2, or answer in words")
        terminal.expect("Your answer (1-2 or your own words): ")
        terminal.end_input()
        assert terminal.ended().code == 4
    refused = askback(world, "reply", run_id, "9", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (2, "REPLY_INVALID")
    assert stored(world, run_id).state is RunState.WAITING_USER


LETTER = "".join(f"line {number} of a long letter, with ümlauts and 字\n" for number in range(2_200))
ECHO = [{"finish": {"colour": "{{reply}}"}}]


def test_a_pasted_text_of_100_kb_is_one_answer_with_all_its_lines(tmp_path: Path) -> None:
    assert len(LETTER.encode()) > 100_000
    with sit_down(World(tmp_path), [ask("colour")], ECHO) as terminal:
        terminal.expect("Your answer: ")
        terminal.paste(LETTER)
        terminal.enter("the end")
        assert json.loads(terminal.ended().stdout) == {"colour": LETTER + "the end"}


def test_a_typed_line_of_100_kb_arrives_whole(tmp_path: Path) -> None:
    line = "字" * 33_334
    with sit_down(World(tmp_path), [ask("colour")], ECHO) as terminal:
        terminal.expect("Your answer: ")
        for start in range(0, len(line), 300):
            terminal.write(line[start : start + 300])
        terminal.enter()
        assert json.loads(terminal.ended().stdout) == {"colour": line}


def test_a_pasted_secret_is_not_shown(tmp_path: Path) -> None:
    with sit_down(World(tmp_path), [ask("key", kind="secret")], [FINISH]) as terminal:
        terminal.expect("Your answer (not shown): ")
        terminal.paste("-----BEGIN KEY-----\nhunter2\n")
        terminal.enter()
        ran = terminal.ended()
    assert ran.code == 0, ran.stderr
    assert "hunter2" not in ran.stderr
    assert "*" not in ran.stderr


def test_alt_enter_starts_a_new_line(tmp_path: Path) -> None:
    with sit_down(World(tmp_path), [ask("colour")], ECHO) as terminal:
        terminal.expect("(Ctrl-D: answer later; Alt-Enter: new line)")
        terminal.expect("Your answer: ")
        terminal.write("red\x1b\rand blue")
        terminal.enter()
        assert json.loads(terminal.ended().stdout) == {"colour": "red\nand blue"}


def test_long_text_wraps_at_words_and_keeps_its_indent(tmp_path: Path) -> None:
    world = World(tmp_path)
    words = " ".join(f"word{number}" for number in range(30))
    chinese = "请先回答这个问题然后再继续" * 8
    turns = ([{"say": words}, ask("colour", context=chinese, options=[words, "blue"])], [FINISH])
    arguments = ("run", world.skill(*turns), "--engine", "scripted")
    with Terminal(world, *arguments, stdout=world.folder / "result", columns=80) as terminal:
        shown = terminal.expect("Your answer (1-2 or your own words): ")
        terminal.enter("2")
        assert terminal.ended().code == 0
    lines = [line for line in shown.splitlines() if "word" in line or "请" in line or "问" in line]
    assert all(
        len(line) + sum(character > "\u2e80" for character in line) <= 80 for line in lines if "turn" not in line
    )
    options = lines[-4:]
    assert options[0].startswith("    1) word0 word1 ")
    assert options[1].startswith("       word")
    assert words in " ".join(" ".join(options).replace("1)", "").split())
    assert chinese in "".join(line.strip() for line in lines)


def test_a_form_given_in_advance_is_shown_in_words(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ask("trip", response_schema=FORM)], [{"finish": {"trip": "{{reply_json}}"}}], output=ANY)
    answer = json.dumps({"days": 3, "pace": "fast", "guide": True, "tags": ["f", "m"]})
    ran = askback(world, "run", skill, "--engine", "scripted", "--answer", answer)
    assert ran.code == 0
    assert "  > Days: 3; pace: fast; guide: yes; tags: Food, m\n" in ran.stderr
    (run_id,) = re.findall(r"run ([0-9a-z]{16})", ran.stderr)
    said = f"answered by {system_user()}: Days: 3; pace: fast; guide: yes; tags: Food, m\n"
    assert said in askback(world, "show", run_id).stdout


def test_keys_edit_the_line(tmp_path: Path) -> None:
    with sit_down(World(tmp_path), [ask("colour")], ECHO) as terminal:
        terminal.expect("Your answer: ")
        # "bluex", Backspace, cursor left, Backspace, "a", end of the line, "!".
        terminal.write("bluex\x7f\x1b[D\x7fa\x05")
        terminal.enter("!")
        assert json.loads(terminal.ended().stdout) == {"colour": "blae!"}


def test_a_line_that_a_dumb_terminal_cut_is_not_taken_for_an_answer(tmp_path: Path) -> None:
    world = World(tmp_path)
    arguments = ("run", world.skill([ask("colour")], [FINISH]), "--engine", "scripted")
    with Terminal(world, *arguments, stdout=world.folder / "result", env={"TERM": "dumb"}) as terminal:
        terminal.expect("Your answer: ")
        terminal.enter("x" * 5000)
        terminal.expect("this terminal cuts a line after 4,095 bytes")
        terminal.expect("Your answer: ")
        terminal.enter("red")
        assert json.loads(terminal.ended().stdout) == {"colour": "red"}


@pytest.mark.parametrize("typed", ["", "half a li"])
def test_the_end_of_input_leaves_the_run_waiting_and_says_how_to_go_on(tmp_path: Path, typed: str) -> None:
    world = World(tmp_path)
    with sit_down(world, [ASK], [FINISH]) as terminal:
        run_id = terminal.run_id()
        terminal.expect("Your answer (1-2 or your own words): ")
        terminal.write(typed)
        terminal.write("\x04\x04" if typed else "\x04")
        ran = terminal.ended()
    assert (ran.code, ran.stdout) == (4, "")
    assert f"run {run_id} waits for an answer; answer with: askback reply {run_id} TEXT" in ran.stderr
    assert stored(world, run_id).state is RunState.WAITING_USER


def test_a_live_line_says_what_is_going_on(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    tool = {"tool": {"name": "search", "detail": "for paint", "ends": False}}
    steps = [{"say": "Let me see."}, tool, {"wait_for": str(gate)}, {"finish": {"colour": "red"}}]
    with sit_down(World(tmp_path), steps) as terminal:
        terminal.expect("s · search for paint")
        gate.touch()
        ran = terminal.ended()
    assert b"\x1b[2K" in terminal.raw
    assert re.search(r"turn 1 · \d+ s · search for paint", ran.stderr)
    assert "  Let me see.\n" in ran.stderr
    assert "  · search for paint\n" in ran.stderr
    assert "✔ tested: succeeded" in ran.stderr
    # The cursor is shown again.
    assert terminal.raw.rfind(b"\x1b[?25h") > terminal.raw.rfind(b"\x1b[?25l")


def test_what_an_engine_says_cannot_drive_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x9b1mred\u202e"
    turns = ([{"say": evil}, ask("colour", prompt=evil, options=[evil], context=evil, default=evil)], [FINISH])
    with sit_down(World(tmp_path), *turns) as terminal:
        terminal.expect("Your answer")
        terminal.enter("red")
        terminal.ended()
    assert b"owned" not in terminal.raw
    assert b"\x1b[2J" not in terminal.raw
    assert "\x9b".encode() not in terminal.raw
    assert "red<U+202E>" in terminal.screen


def test_with_stderr_elsewhere_nobody_can_be_asked(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    shell = 'exec "$@" 2>log'
    program = ("/bin/sh", "-c", shell, "sh", *ASKBACK)
    with Terminal(world, "run", skill, "--engine", "scripted", "--mode", "interactive", program=program) as terminal:
        assert terminal.ended().code == 4
    assert "Which colour?" in (world.folder / "here" / "log").read_text()


# Answers from elsewhere.


@pytest.mark.contract("A-1")
def test_an_answer_from_another_program_lets_the_first_go_on_by_itself(tmp_path: Path) -> None:
    world = World(tmp_path)
    with sit_down(world, [ASK], [FINISH]) as terminal:
        run_id = terminal.run_id()
        terminal.expect("Your answer")
        sent = askback(world, "reply", run_id, "2")
        assert (sent.code, sent.stdout) == (0, "")
        assert "continues in the program that owns it" in sent.stderr
        terminal.expect(f"(answered by {system_user()})")
        ran = terminal.ended()
    assert (ran.code, json.loads(ran.stdout)) == (0, {"colour": "blue"})

    async def main() -> None:
        async with world.client() as app:
            (asked,) = await app.service.store.interactions(run_id)
            assert (asked.prompt, asked.response) == ("Which colour?", "blue")
            assert (asked.outcome, asked.answered_by) == (InteractionOutcome.ANSWERED, AnsweredBy.USER)
            assert asked.answered_at is not None
            assert asked.asked_at < asked.answered_at

    run_async(main)


# Its clock is an hour ahead once the file is there.
LATER = """
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from askback.app import opening
from askback.cli.main import main
later = Path(sys.argv.pop(1))
opening.wall_clock = lambda: datetime.now(UTC) + timedelta(hours=later.exists())
main()
"""


def test_a_decision_by_time_lets_the_terminal_go_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ask("colour", default="blue")], [{"finish": {"colour": "decided"}}])
    options = ("--option", "interactive_require_user_reply=false", "--option", "session_timeout_sec=1800")
    arguments = ("run", skill, "--engine", "scripted", *options)
    program = (sys.executable, "-c", LATER, str(tmp_path / "later"))

    async def stir() -> None:
        """A change that another program tells of makes this one look at its clock."""
        async with world.client() as app:
            await submit(app, skill)

    with Terminal(world, *arguments, stdout=tmp_path / "result", program=program) as terminal:
        terminal.expect("Your answer")
        (tmp_path / "later").touch()
        run_async(stir)
        terminal.expect("(time is up: the engine decides without an answer)")
        ran = terminal.ended()
    assert (ran.code, json.loads(ran.stdout)) == (0, {"colour": "decided"})


def left_waiting(world: World) -> str:
    """A run that waits, and whose program is gone."""
    ran = askback(world, "run", world.skill([ASK], [FINISH]), "--engine", "scripted", "--mode", "interactive", "--json")
    assert ran.code == 4, ran
    return str(ran.json["id"])


def test_reply_asks_on_a_terminal_and_its_result_goes_to_stdout(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_id = left_waiting(world)
    with Terminal(world, "reply", run_id, stdout=tmp_path / "result") as terminal:
        terminal.expect("Which colour?")
        terminal.expect("Your answer")
        terminal.end_input()
        ran = terminal.ended()
    assert ran.code == 4
    assert f"askback reply {run_id} TEXT" in ran.stderr
    with Terminal(world, "reply", run_id, stdout=tmp_path / "result") as terminal:
        terminal.expect("Your answer")
        terminal.enter("1")
        ran = terminal.ended()
    assert (ran.code, json.loads(ran.stdout)) == (0, {"colour": "red"})


def test_reply_at_its_prompt_is_told_when_another_was_first(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_id = left_waiting(world)
    with Terminal(world, "reply", run_id) as terminal:
        terminal.expect("Your answer")
        assert askback(world, "reply", run_id, "red").code == 0
        ran = terminal.ended()
    assert ran.code == 2
    assert "was settled elsewhere in the meantime" in ran.stderr


def test_an_interrupted_reply_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_id = left_waiting(world)
    with Terminal(world, "reply", run_id) as terminal:
        terminal.expect("Your answer")
        terminal.interrupt()
        ran = terminal.ended()
    assert ran.code == 4
    assert f"answer with: askback reply {run_id} TEXT" in ran.stderr
    assert stored(world, run_id).state is RunState.WAITING_USER


def test_a_waiting_run_is_taken_up_on_a_terminal(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_id = left_waiting(world)
    with Terminal(world, "run", "--continue", run_id, stdout=tmp_path / "result") as terminal:
        terminal.expect(f"run {run_id}")
        terminal.expect("Which colour?")
        terminal.expect("Your answer")
        terminal.enter("2")
        ran = terminal.ended()
    assert (ran.code, json.loads(ran.stdout)) == (0, {"colour": "blue"})


def test_what_moves_on_a_narrow_terminal_is_one_line(tmp_path: Path) -> None:
    world = World(tmp_path)
    gate = tmp_path / "gate"
    tool = {"tool": {"name": "measure", "detail": "the whole wall, and then all of it once more"}}
    skill = world.skill([tool, {"wait_for": str(gate)}, {"finish": {"colour": "red"}}])
    with Terminal(world, "run", skill, "--engine", "scripted", columns=24) as terminal:
        terminal.expect("turn 1")
        terminal.expect("…")
        gate.touch()
        assert terminal.ended().code == 0
        # Whoever wipes two lines moves up twice in a row.
        assert b"\x1b[1A\x1b[2K\x1b[1A" not in terminal.raw
