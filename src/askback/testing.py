"""The test suite of an engine. Subclass `EngineContract` in a test module, and pytest runs its tests for your engine:

    class TestParrot(EngineContract):
        engine = Parrot()
        session = "parrot-0123456789abcdef0123456789abcdef"
        probes: ClassVar = {("--help",): "usage: parrot [--resume ID]"}
        recordings = Path(__file__).parent / "recordings"

        def is_success(self, line: bytes) -> bool:
            return b'"end"' in line

It needs nothing but the standard library. The format of recordings is described in `tests/engines/README.md`.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from askback.core.errors import ErrorCode
from askback.core.runs import Handle, Mode, ProfileKind, Usage
from askback.engines import registry
from askback.engines.base import (
    AssistantMessage,
    CallResult,
    Completed,
    Engine,
    EngineEvent,
    Exit,
    HandleInvalid,
    Launch,
    Probe,
    SessionNamed,
    Stream,
    ToolEnded,
    ToolStarted,
    Turn,
    TurnFailed,
    TurnOver,
    UsageSeen,
)
from askback.engines.limits import read_limit

EXPECTED = "expected.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What one turn printed and how it ended. `about` is the content of `turn.json`."""

    stdout: bytes
    stderr: bytes
    exit_code: int
    about: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> Recording:
        return cls(
            stdout=_bytes(folder / "stdout"),
            stderr=_bytes(folder / "stderr"),
            exit_code=int((folder / "exit").read_text()),
            about=json.loads(_bytes(folder / "turn.json") or b"{}"),
        )

    @property
    def ended(self) -> Exit:
        timed_out, over_limit = (bool(self.about.get(name)) for name in ("timed_out", "over_limit"))
        return Exit(code=self.exit_code, timed_out=timed_out, over_limit=over_limit)

    def lines(self, *streams: Stream) -> Iterator[tuple[Stream, bytes]]:
        """Every line, one stream after the other."""
        for stream in streams:
            data = self.stdout if stream is Stream.STDOUT else self.stderr
            yield from ((stream, line) for line in data.removesuffix(b"\n").split(b"\n") if data)


def turn_of(engine: Engine, about: Mapping[str, Any], *features: str) -> Turn:
    """The recorded turn, for a version with these features."""
    value = about.get("handle")
    handle = value and Handle(engine=engine.name, handle_type=engine.handle_type, handle_value=value, created_at_turn=1)
    return Turn(
        prompt=about.get("prompt", "Do it."),
        mode=Mode(about.get("mode", Mode.INTERACTIVE)),
        attempt_number=2 if handle else 1,
        command=engine.default_command,
        cwd="/run/work",
        home="/run/home",
        skill_dir="skill",
        probe=Probe(kind=ProfileKind.RESUMABLE, reason="recorded", features=features),
        handle=handle or None,
        model=about.get("model"),
    )


def read(engine: Engine, recording: Recording, *streams: Stream) -> dict[str, Any]:
    """What the engine makes of a recording, in the form of `expected.json`."""
    parser = engine.parser(turn_of(engine, recording.about))
    seen = [each for stream, line in recording.lines(*(streams or tuple(Stream))) for each in parser.feed(stream, line)]
    result = parser.finish(recording.ended)
    named = [each.value for each in seen if isinstance(each, SessionNamed)]
    if isinstance(result, Completed) and result.session is not None:
        named.append(result.session)
    actual: dict[str, Any] = {
        "sessions": list(dict.fromkeys(named)),
        "said": [each.text for each in seen if isinstance(each, AssistantMessage)],
        "tools": _tools(seen),
        "usage": next((known_usage(each) for each in reversed(seen) if isinstance(each, UsageSeen)), None),
        "turn_over": any(isinstance(each, TurnOver) for each in seen),
    }
    if isinstance(result, Completed):
        return actual | {"messages": list(result.messages)}
    if result.code is ErrorCode.ENGINE_RATE_LIMITED and "at" in recording.about:
        limit = read_limit(result.detail or "", datetime.fromisoformat(recording.about["at"]), result.reset)
        actual["limit"] = {"kind": limit.kind, "resets_at": limit.resets_at and limit.resets_at.isoformat()}
    return actual | {"code": str(result.code), "detail": result.detail}


def known_usage(seen: UsageSeen) -> dict[str, Any]:
    """What the engine reports, without what it does not."""
    models = {"models": {name: _known(usage) for name, usage in seen.models.items()}} if seen.models else {}
    return _known(seen.usage) | models | ({"model": seen.model} if seen.model else {})


def _known(usage: Usage) -> dict[str, Any]:
    return {name: value for name, value in asdict(usage).items() if value is not None and name != "by_model"}


def _tools(seen: Sequence[EngineEvent]) -> list[dict[str, Any]]:
    """The tools in the order they started; `ok` is null for one that did not end."""
    ended = {each.call_id: each.ok for each in seen if isinstance(each, ToolEnded)}
    return [
        {"name": each.name, "detail": each.detail, "ok": ended.get(each.call_id)}
        for each in seen
        if isinstance(each, ToolStarted)
    ]


