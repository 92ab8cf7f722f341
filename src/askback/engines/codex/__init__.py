"""The engine `codex`: OpenAI's Codex CLI, as one `codex exec --json` per turn or one `codex app-server` per run.

Codex prints one JSON event per line. Resuming an unknown id starts a new session unless the id is a UUID. Its events
are more reliable than its exit code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from askback.core.renewals import Kind, Renewal, TokenField
from askback.core.runs import Mode, ProfileKind
from askback.engines.base import VERSION, CallResult, Engine, Launch, Probe, SessionMove, Turn, session_of
from askback.engines.codex.app_server import AppServerConversation, CodexModels
from askback.engines.codex.strict_schema import strict_form
from askback.engines.codex.turn import CodexParser
from askback.engines.launches import CALL_SEC, SERVER, START_SEC, command_and_args, printed_by, probed

_EXEC_HELP, _RESUME_HELP = ("exec", "--help"), ("exec", "resume", "--help")
_SERVER_HELP = ("app-server", "--help")

FULL_AUTO = "full-auto"
OPTIONS_BEFORE_RESUME = "options-before-resume"
OUTPUT_SCHEMA = "output-schema"

_SETTINGS = (
    "check_for_update_on_startup=false",
    "analytics.enabled=false",
    # Both make network requests at startup, and delay it if there is no network.
    "features.plugins=false",
    "features.remote_plugin=false",
    # The model would see Codex's bundled skills as well as the skill of the run.
    "skills.bundled.enabled=false",
    # With a goal, Codex would continue after a question without waiting for the answer.
    "features.goals=false",
    # Codex would wait for a network indefinitely.
    "features.unbounded_connection_retries=false",
)
_WITHOUT_ASKING = "tools.experimental_request_user_input.enabled=false"
_ASKING = ("features.default_mode_request_user_input=true", "suppress_unstable_features_warning=true")
# Codex would write its environment, including the API key, to a file while it runs.
_WITHOUT_SNAPSHOTS = "features.shell_snapshot=false"
_ACCOUNT_CLAIMS = (("sub",), ("https://api.openai.com/auth", "chatgpt_account_id"))
_KEY_IN_MEMORY = 'cli_auth_credentials_store="ephemeral"'
_SCHEMA_FILE = ".codex/askback-output-schema.json"
# Codex refuses a CODEX_HOME that does not exist. Writing this file creates ours.
_HOME_FILE = ".codex/.askback"


class Codex(Engine):
    name = "codex"
    title = "Codex"
    default_command = ("codex",)
    install_command = "npm install -g @openai/codex"
    install = f"install it with: {install_command}"
    sign_in_command = "codex login"
    sign_in = f"sign in with: {sign_in_command}"
    profiles = frozenset({ProfileKind.RESUMABLE, ProfileKind.STICKY_PROCESS})
    warm = True
    takes_ask_tool = True
    env_allow = (
        "CODEX_API_KEY",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_ORGANIZATION",
        "OPENAI_PROJECT",
        "CODEX_CA_CERTIFICATE",
    )
    config_names = (".codex",)
    credentials = (".codex/auth.json",)
    caches = (".codex/tmp",)
    renewals = (
        Renewal(
            name=".codex/auth.json",
            fields=(
                TokenField(path=("tokens", "id_token"), kind=Kind.JWT, claims=_ACCOUNT_CLAIMS),
                TokenField(path=("tokens", "access_token"), kind=Kind.JWT, claims=_ACCOUNT_CLAIMS),
                TokenField(path=("tokens", "refresh_token")),
                TokenField(path=("last_refresh",), kind=Kind.TIME, optional=True),
            ),
            account=(("tokens", "account_id"), ("auth_mode",)),
        ),
    )

    def signed_in(self, files: Collection[str], env: Collection[str]) -> bool | None:
        return bool(files) or "CODEX_API_KEY" in env or "OPENAI_API_KEY" in env

    def probe_calls(self) -> Sequence[tuple[str, ...]]:
        return (_RESUME_HELP, _EXEC_HELP, _SERVER_HELP, VERSION)

    def read_probe(self, results: Sequence[CallResult]) -> Probe:
        resume, usage = printed_by(results, _RESUME_HELP), printed_by(results, _EXEC_HELP)
        # With --help, an unknown subcommand prints the help of its parent and also exits with 0.
        resumes = re.search(r"^Usage: \S+ exec resume .*\[SESSION_ID\]", resume, re.MULTILINE) is not None
        features = [FULL_AUTO] if "--full-auto" in usage else []
        if resumes and not all(option in resume for option in ("--json", "--skip-git-repo-check", "--model")):
            features.append(OPTIONS_BEFORE_RESUME)
        if "--output-schema" in usage and (OPTIONS_BEFORE_RESUME in features or "--output-schema" in resume):
            features.append(OUTPUT_SCHEMA)
        return probed(
            results,
            _RESUME_HELP,
            "a SESSION_ID",
            resumes=resumes,
            offers="exec resume SESSION_ID",
            features=tuple(features),
            # `-c` is older than every version that resumes.
            effort=tuple(sorted(self.profiles)) if "--config" in usage else (),
            resident=re.search(r"^Usage: \S+ app-server ", printed_by(results, _SERVER_HELP), re.MULTILINE) is not None,
        )

    def launch(self, turn: Turn) -> Launch:
        schema = _schema_of(turn)
        options = _options(turn, with_schema=schema is not None)
        argv = [*turn.command, "exec", *turn.extra_args]
        if turn.handle is None:
            argv += options
        elif OPTIONS_BEFORE_RESUME in turn.probe.features:
            argv += [*options, "resume", session_of(self, turn.handle)]
        else:
            argv += ["resume", *options, session_of(self, turn.handle)]
        files = {_HOME_FILE: b""}
        if schema is not None:
            files[_SCHEMA_FILE] = json.dumps(schema).encode()
        prompt = turn.prompt.encode("utf-8", "replace")
        return Launch(argv=(*argv, "-"), env=_environment(turn), stdin=prompt, files=files)

    def parser(self, turn: Turn) -> CodexParser:
        return CodexParser(resuming=turn.handle is not None)

    def move_session(self, old_cwd: str, new_cwd: str) -> SessionMove:
        """Codex finds a session by its id. Its databases name the file by its path, in the home of the other run."""
        return SessionMove(removed=(".codex/*.sqlite", ".codex/*.sqlite-shm", ".codex/*.sqlite-wal"))

    def launch_resident(self, turn: Turn) -> Launch:
        argv = [*turn.command, "app-server", *turn.extra_args]
        asks = turn.mode is Mode.INTERACTIVE and turn.may_ask
        settings = [*_SETTINGS, _WITHOUT_SNAPSHOTS, *(_ASKING if asks else (_WITHOUT_ASKING,))]
        if _key(turn) is not None:
            settings.append(_KEY_IN_MEMORY)
        for setting in (*settings, *_effort(turn), *_ask_tool(turn)):
            argv += ["-c", setting]
        return Launch(argv=tuple(argv), env=_environment(turn), files={_HOME_FILE: b""})

    def model_query(self, turn: Turn) -> CodexModels:
        return CodexModels(api_key=_key(turn))

    def conversation(self, turn: Turn) -> AppServerConversation:
        model = {"model": turn.model} if turn.model else {}
        thread = {"cwd": turn.cwd, "approvalPolicy": "never", "sandbox": "danger-full-access", **model}
        return AppServerConversation(
            thread=thread, output_schema=_schema_of(turn), api_key=_key(turn), may_ask=turn.may_ask
        )


def engine() -> Codex:
    return Codex()


def _options(turn: Turn, *, with_schema: bool) -> list[str]:
    automatic = "--full-auto" if FULL_AUTO in turn.probe.features else "--yolo"
    options = ["--json", "--skip-git-repo-check", automatic]
    for setting in (*_SETTINGS, _WITHOUT_ASKING, *_effort(turn), *_ask_tool(turn)):
        options += ["-c", setting]
    if with_schema:
        options.append(f"--output-schema={turn.home}/{_SCHEMA_FILE}")
    if turn.model:
        options.append(f"--model={turn.model}")
    return options


def _effort(turn: Turn) -> tuple[str, ...]:
    return (f'model_reasoning_effort="{turn.effort}"',) if turn.effort else ()


def _ask_tool(turn: Turn) -> tuple[str, ...]:
    """A JSON text is a TOML text, too, apart from characters that none of these paths has."""
    if not turn.ask_tool:
        return ()
    started = command_and_args(turn)
    table = f"mcp_servers.{SERVER}"
    return (
        f"{table}.command={json.dumps(started['command'])}",
        f"{table}.args={json.dumps(started['args'])}",
        f"{table}.startup_timeout_sec={START_SEC}",
        f"{table}.tool_timeout_sec={CALL_SEC}",
    )


def _schema_of(turn: Turn) -> Mapping[str, Any] | None:
    """The schema for Codex to enforce. None in interactive mode, where the model must be able to ask instead."""
    if turn.mode is not Mode.AUTO or turn.output_schema is None or OUTPUT_SCHEMA not in turn.probe.features:
        return None
    return strict_form(turn.output_schema)


def _key(turn: Turn) -> str | None:
    """The API key for the app server, which does not read it from the environment. A sign-in has priority."""
    return None if turn.credentials else turn.env.get("CODEX_API_KEY") or turn.env.get("OPENAI_API_KEY")


def _environment(turn: Turn) -> dict[str, str]:
    # Codex prints the end of a limit in local time, without a zone.
    env = {"CODEX_HOME": f"{turn.home}/.codex", "TZ": "UTC"}
    # `codex exec` reads only CODEX_API_KEY. A sign-in has priority over OPENAI_API_KEY.
    if not turn.credentials and "CODEX_API_KEY" not in turn.env and "OPENAI_API_KEY" in turn.env:
        env["CODEX_API_KEY"] = turn.env["OPENAI_API_KEY"]
    return env
