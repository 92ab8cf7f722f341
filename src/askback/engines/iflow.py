"""The engine `iflow`: one headless `iflow` per turn with the prompt on stdin, or one resident process that speaks ACP.

iFlow prints the answer as plain text on stdout, mixed with other lines. On stderr it prints why requests failed and, at
the end, an `<Execution Info>` block that names the session. Its exit code is always 0. Resuming an unknown session
silently starts a new one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from askback.core.errors import ErrorCode
from askback.core.interactions import Json
from askback.core.renewals import Kind, Renewal, TokenField
from askback.core.runs import ProfileKind
from askback.engines.base import (
    HELP,
    UUID,
    CallResult,
    Completed,
    Engine,
    EngineEvent,
    Exit,
    Launch,
    Probe,
    SessionNamed,
    Stream,
    Turn,
    TurnFailed,
    TurnOver,
    UsageSeen,
    session_of,
)
from askback.engines.failures import crashed, failure_of, failure_of_status, stopped
from askback.engines.launches import printed_at_all, probed
from askback.engines.parser import Pieces, usage_of
from askback.engines.protocols.acp import AcpConversation
from askback.engines.protocols.acp_turn import Dialect
from askback.engines.protocols.elicitation import Answer, Asking, ToolQuestions, read_questionnaire
from askback.engines.protocols.json_lines import Tail, as_detail, count_at, object_at, plain, text_at
from askback.text.json_text import NotJson, clean, loads

_RESIDENT = "--experimental-acp"
_KEYS = ("IFLOW_API_KEY", "IFLOW_apiKey")
_OAUTH, _ACCOUNTS, _SETTINGS = ".iflow/oauth_creds.json", ".iflow/iflow_accounts.json", ".iflow/settings.json"

_DEFAULT_ENV = {
    # Without -p, iFlow assumes that a user is present.
    "IFLOW_NON_INTERACTIVE": "true",
    # A relaunched second process would hide how the first one ended.
    "IFLOW_CLI_NO_RELAUNCH": "true",
    "IFLOW_disableAutoUpdate": "true",
}

_OPENS, _CLOSES = "<Execution Info>", "</Execution Info>"
_MAX_BLOCK = 20_000
_ID = f"session-{UUID}"
_RESUMING = re.compile(rf"Resuming session ({_ID}) \(\d+ messages? loaded\)")
_TRIED = re.compile(r"Attempt \d+ failed.*?Error: (.*)")
_STATUS = re.compile(r"\bstatus: (\d{3})\b")
_GAVE_UP = "Error when talking to iFlow API"
_STACK = re.compile(r"\s+(?:at |\.\.\. \d+ lines|\[cause\])|\}")
_NOISE_FIRST = re.compile(r"Data collection is \w+\.|Loaded cached credentials\.?|\s*")
# Printed before every request, so it may be in the middle of a line.
_NOISE = re.compile(r"(^|\n)?Model \S+ does not support thinking mode(?:\n|\Z)")
# Exit codes of iFlow's own failures. Above 128 they mean that we ended it, which says nothing about the turn.
_OWN_EXITS = range(1, 129)


class Iflow(Engine):
    name = "iflow"
    title = "iFlow"
    default_command = ("iflow",)
    install = "it can no longer be installed; if you have a copy, set engines.iflow.command to it"
    sign_in_command = "iflow"
    sign_in = f"sign in with: {sign_in_command}, then /auth"
    handle_pattern = re.compile(_ID, re.ASCII)
    profiles = frozenset({ProfileKind.RESUMABLE, ProfileKind.STICKY_PROCESS})
    env_allow = (
        *_KEYS,
        "IFLOW_BASE_URL",
        "IFLOW_baseUrl",
        "IFLOW_MODEL_NAME",
        "IFLOW_modelName",
        "IFLOW_SELECTED_AUTH_TYPE",
        "IFLOW_selectedAuthType",
    )
    config_names = (".iflow",)
    credentials = (_OAUTH, _ACCOUNTS, _SETTINGS)
    # Never the settings file: it contains commands that iFlow starts.
    renewals = (
        Renewal(
            name=_OAUTH,
            fields=(
                TokenField(path=("access_token",)),
                TokenField(path=("refresh_token",)),
                TokenField(path=("expiry_date",), kind=Kind.INTEGER, optional=True),
                TokenField(path=("expires_at",), kind=Kind.INTEGER),
                TokenField(path=("apiKey",)),
            ),
            account=(("userId",), ("userName",), ("email",), ("phone",)),
        ),
        Renewal(name=_ACCOUNTS, fields=(TokenField(path=("iflowApiKey",)),)),
    )

    def signed_in(self, files: Collection[str], env: Collection[str]) -> bool | None:
        """Unknown with a settings file alone: it may contain a key."""
        if _OAUTH in files or any(key in env for key in _KEYS):
            return True
        return None if _SETTINGS in files else False

    def read_probe(self, results: Sequence[CallResult]) -> Probe:
        usage = printed_at_all(results, HELP)
        return probed(results, HELP, "--resume", resumes="--resume" in usage, resident=_RESIDENT in usage)

    def launch(self, turn: Turn) -> Launch:
        resume = () if turn.handle is None else ("--resume", session_of(self, turn.handle))
        argv = (*_command(turn), *resume)
        return Launch(argv=argv, env=_environment(turn), stdin=turn.prompt.encode("utf-8", "replace"))

    def parser(self, turn: Turn) -> IflowParser:
        return IflowParser()

    def launch_resident(self, turn: Turn) -> Launch:
        return Launch(argv=_command(turn, _RESIDENT), env=_environment(turn))

    def conversation(self, turn: Turn) -> AcpConversation:
        sign_in = "oauth-iflow" if _OAUTH in turn.credentials else "iflow"
        dialect = Dialect(sign_in=sign_in, retry_in=_retry_in, noise=_is_trace, requests=_REQUESTS)
        return AcpConversation(cwd=turn.cwd, dialect=dialect)


def engine() -> Iflow:
    return Iflow()


def _command(turn: Turn, *form: str) -> tuple[str, ...]:
    model = (f"--model={turn.model}",) if turn.model else ()
    return (*turn.command, *form, "--yolo", "--thinking", *model, *turn.extra_args)


def _environment(turn: Turn) -> dict[str, str]:
    return {name: value for name, value in _DEFAULT_ENV.items() if name not in turn.env}


def _retry_in(words: str, session: str = "") -> str:
    tried = _TRIED.match(words)
    return tried[1] if tried else ""


def _is_trace(words: str) -> bool:
    return _STACK.match(words) is not None


def _ask(params: Mapping[str, Any]) -> Mapping[str, Json] | Asking:
    """A call of iFlow's ask tool. Each answer is keyed by the header of its question."""
    asked = read_questionnaire(params.get("questions"))
    if asked is None:
        return {"answers": {}}
    headers = [item.header for item in asked.items]

    def respond(answers: Sequence[Answer] | None) -> Mapping[str, Json]:
        return {"answers": dict(zip(headers, answers or (), strict=False))}

    return ToolQuestions(asked=asked, respond=respond)


