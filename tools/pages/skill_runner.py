"""The table of fields in docs/guides/coming-from-skill-runner.md."""

from __future__ import annotations

from askback.skills.skill_runner import RULES
from pages.markdown import code, table

START, END = "<!-- fields -->\n", "<!-- /fields -->\n"


def with_table(page: str) -> str:
    """The page with the table in its place."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    rows = [(rule.file, code(rule.field), "yes" if rule.honoured else "no", rule.meaning) for rule in RULES]
    return (
        before
        + START
        + table(("file", "field", "honoured", "what it does here, or why it is ignored"), rows)
        + END
        + after
    )
