"""Which tool calls of an engine run at once, which need the approval of a person, and which never run. Pure.

A policy is a list of rules, of which the first that matches decides, and a default. A run may have policies of several
sources; the most restrictive decision of all of them holds, so no source can allow what another one forbids.

A rule that restricts matches what it might mean, a rule that allows only what it surely means.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from askback.core.errors import FieldProblem
from askback.core.shell_commands import Command, CommandLine, Word, program_name, read_command_line

MAX_RULES = 200
MAX_TEXT = 1_000
"""Characters of a text in a rule."""


class Ruling(StrEnum):
    """What happens to a call. From the least to the most restrictive."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"

    @property
    def severity(self) -> int:
        return list(Ruling).index(self)


class GateKind(StrEnum):
    """How a call waits for an approval."""

    PARK = "park"
    """The call itself waits, without a process, and is made when the session is resumed."""
    HOLD = "hold"
    """The call waits in a process that stays."""
    REPEAT = "repeat"
    """The call is denied, and allowed once when the model repeats it."""
    NONE = "none"
    """The engine cannot ask: its runs can have no `permissions`."""


class ToolClass(StrEnum):
    """What a tool does, whatever the engine calls it."""

    SHELL = "shell"
    EDIT = "edit"
    READ = "read"
    FETCH = "fetch"
    MCP = "mcp"
    OTHER = "other"