_REQUESTS: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Json] | Asking]] = {
    "_iflow/user/questions": _ask,
    "_iflow/plan/exit": lambda params: {"approved": True},
}


class IflowParser:
    """Reads one turn. Success is a complete `<Execution Info>`, an answer, and no abandoned request."""

    def __init__(self) -> None:
        self._answer = Pieces()
        self._block: str | None = None
        self._info: Mapping[str, Any] | None = None
        self._trouble = ""
        self._gave_up = False
        self._stderr = Tail()

    def feed(self, stream: Stream, line: bytes) -> Iterator[EngineEvent]:
        text = plain(clean(line.decode("utf-8", "replace")))
        if stream is Stream.STDOUT:
            # The answer has no end mark and may quote anything, so it is read as a whole.
            self._answer.add(f"{text}\n")
        elif self._block is None and _OPENS not in text:
            yield from self._read_words(text)
        else:
            yield from self._read_block(text)

    def _read_words(self, text: str) -> Iterator[EngineEvent]:
        # After the turn, iFlow only reports its own shutdown.
        if self._info is not None or _is_trace(text):
            return
        self._stderr.add(text.encode())
        self._gave_up = self._gave_up or _GAVE_UP in text
        self._trouble = _retry_in(text) or self._trouble
        if resuming := _RESUMING.search(text):
            yield SessionNamed(value=resuming[1])

    def _read_block(self, text: str) -> Iterator[EngineEvent]:
        block = text.partition(_OPENS)[2] if self._block is None else f"{self._block}\n{text}"
        inside, closes, _ = block.partition(_CLOSES)
        self._block = None if closes or len(block) > _MAX_BLOCK else block
        info = _read_info(inside) if closes else None
        if info is None:
            return
        self._info = info
        if session := text_at(info, "session-id"):
            yield SessionNamed(value=session)
        tokens = object_at(info, "tokenUsage")
        yield UsageSeen(usage=usage_of(count_at(tokens, "input"), count_at(tokens, "output")))
        yield TurnOver()

    def finish(self, ended: Exit) -> Completed | TurnFailed:
        answer, printed_info = _split_answer(self._answer.text)
        info = printed_info if self._info is None else self._info
        if info is None:
            return stopped(ended, self._trouble, self._stderr.text) or self._ended_early(ended)
        if reason := text_at(info, "terminationReason"):
            message = "the engine gave up its turn"
            return TurnFailed(code=ErrorCode.ENGINE_CRASHED, message=message, detail=as_detail(reason))
        if self._gave_up or not answer:
            return self._unanswered()
        if ended.code in _OWN_EXITS:
            return crashed(ended, as_detail(self._stderr.text))
        session = text_at(info, "session-id") or None
        named = session if self._info is None else None
        return Completed(messages=(answer,), session=named, shortened=self._answer.shortened)

    def _unanswered(self) -> TurnFailed:
        status = _STATUS.search(self._trouble)
        code = failure_of_status(int(status[1]) if status else 0, self._trouble)
        words = self._trouble or self._stderr.text
        return TurnFailed(code=code, message="the engine ended its turn without an answer", detail=as_detail(words))

    def _ended_early(self, ended: Exit) -> TurnFailed:
        """The result without a block. If iFlow cannot start, for example without a key, stderr has the reason."""
        words = self._stderr.text
        code = failure_of(self._trouble or words)
        if code is ErrorCode.ENGINE_API_ERROR and not self._gave_up:
            return crashed(ended, as_detail(words))
        return TurnFailed(code=code, message="the engine ended without an answer", detail=as_detail(words))


def _split_answer(printed: str) -> tuple[str, Mapping[str, Any] | None]:
    """The answer without iFlow's own lines, and the block at its end if there is one."""
    text, info = printed.rstrip(), None
    before, opens, block = text.rpartition(_OPENS)
    if opens and block.endswith(_CLOSES):
        info = _read_info(block.removesuffix(_CLOSES))
        text = text if info is None else before
    rest = _NOISE.sub(lambda found: found[1] or ("\n" if found.start() else ""), text).split("\n")
    first = next((at for at, line in enumerate(rest) if not _NOISE_FIRST.fullmatch(line)), len(rest))
    return "\n".join(rest[first:]).strip(), info


def _read_info(block: str) -> Mapping[str, Any] | None:
    try:
        info = loads(block.strip())
    except NotJson:
        return None
    return info if isinstance(info, dict) else None
