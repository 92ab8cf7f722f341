"""Approvals: the question for a tool call, what an answer to it means, and what it lets the run do. Pure.

A call is identified by its digest. The answer of a person is stored with the run, and is used up before the call starts.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace

from askback.core.interactions import APPROVAL, AnsweredBy, Interaction, Json, Question
from askback.core.permissions import Explained, Match, Rule, Ruling, SourcedPolicy, ToolCall, rule_json, similar

APPROVE, APPROVE_SIMILAR, DENY = "approve", "approve_similar", "deny"
MAX_INPUT_BYTES = 256_000
"""Of a call that can be asked about. A larger one is denied."""
_MAX_SHOWN = 6_000
"""Characters of the input in the text of the question. The field `input` has all of it."""
_MAX_REASON = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a person, or the deadline, has decided of one call. `started`: the approval is used up."""

    interaction_id: str
    digest: str
    approved: bool
    reason: str = ""
    started: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPermissions:
    """The policies of a run, and what persons have decided in it."""

    policies: tuple[SourcedPolicy, ...]
    similar: tuple[Rule, ...] = ()
    """What such calls have in common that were approved for the rest of the run."""
    answered: Answered | None = None
    """The last question that was about a call."""

    def after(self, closed: Interaction) -> RunPermissions:
        """With the answer to a question; an earlier answer does not count any more."""
        if closed.kind != APPROVAL or not isinstance(closed.context, Mapping):
            return replace(self, answered=None)
        choice, reason = read_answer(closed)
        approved = choice in (APPROVE, APPROVE_SIMILAR)
        digest = str(closed.context.get("digest"))
        answered = Answered(interaction_id=closed.interaction_id, digest=digest, approved=approved, reason=reason)
        rule = closed.context.get("similar")
        if choice != APPROVE_SIMILAR or not isinstance(rule, Mapping):
            return replace(self, answered=answered)
        match = rule.get("match")
        allowed = Rule(tool=str(rule["tool"]), decision=Ruling.ALLOW, match=Match(**match) if match else None)
        return replace(self, answered=answered, similar=(*self.similar, allowed))


def read_answer(closed: Interaction) -> tuple[str, str]:
    """The choice, and the reason of a denial. Whatever is no approval is a denial, and its text is the reason."""
    response = closed.response
    if closed.answered_by is not AnsweredBy.USER:
        return DENY, "Nobody has approved the call in time."
    offered = [option for option in closed.options if isinstance(option, Mapping)]
    text = response if isinstance(response, str) else json.dumps(response, ensure_ascii=False)
    for option in offered:
        names = (str(option["label"]).lower(), option["value"])
        if text.strip().lower() in names and option["value"] in (APPROVE, APPROVE_SIMILAR):
            return str(option["value"]), ""
    reason = re.sub(r"^deny\b[\s:,]*", "", text.strip(), flags=re.IGNORECASE)
    return DENY, reason[:_MAX_REASON] or "The user has denied the call."


def approval_question(call: ToolCall, explained: Explained, *, diff: str | None, shown_cwd: str) -> Question:
    """The question whether a call may run."""
    such = similar(call)
    options: list[Json] = [{"label": "Approve once", "value": APPROVE}]
    if such is not None:
        options.append({"label": "Approve such calls in this run", "value": APPROVE_SIMILAR})
    options.append({"label": "Deny", "value": DENY})
    context = {
        "tool": call.tool,
        "class": str(call.kind),
        "input": call.input,
        "cwd": call.cwd,
        "diff": diff,
        "digest": call.digest,
        "because": explained.reason,
        "similar": None if such is None else rule_json(such),
    }
    return Question(
        prompt=_prompt(call, explained, diff, shown_cwd),
        kind=APPROVAL,
        options=tuple(options),
        default=DENY,
        context=context,
        approval=True,
    )


def _prompt(call: ToolCall, explained: Explained, diff: str | None, shown_cwd: str) -> str:
    text = call.command if call.command is not None else diff
    if text is None:
        text = json.dumps(call.input, ensure_ascii=False, indent=1)
    shown = visible(text)
    cut = f"\n\n{len(shown) - _MAX_SHOWN:,} more characters are in `input`." if len(shown) > _MAX_SHOWN else ""
    odd = unusual_characters(text)
    note = f"\n\nIt has characters that may look like others: {odd}." if odd else ""
    parts = [
        f"May the engine make this call of its tool '{visible(call.tool)}'?",
        fenced(shown[:_MAX_SHOWN]) + cut + note,
    ]
    parts.append(f"In {visible(shown_cwd)}; asked because of {explained.reason}.")
    parts.append("A text instead of an option denies it, and the model gets the text as the reason.")
    return "\n\n".join(parts)


def fenced(text: str) -> str:
    """As a block of code in Markdown, which the text cannot end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def visible(text: str) -> str:
    """The text with every character that has no visible shape as `<U+…>`. Nothing is left out."""
    return "".join(char if _has_shape(char) else f"<U+{ord(char):04X}>" for char in text)


def _has_shape(char: str) -> bool:
    if char in "\n\t " or " " < char <= "~":
        return True
    # Separators and spaces, controls, formats, surrogates, private and unassigned ones, and marks on other characters.
    return unicodedata.category(char)[0] not in "ZCM" and char not in "\u115f\u1160\u3164\uffa0\u2800"


def unusual_characters(text: str) -> str:
    """The letters of other alphabets in words that have Latin letters as well, by name."""
    found: dict[str, str] = {}
    for word in re.findall(r"\w+", text):
        if re.search("[A-Za-z]", word):
            for char in word:
                if char > "~" and not unicodedata.name(char, "").startswith("LATIN"):
                    found[char] = f"{char} U+{ord(char):04X} {unicodedata.name(char, 'unnamed')}"
    return ", ".join(list(found.values())[:10])
