"""The engine `claude`: Anthropic's Claude Code, one `claude -p` a turn.

What it prints and where it errs: one JSON event a line, ended by `result`, whose `subtype` says success also of failures;
a text that begins with a slash is a command to it, and "succeeds" without the model ever being asked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from askback.core.errors import ErrorCode
from askback.core.runs import ProfileKind, Usage
from askback.engines.base import (
    Broke,
    CallResult,
    Completed,
    Exit,
    Launch,
    Probe,
    Seen,
    SessionNamed,
    Stream,
    Turn,
    TurnOver,
    UsageSeen,
    session_of,
)
from askback.engines.claude_events import Conversation
from askback.engines.failures import crashed, failure_of_status, stopped
from askback.engines.json_lines import Tail, as_detail, count_at, decode_line, object_at, text_at
from askback.engines.probing import printed_by, version_in, why_not

_HELP, _VERSION = ("--help",), ("--version",)

_OPTIONS = ("-p", "--output-format=stream-json", "--verbose", "--dangerously-skip-permissions")
_WITHOUT_ASKING = "--disallowedTools=AskUserQuestion,EnterPlanMode,ExitPlanMode"
# A run may wait for longer than the month after which sessions are deleted.
_KEEPING_SESSIONS = '--settings={"cleanupPeriodDays":36500}'
SETTINGS = "settings"

_MANNERS = {
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    # With its own ten a key that is refused is told after three minutes.
    "CLAUDE_CODE_MAX_RETRIES": "2",
}
_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_CLOUDS = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
_MODEL_COUNTS = ("inputTokens", "cacheCreationInputTokens", "cacheReadInputTokens", "outputTokens")
_UNKNOWN_SESSION = re.compile(r"no conversation found|--resume requires a valid session", re.IGNORECASE)


class Claude:
    name = "claude"
    title = "Claude Code"
    default_command: tuple[str, ...] = ("claude",)
    install = "install it with: npm install -g @anthropic-ai/claude-code"
    handle_type = "session_id"
    handle_pattern = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
    profiles = frozenset({ProfileKind.RESUMABLE})
    chosen_by_default = True
    env_allow: tuple[str, ...] = (
        *_KEYS,
        *_CLOUDS,
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_CUSTOM_HEADERS",
        "ANTHROPIC_MODEL",
        "ANTHROPIC_DEFAULT_OPUS_MODEL",
        "ANTHROPIC_DEFAULT_SONNET_MODEL",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    )
    credentials: tuple[str, ...] = (".claude/.credentials.json",)
    sign_in = "sign in with: claude auth login"

    def signed_in(self, files: Collection[str], env: Collection[str]) -> bool | None:
        if files or any(key in env for key in _KEYS):
            return True
        return None if any(cloud in env for cloud in _CLOUDS) else False

    def probe_calls(self) -> Sequence[tuple[str, ...]]:
        return (_HELP, _VERSION)

    def read_probe(self, results: Sequence[CallResult]) -> Probe:
        usage = printed_by(results, _HELP)
        resumes = "--resume" in usage and "stream-json" in usage
        return Probe(
            kind=ProfileKind.RESUMABLE if resumes else ProfileKind.STICKY_PROCESS,
            reason="its --help offers --resume" if resumes else why_not(results, _HELP, "--resume with stream-json"),
            version=version_in(printed_by(results, _VERSION)),
            features=(SETTINGS,) if "--settings" in usage else (),
        )

    def launch(self, turn: Turn) -> Launch:
        argv = [*turn.command, *_OPTIONS, _WITHOUT_ASKING]
        if SETTINGS in turn.probe.features:
            argv.append(_KEEPING_SESSIONS)
        if turn.model:
            argv.append(f"--model={turn.model}")
        argv += turn.extra_args
        if turn.handle is not None:
            argv.append(f"--resume={session_of(self, turn.handle)}")
        manners = {name: value for name, value in _MANNERS.items() if name not in turn.env}
        # As root it refuses to work without questions unless it is told that it is in a place of its own.
        env = {**manners, "CLAUDE_CONFIG_DIR": f"{turn.home}/.claude", "IS_SANDBOX": "1"}
        # After a space a slash is a character like any other.
        prompt = f" {turn.prompt}" if turn.prompt.startswith("/") else turn.prompt
        return Launch(argv=tuple(argv), env=env, stdin=prompt.encode("utf-8", "replace"))

    def parser(self, turn: Turn) -> ClaudeParser:
        return ClaudeParser(resuming=turn.handle is not None)


def engine() -> Claude:
    return Claude()


class ClaudeParser:
    """Reads the events of one `claude -p`. Only a `result` that is no error, of a model that was asked, is success."""

    def __init__(self, *, resuming: bool) -> None:
        self._resuming = resuming
        self._conversation = Conversation()
        self._result: Mapping[str, Any] | None = None
        self._retrying = ""
        self._stderr = Tail()

    def feed(self, stream: Stream, line: bytes) -> Iterator[Seen]:
        if stream is Stream.STDERR:
            self._stderr.add(line)
            return
        event = decode_line(line)
        if event is not None:
            yield from self._read(event)

    def _read(self, event: Mapping[str, Any]) -> Iterator[Seen]:
        kind, subtype = text_at(event, "type"), text_at(event, "subtype")
        self._retrying = _retry(event) if subtype == "api_retry" else ""
        match kind:
            case "system" if subtype == "init":
                yield SessionNamed(value=text_at(event, "session_id"))
            case "assistant" | "user" if not _is_made_up(event):
                yield from self._conversation.read(event)
            case "result":
                yield from self._conversation.flush()
                self._result = event
                yield UsageSeen(usage=_usage(event))
                yield TurnOver()

    def finish(self, ended: Exit) -> Completed | Broke:
        said = self._stderr.text
        if self._result is None:
            return stopped(ended, self._retrying) or self._unknown(said) or crashed(ended, as_detail(said))
        words = _words(self._result)
        if _is_error(self._result):
            code = failure_of_status(count_at(self._result, "api_error_status"), words)
            broke = Broke(code=code, message="the engine ended its turn with an error", detail=as_detail(words))
            return self._unknown(words) or broke
        if count_at(self._result, "num_turns") == 0:
            message = "the engine ended its turn without asking the model"
            return Broke(
                code=ErrorCode.ENGINE_CRASHED, message=message, detail=as_detail(text_at(self._result, "result"))
            )
        return Completed(messages=tuple(self._conversation.messages))

    def _unknown(self, words: str) -> Broke | None:
        if not self._resuming or not _UNKNOWN_SESSION.search(words):
            return None
        message = "the engine does not know the session (any more)"
        return Broke(code=ErrorCode.SESSION_RESUME_FAILED, message=message, detail=as_detail(words))


def _retry(event: Mapping[str, Any]) -> str:
    """What an `api_retry` says. Without a status no server was there to give one."""
    status = count_at(event, "error_status")
    return f"API error {status}: {text_at(event, 'error')}" if status else "connection failed, trying again"


def _is_made_up(event: Mapping[str, Any]) -> bool:
    """A message of the program itself, such as an error's words, and not of the model."""
    return text_at(event, "message", "model") == "<synthetic>"


