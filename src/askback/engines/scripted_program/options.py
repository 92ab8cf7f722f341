"""The program's command line. Read by hand: `argparse` would take a quarter of the program's start."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = "scripted 1.0.0"
HELP = """\
usage: scripted [options] < PROMPT
       scripted --stay [options]

Plays a script in place of a coding agent and prints what it does as JSON lines.

  --script=FILE          the script to play; given twice, the later one counts
  --default-script=FILE  the script to play if there is no --script and the file exists
  --mode=MODE            auto or interactive: which part of a turn is played
  --model=NAME           written down in the session, without effect
  --resume=SESSION_ID    go on with a session
  --stay                 take one prompt after the other as JSON lines, in one session
  --no-resume            be a version that cannot go on with a session
  --version, --help
"""

_NAMES = ("script", "default-script", "mode", "model", "resume")
_FLAGS = ("stay", "no-resume")


class UsageError(Exception):
    """The command line cannot be taken."""


def read_options(argv: Sequence[str]) -> dict[str, str]:
    """The options by name. `--name value` and `--name=value` mean the same; a later one replaces an earlier one."""
    options: dict[str, str] = {}
    words = iter(argv)
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and name in _FLAGS and not equals:
            options[name] = "yes"
            continue
        if not word.startswith("--") or name not in _NAMES:
            raise UsageError(f"unknown argument {word!r}; the prompt is read from standard input")
        if not equals:
            value = next(words, "")
        if not value:
            raise UsageError(f"--{name} needs a value")
        options[name] = value
    if "resume" in options and "no-resume" in options:
        raise UsageError("unknown argument '--resume': this version cannot go on with a session")
    return options


def help_text(argv: Sequence[str]) -> str:
    """What the version offers, as the command line makes it one."""
    if "--no-resume" not in argv:
        return HELP
    return "".join(line for line in HELP.splitlines(keepends=True) if "resume" not in line)
