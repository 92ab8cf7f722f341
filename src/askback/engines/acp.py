"""Engines that are data: programs that speak the Agent Client Protocol, each described by a preset.

A file `NAME.toml` of this package is the preset of the engine `NAME`; the settings and third parties make others. Every turn
is a conversation: a run that can be resumed gets a new process for each of them, which continues the session. A program
counts as resumable only if that was proven, by our tests or by `askback engines check`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from askback.core.runs import ProfileKind
from askback.engines.base import CallResult, Engine, Launch, Parser, Probe, Turn, session_of
from askback.engines.launches import SERVER, command_and_args
from askback.engines.protocols.acp import AcpConversation
from askback.engines.protocols.acp_session import AcpModels, Handshake, continuation
from askback.engines.protocols.acp_turn import Dialect
from askback.engines.protocols.json_lines import decode_line, object_at, text_at

_ANY_ID = re.compile(r"[A-Za-z0-9][\w.:-]{0,199}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """What Askback has to know of a program before it starts it. Everything else is in its answer to `initialize`."""

    command: tuple[str, ...]
    title: str = ""
    install_command: str = ""
    sign_in: str = ""
    """How to sign in, shown to users."""
    sign_in_command: str = ""
    keys: tuple[str, ...] = ()
    """Variables with a key of the model provider: with one of them, the program is signed in."""
    env_allow: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables for every start, unless the user has set them."""
    config_names: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    auth_method: str | None = None
    mode: str = "yolo"
    options: Mapping[str, str] = field(default_factory=dict)
    effort: bool = False
    """Whether its sessions have an option for how much the model reasons."""
    ask_tool: bool = True
    """Whether it passes the tools of an MCP server in `session/new` to the model."""
    resume: str = "auto"
    counts: Literal["turn", "process", "session"] = "turn"
    notices: tuple[str, ...] = ()
    """Regular expressions of the messages of the program itself about a request that failed."""
    retrying: tuple[str, ...] = ()
    proven: Mapping[str, Any] = field(default_factory=dict)
    """What our tests have shown with the real program: `version`, `date`, and `how` it resumes."""


def preset_of(values: Mapping[str, Any]) -> Preset:
    """The preset in a data file. Raises `ValueError` for a name that it cannot have."""
    known = {each.name for each in fields(Preset)}
    if unknown := sorted(values.keys() - known):
        raise ValueError(f"a preset has no {', '.join(unknown)}; it has: {', '.join(sorted(known))}")
    if "command" not in values:
        raise ValueError("a preset needs the command that starts the program")
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return Preset(**given)


class AcpEngine(Engine):
    converses = True
    profiles = frozenset({ProfileKind.RESUMABLE, ProfileKind.STICKY_PROCESS})
    handle_pattern = _ANY_ID
    # The user names it, in a run or as `default_engine`.
    chosen_by_default = False

    def __init__(self, name: str, preset: Preset) -> None:
        self.name = name
        self.preset = preset
        self.title = preset.title or name
        self.default_command = preset.command
        self.install_command = preset.install_command
        self.install = f"install it with: {preset.install_command}" if preset.install_command else "install it"
        self.sign_in = preset.sign_in or "sign in as its own documentation says"
        self.sign_in_command = preset.sign_in_command
        self.env_allow = (*preset.keys, *preset.env_allow)
        self.env = preset.env
        self.config_names = preset.config_names
        self.credentials = preset.credentials
        self.caches = preset.caches
        self.takes_ask_tool = preset.ask_tool

    def signed_in(self, files: Collection[str], env: Collection[str]) -> bool | None:
        """The program may also have the sign-in elsewhere, such as in a keyring."""
        return True if files or any(key in env for key in self.preset.keys) else None

    # The probe asks the program for its version and abilities in the protocol itself.

    @property
    def probe_input(self) -> bytes:
        return Handshake(cwd="/", dialect=Dialect()).begin().data

    def ends_probe(self, line: bytes) -> bool:
        return bool({"result", "error"} & (decode_line(line) or {}).keys())

    def probe_calls(self) -> Sequence[tuple[str, ...]]:
        return ((),)

    def read_probe(self, results: Sequence[CallResult]) -> Probe:
        lines = (decode_line(line.encode()) for line in results[0].stdout.splitlines())
        answer = next((object_at(each, "result") for each in lines if each and "result" in each), None)
        if answer is None:
            reason = "it did not answer as a program that speaks the Agent Client Protocol"
            return Probe(kind=ProfileKind.STICKY_PROCESS, reason=reason)
        version = text_at(answer, "agentInfo", "version") or text_at(answer, "_meta", "agentVersion") or None
        effort = tuple(sorted(self.profiles)) if self.preset.effort else ()
        way = continuation(answer, self.preset.resume)
        if way is None:
            reason = "it offers no way to continue a session"
        elif not self.preset.proven:
            reason = f"it offers {way}; whether that works is not proven: askback engines check {self.name}"
        else:
            tested = f"{self.preset.proven['version']} on {self.preset.proven['date']}"
            reason = f"it offers {way}, which was tested with version {tested}"
        proven = way is not None and bool(self.preset.proven)
        return Probe(
            kind=ProfileKind.RESUMABLE if proven else ProfileKind.STICKY_PROCESS,
            reason=reason,
            offers=way,
            version=version,
            resident=True,
            effort=effort,
        )

    # A turn.

    def launch(self, turn: Turn) -> Launch:
        if turn.handle is not None:
            session_of(self, turn.handle)
        return Launch(argv=(*turn.command, *turn.extra_args))

    def launch_resident(self, turn: Turn) -> Launch:
        return self.launch(turn)

    def parser(self, turn: Turn) -> Parser:
        raise NotImplementedError

    def conversation(self, turn: Turn) -> AcpConversation:
        handle = turn.handle
        return AcpConversation(
            cwd=turn.cwd,
            dialect=self._dialect(turn),
            may_ask=turn.may_ask,
            session="" if handle is None else session_of(self, handle),
            turns=0 if handle is None else turn.attempt_number - handle.created_at_turn,
            servers=[{"name": SERVER, **command_and_args(turn), "env": []}] if turn.ask_tool else (),
        )

    def model_query(self, turn: Turn) -> AcpModels:
        return AcpModels(cwd=turn.cwd, dialect=self._dialect(turn))

    def _dialect(self, turn: Turn) -> Dialect:
        preset = self.preset
        return Dialect(
            sign_in=preset.auth_method,
            mode=preset.mode,
            options=preset.options,
            model=turn.model,
            effort=turn.effort,
            resume=preset.resume,
            counts=preset.counts,
            must_answer=True,
            notices=re.compile("|".join(preset.notices)) if preset.notices else None,
            retrying=preset.retrying,
        )
