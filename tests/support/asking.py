"""A run that asks, as values only, and texts that try to break out of a message."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from askback.core.interactions import Interaction, Json
from askback.core.runs import Mode, Profile, ProfileKind, Run, RunOptions, RunState, SkillRef, TurnKind, TurnOrder

NOW = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)
LINK = "https://askback.example/answers/WyJydW4iLCJxIl0." + "s" * 43
HOSTILE = (
    "a\r\nBcc: everybody@example.org\r\n\r\n<script>alert(1)</script>",
    "<!channel> <@U024BE7LH> <https://evil.example|https://askback.example> & &lt;",
    "\u202egnp.exe \x1b[31m\x00 \ud800 \u2028 line\u0085",
    "'\"><img src=https://evil.example/pixel.png onerror=x>",
    "=?utf-8?q?evil?= " * 20,
    '"' * 5000,
    "ë𝕏" * 3000,
    "",
)
TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(), max_size=300))


def asking(
    prompt: str,
    options: list[Json],
    skill: str = "tested",
    kind: str = "text",
    *,
    context: Json = None,
    summary: str | None = None,
) -> Run:
    asked = Interaction(
        interaction_id="q",
        kind=kind,
        prompt=prompt,
        attempt_number=1,
        asked_at=NOW,
        options=tuple(options),
        context=context,
    )
    return Run(
        id="1m7gekfsksrgk77s",
        state=RunState.WAITING_USER,
        skill=SkillRef(id=skill, version=None, digest="d"),
        engine="scripted",
        mode=Mode.INTERACTIVE,
        profile=Profile(kind=ProfileKind.RESUMABLE, reason="", session_timeout_sec=60),
        options=RunOptions(),
        next_turn=TurnOrder(kind=TurnKind.START, attempt_number=1),
        created_at=NOW,
        updated_at=NOW,
        pending_interaction=asked,
        summary=summary,
        wait_deadline_at=NOW + timedelta(hours=2),
    )