def _is_error(result: Mapping[str, Any]) -> bool:
    succeeded = text_at(result, "subtype") == "success" and result.get("is_error") is False
    return not succeeded or text_at(result, "stop_reason") == "refusal"


def _words(result: Mapping[str, Any]) -> str:
    errors = result.get("errors")
    listed = [each for each in errors if isinstance(each, str)] if isinstance(errors, list) else []
    return text_at(result, "result") or "\n".join(listed) or text_at(result, "subtype")


def _usage(result: Mapping[str, Any]) -> Usage:
    """What each model used, helpers included; where that is missing, what the conversation alone used.

    It counts what was read from the cache, and what was written to it, beside the input.
    """
    models = [model for model in object_at(result, "modelUsage").values() if isinstance(model, dict)]
    if models:
        return sum((_tokens(model, *_MODEL_COUNTS) for model in models), Usage())
    return _tokens(object_at(result, "usage"), *_COUNTS)


def _tokens(counts: Mapping[str, Any], plain: str, written: str, read: str, made: str) -> Usage:
    given = count_at(counts, plain) + count_at(counts, written) + count_at(counts, read)
    output = count_at(counts, made)
    return Usage(
        input_tokens=given,
        output_tokens=output,
        cached_tokens=count_at(counts, read),
        total_tokens=given + output,
    )
