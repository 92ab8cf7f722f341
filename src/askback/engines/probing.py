"""For `read_probe`: what the calls printed, which version that names, and why a feature was not seen. Knows no program."""

from __future__ import annotations

import re
from collections.abc import Sequence

from askback.engines.base import CallResult
from askback.engines.json_lines import plain

_NUMBER = re.compile(r"(?<!\d)\d++(?:\.\d++)++\S*")


def printed_by(results: Sequence[CallResult], args: tuple[str, ...]) -> str:
    """What a call printed on stdout; nothing when it failed or did not end in time."""
    return next((result.stdout for result in results if result.args == args and result.exit_code == 0), "")


def printed_at_all(results: Sequence[CallResult], args: tuple[str, ...]) -> str:
    """What a call printed on either stream, without colours, for programs that print their help on stderr."""
    ended = (result for result in results if result.args == args and result.exit_code == 0)
    return plain("".join(result.stdout + result.stderr for result in ended))


def version_in(text: str) -> str | None:
    number = _NUMBER.search(text)
    return number[0] if number else None


def why_not(results: Sequence[CallResult], args: tuple[str, ...], wanted: str) -> str:
    """What was seen of a call that did not offer what was wanted."""
    called = next((result for result in results if result.args == args), None)
    if called is None or called.exit_code is None:
        return f"its {' '.join(args)} did not end in time"
    if called.exit_code:
        return f"its {' '.join(args)} ended with {called.exit_code}"
    return f"its {' '.join(args)} does not offer {wanted}"
