"""What of a message is shown to people: all but the question, the output and the marker that the verdict reads."""

from __future__ import annotations

import pytest

from askback.questions.reading import prose

ASKED = '{"ask_user": {"kind": "open_text", "prompt": "Which colour?"}}'
YAML = "<ASK_USER_YAML>\nask_user:\n  prompt: Which colour?\n</ASK_USER_YAML>"

CASES = {
    "no block": ("Only `__SKILL_DONE__x` and {braces}.", "Only `__SKILL_DONE__x` and {braces}."),
    "example of a question": (
        'Write {"ask_user": 1} if you ask, and then go on',
        'Write {"ask_user": 1} if you ask, and then go on',
    ),
    "question alone": (ASKED, ""),
    "question at the end": (f"I looked at {{x}} first.\n\n{ASKED}", "I looked at {x} first."),
    "fenced question": (f"```py\nx = {{}}\n```\nNow:\n```json\n{ASKED}\n```\n", "```py\nx = {}\n```\nNow:"),
    "question in YAML": (f"Before.\n{YAML}\nAfter.", "Before.\n\nAfter."),
    "text after a question": (f"Before.\n\n{ASKED}\n\nAfter.", "Before.\n\nAfter."),
    "malformed question at the end": ('Before. {"ask_user": 1}', "Before."),
    "marker in a sentence": ('one {"__SKILL_DONE__": true} two', "one  two"),
    "marked output": ('Done: {"a": 1, "__SKILL_DONE__": true} Bye.', "Done: Bye."),
    "marker after an output": ('Done.\n```json\n{"a": 1}\n```\n__SKILL_DONE__', "Done."),
    "marker before an output": ('__SKILL_DONE__\nHere: {"a": 1}', "Here:"),
    "example in a finished message": (
        'Set {"a": 1} in the file, as said.\n__SKILL_DONE__',
        'Set {"a": 1} in the file, as said.',
    ),
    "marker in quotes": ('Write "__SKILL_DONE__" and {"a": 1}', 'Write "__SKILL_DONE__" and {"a": 1}'),
}


@pytest.mark.parametrize(("text", "shown"), CASES.values(), ids=CASES)
def test_only_what_the_verdict_reads_is_left_out(text: str, shown: str) -> None:
    assert prose(text).strip() == shown
