"""The engine `gemini`: Google's Gemini CLI, as one headless process per turn or one resident process that speaks ACP.

Gemini treats a prompt that starts with a slash as a command. In headless mode it also replaces `@path` with the file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from askback.core.renewals import Kind, Renewal, TokenField
from askback.core.runs import ProfileKind
from askback.engines.base import HELP, CallResult, Engine, Launch, Probe, SessionMove, Turn, session_of
from askback.engines.gemini.turn import GeminiParser, is_noise, retry_in
from askback.engines.launches import CALL_SEC, mcp_servers, printed_by, probed
from askback.engines.protocols.acp import AcpConversation
from askback.engines.protocols.acp_session import AcpModels
from askback.engines.protocols.acp_turn import Dialect

STREAM, _RESIDENT = "stream-json", "--acp"

_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA")
_SIGN_IN = ".gemini/oauth_creds.json"

# Only the text after a custom command is passed to the model unchanged.
_COMMAND = "/askback"
_COMMAND_FILE = ".gemini/commands/askback.toml"
_COMMAND_TEXT = f"""\
description = "Passes a message on unchanged."
prompt = "What follows the line {_COMMAND} is the message, word for word."
"""

# In the workspace, or in the home. Gemini ignores system settings that do not belong to root.
_SETTINGS_FILE = ".gemini/settings.json"
_SETTINGS = {
    "general": {
        # Gemini would delete a session that was resumed once.
        "sessionRetention": {"enabled": False},
        "enableAutoUpdate": False,
        "enableAutoUpdateNotification": False,
        # With the default of ten, Gemini takes four minutes to report an error.
        "maxAttempts": 3,
        # A plan would wait for approval.
        "plan": {"enabled": False},
    },
    "privacy": {"usageStatisticsEnabled": False},
    # Otherwise Gemini reads `.env` in every folder above the workspace.
    "advanced": {"ignoreLocalEnv": True},
}
_DEFAULT_ENV = {"NO_BROWSER": "true", "GEMINI_TELEMETRY_ENABLED": "false"}


class Gemini(Engine):
    name = "gemini"
    title = "Gemini CLI"
    default_command = ("gemini",)
    install_command = "npm install -g @google/gemini-cli"
    install = f"install it with: {install_command}"
    sign_in_command = "gemini"
    sign_in = f"sign in with: {sign_in_command}, or set GEMINI_API_KEY"
    profiles = frozenset({ProfileKind.RESUMABLE, ProfileKind.STICKY_PROCESS})
    warm = True
    takes_ask_tool = True
    env_allow = (
        *_KEYS,
        "GEMINI_MODEL",
        "GOOGLE_GEMINI_BASE_URL",
        "GOOGLE_VERTEX_BASE_URL",
        "GOOGLE_GENAI_API_VERSION",
        "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_APPLICATION_CREDENTIALS",
    )
    config_names = (".gemini",)
    credentials = (_SIGN_IN, ".gemini/google_accounts.json")
    renewals = (
        Renewal(
            name=_SIGN_IN,
            fields=(
                TokenField(path=("access_token",)),
                TokenField(path=("refresh_token",)),
                TokenField(path=("id_token",), kind=Kind.JWT, claims=(("sub",), ("aud",)), optional=True),
                TokenField(path=("expiry_date",), kind=Kind.INTEGER, optional=True),
                TokenField(path=("refresh_token_expires_in",), kind=Kind.INTEGER, optional=True),
                TokenField(path=("scope",), optional=True),
            ),
            account=(("type",), ("client_id",)),
        ),
    )

    def signed_in(self, files: Collection[str], env: Collection[str]) -> bool | None:
        return _SIGN_IN in files or any(key in env for key in _KEYS)

    def read_probe(self, results: Sequence[CallResult]) -> Probe:
        usage = printed_by(results, HELP)
        features = (STREAM,) if STREAM in usage else ()
        resumes, resident = "--resume" in usage, _RESIDENT in usage
        return probed(results, HELP, "--resume", resumes=resumes, features=features, resident=resident)

    def launch(self, turn: Turn) -> Launch:
        # In the `json` format, long answers are often truncated. It is only for versions without a stream.
        form = STREAM if STREAM in turn.probe.features else "json"
        resume = () if turn.handle is None else ("--resume", session_of(self, turn.handle))
        return Launch(
            argv=(*_command(turn, "--output-format", form), *resume),
            env=_environment(turn),
            stdin=f"{_COMMAND}\n{turn.prompt}".encode("utf-8", "replace"),
            files={_COMMAND_FILE: _COMMAND_TEXT.encode()},
            settings=_home_settings(turn),
            work_files=_work_settings(turn),
        )

    def parser(self, turn: Turn) -> GeminiParser:
        return GeminiParser(resuming=turn.handle is not None)

    def move_session(self, old_cwd: str, new_cwd: str) -> SessionMove:
        """Gemini finds sessions by a short name of the working directory."""
        named = (".gemini/projects.json", ".gemini/*/*/.project_root")
        return SessionMove(rewritten=dict.fromkeys(named, (old_cwd, new_cwd)))

    def launch_resident(self, turn: Turn) -> Launch:
        return Launch(
            argv=_command(turn, _RESIDENT),
            env=_environment(turn),
            settings=_home_settings(turn),
            work_files=_work_settings(turn),
        )

    def conversation(self, turn: Turn) -> AcpConversation:
        return AcpConversation(cwd=turn.cwd, dialect=_dialect(turn), may_ask=turn.may_ask)

    def model_query(self, turn: Turn) -> AcpModels:
        return AcpModels(cwd=turn.cwd, dialect=_dialect(turn))


def engine() -> Gemini:
    return Gemini()


def _command(turn: Turn, *form: str) -> tuple[str, ...]:
    # Without a model, Gemini uses the one that the user configured, or its default.
    model = (f"--model={turn.model}",) if turn.model else ()
    return (*turn.command, *form, "--yolo", *model, *turn.extra_args)


def _work_settings(turn: Turn) -> dict[str, bytes]:
    """They have priority over the user's settings in the home."""
    return {} if turn.users_cwd else {_SETTINGS_FILE: json.dumps(_settings(turn)).encode()}


def _home_settings(turn: Turn) -> dict[str, dict[str, Any]]:
    """In a folder of the user, the same settings come from the home."""
    return {_SETTINGS_FILE: _settings(turn)} if turn.users_cwd else {}


def _settings(turn: Turn) -> dict[str, Any]:
    return {**_SETTINGS, **mcp_servers(turn, trust=True, timeout=CALL_SEC * 1000)}


def _dialect(turn: Turn) -> Dialect:
    return Dialect(sign_in=_auth_method(turn), retry_in=retry_in, counts_answers=True, noise=is_noise)


def _auth_method(turn: Turn) -> str:
    """The ACP id of the authentication method."""
    if "GOOGLE_GENAI_USE_VERTEXAI" in turn.env:
        return "vertex-ai"
    return "oauth-personal" if _SIGN_IN in turn.credentials and not _has_key(turn) else "gemini-api-key"


def _has_key(turn: Turn) -> bool:
    return any(key in turn.env for key in _KEYS)


def _environment(turn: Turn) -> dict[str, str]:
    env = {name: value for name, value in _DEFAULT_ENV.items() if name not in turn.env}
    env |= {
        "GEMINI_CLI_HOME": turn.home,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        # If Gemini relaunches itself, the end of its output is lost.
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }
    # The authentication method is a setting, but a run has only the credentials.
    if _SIGN_IN in turn.credentials and not _has_key(turn):
        env["GOOGLE_GENAI_USE_GCA"] = "true"
    return env