def differences(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """The differences from `expected`. Only the keys in `expected` are compared, also those of `usage`; for `detail`, a
    substring is enough.
    """
    found = []
    for key, value in expected.items():
        same = value in (actual.get(key) or "") if key == "detail" and value else actual.get(key) == value
        if key == "usage" and value and actual.get(key):
            same = all(actual[key].get(name) == number for name, number in value.items())
        if not same:
            found.append(f"{key}: expected {value!r}, got {actual.get(key)!r}")
    return found


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


_TEXTS = ("--help", "-", "@file", "a\n/b", "x" * 1_000_000, "naïve 日本 🙂", " ", "")
_MODELS = ("--help", "-x", "a b\nc", "some-model")
_JUNK = (b"", b"{", b"null", b"[]", b'{"type":', b"\xff\xfe{}", b'{"type":null}', b"[" * 500, b'"\\ud800"')
_ENDS = (Exit(code=0), Exit(code=1), Exit(code=-9), Exit(code=-15, timed_out=True), Exit(code=0, over_limit=True))
_ROUNDS = 300


class EngineContract:
    """What every engine must do, as tests. A subclass names the engine and gives examples of what its program prints."""

    engine: ClassVar[Engine]
    session: ClassVar[str]
    """A session id as the program writes it."""
    probes: ClassVar[Mapping[tuple[str, ...], str]]
    """What a version that can resume prints, by the arguments of the probe call."""
    features: ClassVar[tuple[str, ...]] = ()
    """The features of the version whose command lines are tested."""
    recordings: ClassVar[Path]
    """The folder of the engine's recordings."""
    retries: ClassVar[Mapping[ErrorCode, tuple[Stream, str]]] = {}
    """What the program prints when it retries a failed request, by the code of the failure."""

    def __init_subclass__(cls) -> None:
        if "engine" in cls.__dict__:
            cls.engine = registry.with_defaults(cls.engine)

    def is_success(self, line: bytes) -> bool:
        """Whether this line of stdout alone may end a turn successfully."""
        raise NotImplementedError

    # The command line.

    def turn(self, **changes: Any) -> Turn:
        return replace(turn_of(self.engine, {}, *self.features), **changes)

    def launch(self, **changes: Any) -> Launch:
        return self.engine.launch(self.turn(**changes))

    @property
    def handle(self) -> Handle:
        name, kind = self.engine.name, self.engine.handle_type
        return Handle(engine=name, handle_type=kind, handle_value=self.session, created_at_turn=1)

    def test_it_has_every_part_of_an_engine(self) -> None:
        assert registry.checked(self.engine.name, self.engine) is self.engine

    def test_a_resume_is_the_first_command_with_the_handle(self) -> None:
        for mode in Mode:
            options = {"model": "m", "mode": mode, "extra_args": ("--further", "x")}
            first, resumed = self.launch(**options), self.launch(handle=self.handle, **options)
            words = iter(resumed.argv)
            assert all(word in words for word in first.argv), "a resume must keep the arguments, in their order"
            added = Counter(resumed.argv) - Counter(first.argv)
            assert sum(self.session in word for word in added.elements()) == 1
            assert replace(resumed, argv=first.argv) == first

    def test_an_ask_tool_is_configured_if_the_engine_takes_one(self) -> None:
        tool = ("/usr/bin/python3", "-I", "/run/tool.py", "/run/tmp/ask.sock")
        takes = self.engine.takes_ask_tool
        ways = [self.engine.launch, *([self.engine.launch_resident] if self.engine.can_stay else [])]
        for launch in ways:
            configured = repr(launch(self.turn(ask_tool=tool)))
            assert all((word in configured) is takes for word in (tool[0], tool[2], tool[3]))
            assert tool[3] not in repr(launch(self.turn()))

    def test_a_prompt_is_on_standard_input_only(self) -> None:
        for handle in (None, self.handle):
            other = self.launch(prompt="other", handle=handle)
            for text in _TEXTS:
                made = self.launch(prompt=text, handle=handle)
                assert made.stdin.decode().endswith(text)
                assert replace(made, stdin=b"") == replace(other, stdin=b"")

    def test_a_model_name_is_never_an_argument_of_its_own(self) -> None:
        without = Counter(self.launch().argv)
        for model in _MODELS:
            argv = Counter(self.launch(model=model).argv)
            assert argv[model] == without[model]
            assert any(model in word for word in argv - without)

    def test_a_handle_of_another_form_never_reaches_a_command_line(self) -> None:
        own = self.session
        values = ("", "latest", "../../etc/passwd", "--help", f"{own}\n", f"{own} x", f" {own}", f"--{own}", own + "0")
        others = [replace(self.handle, handle_value=value) for value in values]
        for handle in (*others, replace(self.handle, engine="another"), replace(self.handle, handle_type="another")):
            try:
                argv = self.launch(handle=handle).argv
            except HandleInvalid:
                continue
            raise AssertionError(f"{handle} was accepted: {argv}")

    def test_files_are_written_below_their_folders(self) -> None:
        for made in (self.launch(), self.launch(handle=self.handle)):
            for name in (*made.files, *made.settings, *made.work_files):
                assert not name.startswith("/")
                assert ".." not in name.split("/")

    def test_nothing_is_written_to_a_folder_of_the_user(self) -> None:
        turn = self.turn(users_cwd=True, cwd="/users/code", skill_dir="/run/work/skill")
        starts = [self.engine.launch(turn), self.engine.launch(replace(turn, handle=self.handle))]
        if self.engine.can_stay:
            starts.append(self.engine.launch_resident(turn))
        for made in starts:
            assert not made.work_files, "pass them as variables, options, or files in the home"

    # The probe.

    def probe(self, exit_code: int | None = 0) -> Probe:
        calls = [(args, self.probes.get(args, "")) for args in self.engine.probe_calls()]
        results = [CallResult(args=args, exit_code=exit_code, stdout=text, stderr="") for args, text in calls]
        return self.engine.read_probe(results)

    def test_a_version_that_resumes_is_resumable(self) -> None:
        probe = self.probe()
        assert probe.kind is ProfileKind.RESUMABLE
        assert probe.reason

    def test_a_probe_that_failed_proves_nothing(self) -> None:
        for probe in (self.probe(None), self.probe(127), self.engine.read_probe([])):
            assert (probe.kind, probe.version, probe.resident) == (ProfileKind.STICKY_PROCESS, None, False)
            assert probe.reason

    # The output.

    def test_every_recording_is_read_as_expected(self) -> None:
        folders = sorted(path.parent for path in self.recordings.glob("*/exit"))
        assert folders, "there must be recordings"
        for folder in folders:
            recording, expected = Recording.load(folder), json.loads((folder / EXPECTED).read_text())
            # Both streams are read side by side, so either may come first.
            for streams in ((Stream.STDOUT, Stream.STDERR), (Stream.STDERR, Stream.STDOUT)):
                assert differences(expected, read(self.engine, recording, *streams)) == [], folder.name

    def test_a_turn_that_was_stopped_or_says_nothing_is_no_success(self) -> None:
        for ended, code in (
            (Exit(code=0), ErrorCode.ENGINE_CRASHED),
            (Exit(code=-15, timed_out=True), ErrorCode.TURN_TIMEOUT),
            (Exit(code=-15, over_limit=True), ErrorCode.OUTPUT_LIMIT_EXCEEDED),
        ):
            result = self.engine.parser(self.turn()).finish(ended)
            assert isinstance(result, TurnFailed)
            assert result.code is code, result

    def test_a_time_out_while_retrying_has_the_code_of_the_failure(self) -> None:
        for code, (stream, line) in self.retries.items():
            parser = self.engine.parser(self.turn())
            list(parser.feed(stream, line.encode()))
            result = parser.finish(Exit(code=-15, timed_out=True))
            assert isinstance(result, TurnFailed)
            assert result.code is code, result
            assert result.detail

    def test_no_output_breaks_the_parser_or_fakes_a_success(self) -> None:
        source = random.Random(1)
        lines = [line for path in sorted(self.recordings.glob("*/exit")) for _, line in _lines(path.parent)]
        for _ in range(_ROUNDS):
            printed = [_distorted(source, lines) for _ in range(source.randint(0, 8))]
            parser = self.engine.parser(self.turn(handle=source.choice((None, self.handle))))
            for stream, line in printed:
                list(parser.feed(stream, line))
            completed = isinstance(parser.finish(source.choice(_ENDS)), Completed)
            assert not completed or any(self.is_success(line) for _, line in printed), printed

    def test_a_conversation_survives_any_line(self) -> None:
        engine = self.engine
        if ProfileKind.STICKY_PROCESS not in engine.profiles:
            return
        assert engine.can_stay, "STICKY_PROCESS needs launch_resident() and conversation()"
        assert engine.launch_resident(self.turn()).stdin == b""
        conversation = engine.conversation(self.turn())
        list(conversation.say("Do it."))
        for stream in Stream:
            for line in _JUNK:
                list(conversation.feed(stream, line))
        assert isinstance(conversation.finish(Exit(code=1)), TurnFailed)


def _lines(folder: Path) -> Iterator[tuple[Stream, bytes]]:
    return Recording.load(folder).lines(*Stream)


def _distorted(source: random.Random, lines: Sequence[bytes]) -> tuple[Stream, bytes]:
    """A recorded line as it is, cut, joined with another, damaged, or replaced."""
    line, other = source.choice(lines), source.choice(lines)
    at = source.randint(0, len(line))
    forms = (line, line, line[:at], line[:at] + other, line[:at] + b"\xff\x00" + line[at + 2 :], source.choice(_JUNK))
    return source.choice((Stream.STDOUT, Stream.STDOUT, Stream.STDERR)), source.choice(forms)
