"""The simple commands in a shell command line, as far as they can be known without running it. Pure.

Reading is conservative: what is not surely understood is marked, so that no rule allows it. A word is None if its text is only
known at run time (`$X`, `$(…)`, `*.py`).
"""

# Lists of words would take pages.
# ruff: noqa: SIM905
from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

Word = str | None
MAX_CHARACTERS = 100_000
"""A longer command line is not read."""
_MAX_DEPTH = 8

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "rbash", "busybox"})
_RUNNERS = frozenset(
    "env sudo doas nohup nice ionice timeout time command exec builtin xargs setsid stdbuf watch parallel find fd "
    "busybox script unshare nsenter chroot su runuser flock strace ltrace gdb entr npx bunx uvx pipx ssh docker "
    "podman kubectl systemd-run taskset chrt at batch make just python python3 perl ruby node bun deno php lua "
    "awk gawk sed vim vi ed tclsh expect osascript powershell pwsh git-shell tmux screen dbus-run-session "
    "firejail bwrap".split()
)
"""Programs that run a command, or code, which is in their arguments. A rule that allows them allows only the exact words."""
_OPAQUE = frozenset(
    "eval source . trap alias unalias function coproc hash enable bind complete for case select [[ declare "
    "typeset local export readonly set shopt unset mapfile readarray".split()
)
"""Words that change what later words mean, or that run a text."""
_RESERVED = frozenset({"if", "then", "else", "elif", "fi", "do", "done", "while", "until", "{", "}", "!", "time"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=")
_DESCRIPTOR = re.compile(r"\d+|\{[A-Za-z_]\w*\}")
_OPERATORS = ("&&", "||", ";;", "|&", ";", "&", "|", "\n", "(", ")")
_REDIRECTIONS = ("<<<", "&>>", "<<-", ">>", "<<", "<>", ">|", ">&", "<&", "&>", ">", "<")
_PATTERN = frozenset("*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program with its arguments. `exact`: only a rule with all of its words may allow it."""

    words: tuple[Word, ...]
    exact: bool = False

    @property
    def program(self) -> Word:
        return self.words[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirection:
    """A file that the shell itself opens. `path` is None if it is only known at run time."""

    path: Word
    writes: bool


@dataclass(slots=True)
class CommandLine:
    """What was read. Not `understood`: there may be other commands, and these may mean something else."""

    commands: list[Command] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)
    understood: bool = True


def read_command_line(text: str) -> CommandLine:
    line = CommandLine()
    _read(text, line, depth=0)
    return line


def _read(text: str, line: CommandLine, depth: int) -> None:
    if depth > _MAX_DEPTH or len(text) > MAX_CHARACTERS:
        line.understood = False
        return
    try:
        reader = _Reader(text, line, depth)
        reader.read()
    except _NotUnderstood:
        line.understood = False
        return
    for words in reader.simple:
        _add(words, line, depth)


class _NotUnderstood(Exception):
    pass


def _add(words: Sequence[Word], line: CommandLine, depth: int) -> None:
    """Add a simple command, with the commands that it is known to run."""
    words = list(words)
    while words and words[0] in _RESERVED:
        words.pop(0)
    while words and words[0] is not None and _ASSIGNMENT.match(words[0]):
        # A variable such as PATH or LD_PRELOAD changes what a command does.
        words.pop(0)
        line.understood = False
    if not words:
        return
    program = words[0]
    if program is None or program in _OPAQUE or not program:
        line.understood = False
        line.commands.append(Command(words=tuple(words), exact=True))
        return
    name = program_name(program)
    runs = name in _RUNNERS or name in _SHELLS
    # These add words that they read.
    added = (None,) if name in ("xargs", "parallel") else ()
    line.commands.append(Command(words=(*words, *added), exact=runs))
    if name in _SHELLS:
        _add_script(words, line, depth)
    elif runs:
        # `env A=b git push`, `sudo -u x sh -c …`: each later word may be the program.
        for start in range(1, len(words)):
            inner = words[start]
            if inner is not None and program_name(inner) in _SHELLS:
                _add_script(words[start:], line, depth)


def _add_script(words: Sequence[Word], line: CommandLine, depth: int) -> None:
    """The script after `-c`. A shell without one reads a file or its input, which is unknown."""
    options = [at for at, word in enumerate(words) if at and word is not None and re.fullmatch(r"[-+][a-zA-Z]*c", word)]
    following = [word for at, word in enumerate(words) if options and at > options[0]]
    script = next((word for word in following if word is None or not word.startswith(("-", "+"))), None)
    if script is None:
        line.understood = False
    else:
        _read(script, line, depth + 1)


def program_name(word: str) -> str:
    """Without its folder, in lower case: some file systems ignore the case."""
    return word.rsplit("/", 1)[-1].lower()


class _Reader:
    """Splits a text into the words of its simple commands. Raises `_NotUnderstood`."""

    def __init__(self, text: str, line: CommandLine, depth: int) -> None:
        self._text = text
        self._line = line
        self._depth = depth
        self._at = 0
        self.simple: list[list[Word]] = []
        self._words: list[Word] = []

    def read(self) -> None:
        if any((char < " " and char not in "\t\n") or (char > "~" and char.isspace()) for char in self._text):
            raise _NotUnderstood
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t":
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif char == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif (redirection := self._starting(_REDIRECTIONS)) is not None and not self._is_substitution():
                self._redirect(redirection)
            elif (operator := self._starting(_OPERATORS)) is not None:
                self._at += len(operator)
                # `name()` defines a function.
                if operator == "(" and self._words:
                    raise _NotUnderstood
                self._end_command()
            else:
                self._take_word()
        self._end_command()

    def _starting(self, signs: Sequence[str]) -> str | None:
        return next((sign for sign in signs if self._text.startswith(sign, self._at)), None)

    def _is_substitution(self) -> bool:
        return self._text.startswith(("<(", ">("), self._at)

    def _end_command(self) -> None:
        if self._words:
            self.simple.append(self._words)
            self._words = []

    def _take_word(self) -> None:
        word = self._word()
        following = self._text[self._at : self._at + 1]
        if following in ("<", ">") and following and word is not None and _DESCRIPTOR.fullmatch(word):
            return
        self._words.append(word)

    def _redirect(self, sign: str) -> None:
        self._at += len(sign)
        if sign in ("<<", "<<-"):
            # The text of a here-document may have commands, and its end has other rules.
            raise _NotUnderstood
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1
        if self._at >= len(self._text) or self._text[self._at] in "\n;&|()<>":
            raise _NotUnderstood
        target = self._word()
        if sign == "<<<" or (sign in (">&", "<&") and target is not None and re.fullmatch(r"\d+|-", target)):
            return
        self._line.redirections.append(Redirection(path=target, writes=sign != "<" and sign != "<&"))

    def _word(self) -> Word:
        """The next word; None if it is only known at run time."""
        parts: list[str] = []
        known, start = True, self._at
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t\n;&|()<>" and not self._is_substitution():
                break
            if self._is_substitution():
                self._at += 1
                self._substitute()
                known = False
            elif char == "'":
                parts.append(self._until("'"))
            elif char == '"':
                known = self._double_quoted(parts) and known
            elif char == "\\":
                if not self._text.startswith("\\\n", self._at):
                    parts.append(self._text[self._at + 1 : self._at + 2])
                self._at += 2
            elif char in "$`":
                self._expand()
                known = False
            else:
                is_test = char == "[" and self._at == start and self._text[self._at + 1 : self._at + 2] in (" ", "\t")
                known = known and (is_test or char not in _PATTERN) and not (char == "~" and self._at == start)
                parts.append(char)
                self._at += 1
        word = "".join(parts)
        # Braces that are quoted are taken for a list as well.
        return word if known and not re.search(r"\{[^}]*(,|\.\.)", word) else None

    def _until(self, quote: str) -> str:
        end = self._text.find(quote, self._at + 1)
        if end < 0:
            raise _NotUnderstood
        text, self._at = self._text[self._at + 1 : end], end + 1
        return text

    def _double_quoted(self, parts: list[str]) -> bool:
        """Whether the text is known."""
        known = True
        self._at += 1
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"':
                self._at += 1
                return known
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in ("\\", '"', "$", "`", "\n"):
                parts.append(self._text[self._at + 1].replace("\n", ""))
                self._at += 2
            elif char in "$`":
                self._expand()
                known = False
            else:
                parts.append(char)
                self._at += 1
        raise _NotUnderstood

    def _expand(self) -> None:
        """Skip an expansion, and read the commands in it."""
        if self._text[self._at] == "`":
            text = self._until("`")
            if "\\" in text:
                raise _NotUnderstood
            _read(text, self._line, self._depth + 1)
            return
        if self._text.startswith(("$((", "$'", '$"'), self._at):
            raise _NotUnderstood
        self._at += 1
        if self._text.startswith("(", self._at):
            self._substitute()
        elif self._text.startswith("{", self._at):
            inner = self._until("}")
            if not re.fullmatch(r"[#!]?\w+[-:+=?%/#^,.\w]*", inner):
                raise _NotUnderstood
        else:
            named = re.compile(r"\w+|[@*#?$!-]").match(self._text, self._at)
            self._at = self._at if named is None else named.end()

    def _substitute(self) -> None:
        """Read the commands between parentheses, which may contain quotes and further parentheses."""
        inner = _Reader(self._text[self._at + 1 :], self._line, self._depth + 1)
        text = inner.until_closed()
        self._at += len(text) + 2
        _read(text, self._line, self._depth + 1)

    def until_closed(self) -> str:
        """The text up to the parenthesis that closes it."""
        open_ones = 0
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "'":
                self._until("'")
                continue
            if char == '"':
                self._double_quoted([])
                continue
            if char == "`" or self._text.startswith("$'", self._at):
                raise _NotUnderstood
            if char == "#" and (self._at == 0 or self._text[self._at - 1] in " \t\n;"):
                raise _NotUnderstood
            if char == "\\":
                self._at += 1
            elif char == "(":
                open_ones += 1
            elif char == ")":
                if not open_ones:
                    return self._text[: self._at]
                open_ones -= 1
            self._at += 1
        raise _NotUnderstood
