"""The real codex with a double for its model, where it is installed: it asks once, and finishes with the answer."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REAL = Path(__file__).resolve().parents[2] / "real"
REPLY = re.compile(r"<user_reply [^>]*>\n(.*?)\n</user_reply>", re.DOTALL)


@contextmanager
def in_reach(folder: Path) -> Iterator[str]:
    """The settings that lead to it; none where it is not installed."""
    sys.path.append(str(REAL))
    from clis import NotInstalled
    from double import ModelDouble, Request, Step, always, say
    from engines_under_test import ENGINES
    from suite import finish, question

    def play(request: Request) -> Step:
        """By what the conversation holds alone, for a request may come again after a kill."""
        replies = REPLY.findall("\n".join(request.user_texts))
        return say(finish(replies[-1]) if replies else question("Question 0?", "q0"))

    engine = ENGINES["codex"]
    try:
        command = engine.find()
    except NotInstalled as missing:
        print(f"without codex: {missing}", file=sys.stderr)
        yield ""
        return
    with ModelDouble() as double:
        double.play(always(play))
        settings = engine.settings(command, double.url, folder / "codex-home")
        yield settings.replace("env = { ", 'env = { STORM = "THE_MARK", ', 1)
