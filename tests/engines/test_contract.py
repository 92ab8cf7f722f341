"""The contract that every bundled engine keeps, and the examples that it is tested with."""

from __future__ import annotations

from typing import ClassVar

import pytest
from distortions import Lines, distorted, ends, recorded_lines, survives
from hypothesis import given
from recordings import FOLDER, cases, turn_of

from askback.core.errors import ErrorCode
from askback.engines import claude, codex, gemini, iflow, opencode, qwen, registry
from askback.engines.base import Exit, Stream
from askback.engines.protocols.json_lines import decode_line
from askback.testing import EngineContract

pytestmark = pytest.mark.contract("E-4", "E-5", "H-2", "H-10", "H-13", "P-1", "P-4", "T-6", "X-9")

REFUSED, LIMITED = ErrorCode.ENGINE_AUTH_REQUIRED, ErrorCode.ENGINE_RATE_LIMITED
FAILED, UNREACHABLE = ErrorCode.ENGINE_API_ERROR, ErrorCode.ENGINE_UNREACHABLE
TEXT = "  -o, --output-format  stream-json\n  -r, --resume  Resume a session\n"


class TestClaude(EngineContract):
    engine = claude.engine()
    session = "cbbac46f-d39e-4ff4-8672-cade0256c58f"
    features = (claude.SETTINGS,)
    probes: ClassVar = {("--help",): TEXT, ("--version",): "2.1.325 (Claude Code)"}
    recordings = FOLDER / "claude"
    retries: ClassVar = {
        code: (Stream.STDOUT, f'{{"type":"system","subtype":"api_retry","error_status":{status},"error":"x"}}')
        for code, status in ((REFUSED, 401), (LIMITED, 429), (FAILED, 529), (UNREACHABLE, "null"))
    }

    def is_success(self, line: bytes) -> bool:
        event = decode_line(line) or {}
        return event.get("type") == "result" and event.get("is_error") is False and event.get("num_turns") != 0


class TestCodex(EngineContract):
    engine = codex.engine()
    session = "01a1e067-8b42-7d20-8713-0562e3ecf66c"
    features = (codex.OUTPUT_SCHEMA,)
    probes: ClassVar = {
        ("exec", "resume", "--help"): "Usage: codex exec resume [OPTIONS] [SESSION_ID] [PROMPT]\n",
        ("--version",): "codex-cli 0.166.0",
    }
    recordings = FOLDER / "codex"
    retries: ClassVar = {
        code: (Stream.STDOUT, f'{{"type":"error","message":"Reconnecting... 2/5 ({words})"}}')
        for code, words in (
            (REFUSED, "unexpected status 401 Unauthorized"),
            (LIMITED, "unexpected status 429"),
            (FAILED, "unexpected status 502 Bad Gateway"),
            (UNREACHABLE, "Connection failed: error sending request"),
        )
    }

    def is_success(self, line: bytes) -> bool:
        return (decode_line(line) or {}).get("type") == "turn.completed"


class TestGemini(EngineContract):
    engine = gemini.engine()
    session = "b35e3c70-5591-45d7-94d0-0ff2ae0150d0"
    features = (gemini.STREAM,)
    probes: ClassVar = {("--help",): TEXT, ("--version",): "0.61.0"}
    recordings = FOLDER / "gemini"
    retries: ClassVar = {
        code: (Stream.STDERR, f"Attempt 2 failed{words}")
        for code, words in (
            (REFUSED, " with status 401. Retrying with backoff..."),
            (LIMITED, " with status 429. Retrying with backoff..."),
            (FAILED, " with status 500. Retrying with backoff..."),
            (UNREACHABLE, ". Retrying with backoff... Error: exception TypeError: fetch failed sending request"),
        )
    }

    def is_success(self, line: bytes) -> bool:
        event = decode_line(line) or {}
        # The document of an older version spans several lines.
        return (event.get("type") == "result" and event.get("status") == "success") or b'"response"' in line


class TestQwen(EngineContract):
    """It retries without a word, so there are no `retries`."""

    engine = qwen.engine()
    session = "caf77313-2750-4058-95ef-458826ac9171"
    features = (qwen.EXCLUDE_TOOLS,)
    probes: ClassVar = {("--help",): TEXT, ("--version",): "0.24.4"}
    recordings = FOLDER / "qwen"

    def is_success(self, line: bytes) -> bool:
        event = decode_line(line) or {}
        return event.get("type") == "result" and event.get("is_error") is False and event.get("num_turns") != 0


class TestOpencode(EngineContract):
    engine = opencode.engine()
    session = "ses_e1f8e1785ffew2wnwmKWmx3ODK"
    probes: ClassVar = {("run", "--help"): "opencode run [message..]\n  -s, --session\n", ("--version",): "1.18.33"}
    recordings = FOLDER / "opencode"
    retries: ClassVar = {
        code: (
            Stream.STDERR,
            'timestamp=2026-11-15T20:59:04.901Z level=ERROR run=af54b081 message="stream error" providerID=p '
            f'session.id=ses_e1f8e1785ffew2wnwmKWmx3ODK small=false agent=build mode=primary error.error="{words}"',
        )
        for code, words in (
            (REFUSED, "AI_APICallError: Unauthorized"),
            (LIMITED, "AI_APICallError: Too many requests"),
            (FAILED, "AI_APICallError: Internal Server Error"),
            (UNREACHABLE, "AI_APICallError: Cannot connect to API: Unable to connect."),
        )
    }

    def is_success(self, line: bytes) -> bool:
        event = decode_line(line) or {}
        part = event.get("part")
        return event.get("type") == "step_finish" and isinstance(part, dict) and part.get("reason") == "stop"


class TestIflow(EngineContract):
    engine = iflow.engine()
    session = "session-8d8d71fe-fc2c-4de9-8878-9f1f3ac19168"
    probes: ClassVar = {("--help",): TEXT, ("--version",): "0.5.19"}
    recordings = FOLDER / "iflow"
    retries: ClassVar = {
        code: (Stream.STDERR, f"Attempt 1 failed. Retrying with backoff... Error: generate data error: {words}")
        for code, words in (
            (REFUSED, "HTTP error! status: 401, body: {}"),
            (LIMITED, "This model has reached the platform rate limit"),
            (FAILED, "HTTP error! status: 502, body: {}"),
            (UNREACHABLE, "fetch failed"),
        )
    }

    def is_success(self, line: bytes) -> bool:
        return b"</Execution Info>" in line


SUITES: dict[str, type[EngineContract]] = {
    suite.engine.name: suite for suite in (TestClaude, TestCodex, TestGemini, TestIflow, TestOpencode, TestQwen)
}


def test_every_engine_that_is_not_ours_keeps_the_contract_and_is_recorded() -> None:
    known = {name for name, engine in registry.engines().items() if engine.chosen_by_default}
    assert set(SUITES) == known == {folder.parent.name for folder in cases()}


@pytest.mark.parametrize("name", SUITES)
def test_whatever_is_printed_is_survived_and_never_a_false_success(name: str) -> None:
    suite = SUITES[name]()
    engine = suite.engine

    @given(lines=distorted(recorded_lines(name)), ended=ends)
    def check(lines: Lines, ended: Exit) -> None:
        for about in ({}, {"handle": suite.session}):
            survives(engine.parser(turn_of(engine, about)), lines, ended, suite.is_success)

    check()