class PolicySource(StrEnum):
    """Where a policy comes from, the most trusted first."""

    SETTINGS = "settings"
    TOKEN = "token"
    RUN = "run"
    SKILL = "skill"


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Of the calls of a tool, those that a rule is about. At most one of these is set.

    `command` has the words of a command. `path` is `inside` or `outside` (of the folder that the engine works in), or a
    pattern. `host` and `mcp` (`server/tool`) are patterns.
    """

    command: str | None = None
    path: str | None = None
    host: str | None = None
    mcp: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`tool` is a `ToolClass`, the engine's own name of a tool, or `*`."""

    tool: str
    decision: Ruling
    match: Match | None = None

    def __str__(self) -> str:
        matched = "" if self.match is None else next(filter(None, _values(self.match).values()), "")
        return " ".join(filter(None, (self.tool, matched)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The first rule that matches decides, else the default."""

    rules: tuple[Rule, ...] = ()
    default: Ruling = Ruling.ASK


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedPolicy:
    source: PolicySource
    policy: Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class PathUse:
    """A file that a call uses. `path` is absolute and without links; None if it is not known."""

    path: str | None
    writes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call as its engine is about to execute it. `root` is the folder that the engine works in, without links."""

    tool: str
    kind: ToolClass
    input: Any
    cwd: str
    root: str
    command: str | None = None
    paths: tuple[PathUse, ...] = ()
    host: str | None = None
    mcp: str | None = None
    file_digest: str | None = None
    """Of the file that it changes, as it is now."""

    @property
    def digest(self) -> str:
        """Equal for calls with the same tool, input and folder, which change the same file."""
        # Not sorted: the engine executes the input as it is.
        identity = [self.tool, self.input, self.cwd, self.file_digest]
        text = json.dumps(identity, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A decision, with the rule that made it; None: the default of the policy."""

    decision: Ruling
    rule: Rule | None
    source: PolicySource | None = None
    about: str | None = None
    """The part of the call that the rule is about: a command or a path."""

    @property
    def reason(self) -> str:
        by = "the default" if self.rule is None else f"the rule '{self.rule}'"
        return f"{by} of the policy of the {self.source}" if self.source else by


# Evaluation.


def evaluate(policies: Sequence[SourcedPolicy], call: ToolCall) -> Explained:
    """The most restrictive decision of all policies; without any, every call is allowed."""
    parts = tuple(_parts(call))
    strictest = Explained(decision=Ruling.ALLOW, rule=None)
    for each in policies:
        for part in parts:
            found = _first(each.policy, part)
            if strictest.source is None or found.decision.severity > strictest.decision.severity:
                strictest = Explained(
                    decision=found.decision, rule=found.rule, source=each.source, about=found.about or part.about
                )
    return strictest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One of the things that a call does. A shell call does several: its commands, and the files that it opens."""

    tool: str
    kind: ToolClass
    also: ToolClass | None = None
    """The class of the call, if a rule without `match` about it is about this part as well."""
    command: Command | None = None
    understood: bool = True
    text: str = ""
    """The whole command line."""
    path: PathUse | None = None
    host: str | None = None
    mcp: str | None = None
    root: str = ""

    @property
    def about(self) -> str | None:
        if self.command is not None:
            return " ".join("…" if word is None else word for word in self.command.words)
        return None if self.path is None else self.path.path


def _parts(call: ToolCall) -> Iterator[_Part]:
    if call.kind is ToolClass.SHELL:
        yield from _shell_parts(call, read_command_line(call.command or ""))
    elif call.kind in (ToolClass.EDIT, ToolClass.READ):
        unknown = PathUse(path=None, writes=call.kind is ToolClass.EDIT)
        for path in call.paths or (unknown,):
            kind = ToolClass.EDIT if path.writes else call.kind
            yield _Part(tool=call.tool, kind=kind, path=path, root=call.root)
    else:
        yield _Part(tool=call.tool, kind=call.kind, host=call.host, mcp=call.mcp, root=call.root)


def _shell_parts(call: ToolCall, line: CommandLine) -> Iterator[_Part]:
    text, known = call.command or "", line.understood and bool(line.commands)
    for command in line.commands:
        yield _Part(tool=call.tool, kind=call.kind, command=command, understood=known, text=text)
    if not known:
        yield _Part(tool=call.tool, kind=call.kind, understood=False, text=text)
    moves = any(command.program in ("cd", "pushd", "popd") for command in line.commands) or not known
    for opened in line.redirections:
        path = None if opened.path is None or (moves and not opened.path.startswith("/")) else opened.path
        if path in ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"):
            continue
        use = PathUse(path=None if path is None else _absolute(path, call), writes=opened.writes)
        kind = ToolClass.EDIT if opened.writes else ToolClass.READ
        yield _Part(tool=call.tool, kind=kind, also=ToolClass.SHELL, understood=known, path=use, root=call.root)


def _absolute(path: str, call: ToolCall) -> str | None:
    """The caller resolves links of `call.paths` only, so a redirection into a link counts as inside if its name is."""
    parts: list[str] = []
    for part in (path if path.startswith("/") else f"{call.cwd}/{path}").split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def _first(policy: Policy, part: _Part) -> Explained:
    for rule in policy.rules:
        if _matches(rule, part):
            return Explained(decision=rule.decision, rule=rule)
    return Explained(decision=policy.default, rule=None)


def _matches(rule: Rule, part: _Part) -> bool:
    match = rule.match
    allows = rule.decision is Ruling.ALLOW
    if rule.tool not in ("*", part.tool, part.kind) and (match is not None or rule.tool != part.also):
        return False
    if match is None:
        return part.understood or not allows
    if match.command is not None:
        return part.kind is ToolClass.SHELL and _matches_command(match.command.split(), part, allows=allows)
    if match.path is not None:
        return part.path is not None and _matches_path(match.path, part.path.path, part.root, allows=allows)
    if match.host is not None:
        # A call of which the host is not known might go anywhere.
        known = part.kind is ToolClass.FETCH and part.host is None and not allows
        return known or (part.host is not None and fnmatch.fnmatchcase(part.host.lower(), match.host.lower()))
    return part.mcp is not None and match.mcp is not None and fnmatch.fnmatchcase(part.mcp, match.mcp)


def _matches_command(wanted: Sequence[str], part: _Part, *, allows: bool) -> bool:
    if allows:
        return part.understood and part.command is not None and _surely(wanted, part.command)
    if not part.understood and _mentions(part.text, wanted):
        return True
    return part.command is not None and _perhaps(wanted, part.command)


def _surely(wanted: Sequence[str], command: Command) -> bool:
    words = command.words if command.exact else command.words[: len(wanted)]
    return tuple(wanted) == words


def _perhaps(wanted: Sequence[str], command: Command) -> bool:
    """Whether it may be the wanted command, with other options and arguments in between."""
    words = command.words
    starts = range(len(words)) if command.exact else (0,)
    return any(_runs(wanted[0], words[at]) and _has(wanted[1:], words[at + 1 :]) for at in starts) or (
        # The code of an interpreter is one word.
        command.exact and any(word is not None and _mentions(word, wanted) for word in words[1:])
    )


def _runs(wanted: str, word: Word) -> bool:
    return word is None or word == wanted or program_name(word) == program_name(wanted)


def _has(wanted: Sequence[str], words: Sequence[Word]) -> bool:
    """Whether the words have the wanted ones in this order. An unknown word can be one if it is the next that is no option's."""
    left, open_place = list(wanted), True
    for at, word in enumerate(words):
        if not left:
            break
        after_option = at > 0 and (words[at - 1] or "-").startswith("-")
        if word == left[0] or (word is None and open_place):
            left.pop(0)
        elif word is not None and not word.startswith("-") and not after_option:
            open_place = False
    return not left


def _mentions(text: str, wanted: Sequence[str]) -> bool:
    """Whether a text has the words in this order, however they are joined."""
    return re.search(".*?".join(re.escape(word) for word in wanted), text, re.DOTALL | re.IGNORECASE) is not None


def _matches_path(wanted: str, path: str | None, root: str, *, allows: bool) -> bool:
    if path is None:
        return not allows
    inside = path == root or path.startswith(f"{root.rstrip('/')}/")
    if wanted in ("inside", "outside"):
        return inside == (wanted == "inside")
    if not wanted.startswith("/"):
        path, inside_only = path[len(root.rstrip("/")) + 1 :], True
    else:
        inside_only = False
    return (inside or not inside_only) and fnmatch.fnmatchcase(path, wanted)


def similar(call: ToolCall) -> Rule | None:
    """What such calls of a run have in common: the same command, file, host or tool. None if that says too little."""
    match call.kind:
        case ToolClass.SHELL:
            return Rule(tool=call.tool, decision=Ruling.ALLOW, match=Match(command=call.command))
        case ToolClass.EDIT | ToolClass.READ if len(call.paths) == 1 and call.paths[0].path:
            return Rule(tool=call.tool, decision=Ruling.ALLOW, match=Match(path=_literal(call.paths[0].path)))
        case ToolClass.FETCH if call.host:
            return Rule(tool=call.tool, decision=Ruling.ALLOW, match=Match(host=_literal(call.host)))
        case ToolClass.MCP:
            return Rule(tool=call.tool, decision=Ruling.ALLOW)
        case _:
            return None


def _literal(text: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", text)


# Policies as JSON.

READY: Mapping[str, Policy]
"""Policies by name."""


def _rule(tool: str, decision: Ruling, **match: str) -> Rule:
    return Rule(tool=tool, decision=decision, match=Match(**match) if match else None)


# Tools of the engines themselves: notes, plans, and agents, of which each call is decided as well.
_INNER = tuple(
    _rule(name, Ruling.ALLOW)
    for name in (
        *("Task", "Agent", "TodoWrite", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "TaskStop", "ToolSearch"),
        *("update_plan", "todo_write", "write_todos", "todowrite", "todoread", "save_memory", "task", "agent"),
    )
)
READY = {
    # Ask before anything leaves this folder or this machine.
    "careful": Policy(
        rules=(
            _rule("read", Ruling.ALLOW, path="inside"),
            _rule("edit", Ruling.ALLOW, path="inside"),
            *(_rule("shell", Ruling.ALLOW, command=command) for command in ("pwd", "true", "ls")),
            *_INNER,
        ),
        default=Ruling.ASK,
    ),
    # Nothing is changed, and nothing is run.
    "read-only": Policy(rules=(_rule("read", Ruling.ALLOW, path="inside"), *_INNER), default=Ruling.DENY),
    # The folder belongs to the run; nothing leaves it without a yes, and nothing outside of it is changed.
    "workspace": Policy(
        rules=(
            _rule("edit", Ruling.ALLOW, path="inside"),
            _rule("edit", Ruling.DENY),
            _rule("read", Ruling.ALLOW, path="inside"),
            _rule("fetch", Ruling.DENY),
            *_INNER,
        ),
        default=Ruling.ASK,
    ),
}

PolicyValue = str | Mapping[str, Any] | None


def read_policy(value: Any, where: str) -> tuple[Policy | None, tuple[FieldProblem, ...]]:
    """A policy from its name or its JSON. With problems, it must not be used."""
    if value is None:
        return None, ()
    if isinstance(value, str):
        if value in READY:
            return READY[value], ()
        known = ", ".join(READY)
        return None, (FieldProblem.at((where,), f"there is no policy {value[:80]!r}; known: {known}"),)
    reading = _Reading(where)
    return reading.policy(value), tuple(reading.problems)


class _Reading:
    def __init__(self, where: str) -> None:
        self._where = where
        self.problems: list[FieldProblem] = []

    def _wrong(self, path: Sequence[str | int], message: str) -> None:
        self.problems.append(FieldProblem.at((self._where, *path), message))

    def policy(self, value: Any) -> Policy:
        given = self._object(value, (), ("rules", "default"))
        rules = given.get("rules", [])
        if not isinstance(rules, list | tuple) or len(rules) > MAX_RULES:
            self._wrong(("rules",), f"is not a list of at most {MAX_RULES} rules")
            rules = []
        default = self._ruling(given.get("default", Ruling.ASK), ("default",))
        return Policy(rules=tuple(self._rule(rule, ("rules", at)) for at, rule in enumerate(rules)), default=default)

    def _rule(self, value: Any, path: Sequence[str | int]) -> Rule:
        given = self._object(value, path, ("tool", "match", "decision"))
        tool = given.get("tool")
        if not isinstance(tool, str) or not 0 < len(tool) <= MAX_TEXT:
            self._wrong((*path, "tool"), f"must be one of {', '.join(ToolClass)}, the name of a tool, or *")
        decision = self._ruling(given.get("decision"), (*path, "decision"))
        match = self._match(given["match"], (*path, "match"), str(tool)) if given.get("match") is not None else None
        return Rule(tool=str(tool), decision=decision, match=match)

    def _match(self, value: Any, path: Sequence[str | int], tool: str) -> Match:
        known = tuple(Match.__slots__)
        given = self._object(value, path, known)
        if len(given) != 1:
            self._wrong(path, f"must have exactly one of {', '.join(known)}")
        for name, text in given.items():
            if not isinstance(text, str) or not 0 < len(text.strip()) <= MAX_TEXT:
                self._wrong((*path, name), f"must be a text of at most {MAX_TEXT} characters")
            elif tool in set(ToolClass) and name not in _FITTING.get(tool, ()):
                self._wrong((*path, name), f"never matches a call of the class {tool}")
            elif name == "command" and re.search(r"[;&|<>$`'\"\\*?(){}\n]", text):
                self._wrong((*path, name), "must be the plain words of one command, such as `git push`")
        return Match(**{name: text for name, text in given.items() if name in known and isinstance(text, str)})

    def _ruling(self, value: Any, path: Sequence[str | int]) -> Ruling:
        if isinstance(value, str) and value in set(Ruling):
            return Ruling(value)
        self._wrong(path, f"must be one of {', '.join(Ruling)}")
        return Ruling.DENY

    def _object(self, value: Any, path: Sequence[str | int], known: Sequence[str]) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            self._wrong(
                path, f"must be an object with {', '.join(known)}" + ("" if path else ", or the name of a policy")
            )
            return {}
        for name in value:
            if name not in known:
                self._wrong((*path, str(name)[:80]), f"is unknown; known: {', '.join(known)}")
        return {name: each for name, each in value.items() if name in known}


_FITTING: Mapping[str, tuple[str, ...]] = {
    ToolClass.SHELL: ("command",),
    ToolClass.EDIT: ("path",),
    ToolClass.READ: ("path",),
    ToolClass.FETCH: ("host",),
    ToolClass.MCP: ("mcp",),
}


def policy_json(policy: Policy) -> dict[str, Any]:
    """As `read_policy` reads it."""
    return {"rules": [rule_json(rule) for rule in policy.rules], "default": str(policy.default)}


def rule_json(rule: Rule) -> dict[str, Any]:
    match = {} if rule.match is None else {"match": _values(rule.match)}
    return {"tool": rule.tool, **match, "decision": str(rule.decision)}


def _values(match: Match) -> dict[str, str]:
    return {name: value for name in Match.__slots__ if (value := getattr(match, name)) is not None}


def host_of(url: str) -> str | None:
    """The host of a URL as HTTP clients read it; None if it is not surely known."""
    found = re.match(r"https?://([A-Za-z0-9.-]+)(?::\d+)?(?:[/?#]|$)", url)
    return None if found is None else found[1].lower().rstrip(".")
