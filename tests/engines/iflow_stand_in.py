"""A program in place of iFlow 0.5.19, which can no longer be installed: it behaves as the real one was recorded.

The answer is plain text on stdout among lines of its own, `<Execution Info>` stands on stderr, sessions are kept by the
folder they were made in, one that is not known is silently a new one, a failed request ends with exit code 0, and
SIGTERM is ignored. With `--experimental-acp` it stays and speaks ACP, and then SIGTERM ends it; how it tells a failed
request there was not recorded. Its model is the chat-completions server that IFLOW_BASE_URL names.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Any

VERSION = "0.5.19"
ATTEMPTS = 3
SHELL = {
    "name": "run_shell_command",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}, "is_background": {}}},
}
SETTING_UP = (
    {"role": "user", "content": "This is the iFlow CLI. We are setting up the context for our chat."},
    {"role": "assistant", "content": "Got it. Thanks for the context!"},
)

ABOUT = {
    "authMethods": [{"id": "oauth-iflow", "name": "Log in with IFLOW"}, {"id": "iflow", "name": "Use iFlow API key"}],
    "agentCapabilities": {"loadSession": True, "promptCapabilities": {"image": True, "embeddedContext": True}},
    "agentInfo": {"name": "iflow-agent", "title": "iFlow Agent", "version": VERSION},
}
MODES = [{"id": mode, "name": mode} for mode in ("smart", "yolo", "default", "plan")]
COMMANDS = [{"name": "init", "description": "Analyzes the project and creates or updates a tailored IFLOW.md file."}]


class RequestFailed(Exception):
    """A request that brought no answer; the text is what the real program says of it."""


def main() -> int:
    given = _arguments()
    if given.version:
        print(VERSION)
        return 0
    print("Data collection is disabled.", flush=True)
    model = given.model or os.environ.get("IFLOW_MODEL_NAME", "some-model")
    if given.experimental_acp:
        Talk(model, "yolo" if given.yolo else "default").listen()
        return 0
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    prompt = given.prompt or sys.stdin.buffer.read().decode()
    if not prompt:
        print("No input provided via stdin.", file=sys.stderr)
        return 1
    if "IFLOW_API_KEY" not in os.environ:
        print("Please set an Auth method or the environment variable IFLOW_API_KEY before running", file=sys.stderr)
        return 1
    Turn(model, Session.open(given.resume)).play(prompt)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="iflow", description="iFlow CLI", allow_abbrev=False)
    parser.add_argument("-m", "--model")
    parser.add_argument("-p", "--prompt", help="Prompt. Appended to input on stdin (if any).")
    parser.add_argument("-y", "--yolo", action="store_true", help="Automatically accept all actions")
    parser.add_argument("--thinking", action="store_true", help="Enable thinking mode")
    parser.add_argument("-r", "--resume", metavar="SESSION_ID", help="Resume a session by its id")
    parser.add_argument("--experimental-acp", action="store_true", help="Starts the agent in ACP mode")
    parser.add_argument("-v", "--version", action="store_true", help="Show version number")
    return parser.parse_args()


class Session:
    """A conversation in a file below the home, found only from the folder that it was made in."""

    def __init__(self, session_id: str, history: list[dict[str, Any]]) -> None:
        self.id = session_id
        self.history = history
        self.path = _folder() / f"{session_id}.jsonl"

    @classmethod
    def open(cls, wanted: str | None) -> Session:
        known = _folder() / f"{wanted}.jsonl"
        if wanted is None or not known.is_file():
            return cls(f"session-{uuid.uuid4()}", [])
        history = [json.loads(line) for line in known.read_text().splitlines()]
        spoken = [each for each in history if each["role"] in ("user", "assistant")]
        print(f"\nℹ️  Resuming session {wanted} ({len(spoken)} messages loaded)", file=sys.stderr, flush=True)
        return cls(wanted, history)

    def add(self, message: dict[str, Any]) -> None:
        self.history.append(message)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(message) + "\n")


def _folder() -> Path:
    slug = re.sub(r"\W", "-", str(Path.cwd()))
    return Path(os.environ["HOME"], ".iflow", "projects", slug)


class Turn:
    def __init__(self, model: str, session: Session) -> None:
        self.model = model
        self.session = session
        self.began = time.monotonic()
        self.rounds = 0
        self.tokens = {"input": 0, "output": 0, "total": 0}

    def play(self, prompt: str) -> None:
        self.session.add({"role": "user", "content": prompt})
        try:
            while calls := self.answer():
                for call in calls:
                    self.session.add({"role": "tool", "tool_call_id": call["id"], "content": _run(call["function"])})
        except RequestFailed:
            report = f"{os.environ.get('TMPDIR', '')}/iflow-client-error-Turn.run-sendMessageStream.json"
            print(f"Error when talking to iFlow API Full report available at: {report}", file=sys.stderr)
        print(flush=True)
        self.tell_end()

    def answer(self) -> list[dict[str, Any]]:
        """One round: what the model says is printed as it is, and its calls are given back."""
        self.rounds += 1
        reply = self.request()
        for name, count in (("input", "prompt_tokens"), ("output", "completion_tokens"), ("total", "total_tokens")):
            self.tokens[name] += reply["usage"][count]
        message = reply["choices"][0]["message"]
        self.say(message["content"] or "")
        self.session.add(message)
        return message.get("tool_calls") or []

    def say(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def note(self, line: str) -> None:
        print(line, flush=True)

    def request(self) -> dict[str, Any]:
        failure = RequestFailed("")
        for attempt in range(ATTEMPTS):
            self.note(f"Model {self.model} does not support thinking mode")
            try:
                return self.post()
            except RequestFailed as error:
                failure = error
                if attempt + 1 == ATTEMPTS:
                    break
                print(f"Attempt {attempt + 1} failed. Retrying with backoff... Error: {error}", file=sys.stderr)
                print("    at gH.generateContentInternal (file:///bundle/iflow.js:127698:13)", file=sys.stderr)
        raise failure

    def post(self) -> dict[str, Any]:
        body = {
            "model": self.model,
            "messages": [*SETTING_UP, *self.session.history],
            "tools": [{"type": "function", "function": SHELL}],
        }
        request = urllib.request.Request(
            f"{os.environ['IFLOW_BASE_URL']}/chat/completions",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['IFLOW_API_KEY']}"},
        )
        try:
            # On loopback no proxy of the machine's has any business.
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
                read: dict[str, Any] = json.loads(answer.read())
                return read
        except urllib.error.HTTPError as error:
            raise RequestFailed(_refusal(error)) from error
        except http.client.HTTPException as error:
            raise RequestFailed("generate data error: terminated") from error
        except OSError as error:
            raise RequestFailed("generate data error: fetch failed") from error

    def tell_end(self) -> None:
        info = {
            "session-id": self.session.id,
            "conversation-id": str(uuid.uuid4()),
            "assistantRounds": self.rounds,
            "executionTimeMs": int(1000 * (time.monotonic() - self.began)),
            "tokenUsage": self.tokens,
        }
        print(f"\n<Execution Info>\n{json.dumps(info, indent=2)}\n</Execution Info>", file=sys.stderr)
        print("Error shutting down SDK: Error: getaddrinfo EAI_AGAIN telemetry.example", file=sys.stderr, flush=True)


class Talk:
    """The program that stays: one message of JSON-RPC a line, turns in a thread of their own so that one can be ended."""

    def __init__(self, model: str, mode: str) -> None:
        self.model = model
        self.mode = mode
        self.session = Session(f"session-{uuid.uuid4()}", [])
        self.session_id = self.session.id.removeprefix("session-")
        self._lock = threading.Lock()
        self._open: int | None = None

    def listen(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            match message["method"]:
                case "initialize":
                    print("[iFlow ACP Agent] ACP adapter factory initialized", flush=True)
                    known = "IFLOW_API_KEY" in os.environ
                    self.send(id=message["id"], result={"isAuthenticated": known, "protocolVersion": 1, **ABOUT})
                case "session/new" if "IFLOW_API_KEY" in os.environ:
                    modes = {"currentModeId": self.mode, "availableModes": MODES}
                    self.send(id=message["id"], result={"sessionId": self.session_id, "modes": modes})
                case "session/set_mode":
                    self.send(id=message["id"], result={})
                case "session/prompt":
                    self._open = message["id"]
                    prompt = message["params"]["prompt"]
                    threading.Thread(target=self.play, args=(self._open, prompt), daemon=True).start()
                case "session/cancel" if self._open is not None:
                    self.end(self._open, result={"stopReason": "cancelled"})
                case _:
                    self.send(id=message.get("id"), error={"code": -32000, "message": "Authentication required"})

    def play(self, number: int, prompt: list[dict[str, str]]) -> None:
        if not self.session.history:
            self.update("available_commands_update", availableCommands=COMMANDS)
        try:
            # A command is no message: the model never sees it.
            if not prompt[0]["text"].startswith("/"):
                ResidentTurn(self.model, self.session, self).play("\n".join(block["text"] for block in prompt))
            self.end(number, result={"stopReason": "end_turn"})
        except RequestFailed as error:
            self.end(number, error={"code": -32603, "message": "Internal error", "data": {"details": str(error)}})

    def update(self, kind: str, /, **rest: Any) -> None:
        update = {"sessionUpdate": kind, **rest}
        self.send(method="session/update", params={"sessionId": self.session_id, "update": update})

    def end(self, number: int, **how: Any) -> None:
        """Each turn is ended once."""
        with self._lock:
            if self._open != number:
                return
            self._open = None
        self.send(id=number, **how)

    def send(self, **message: Any) -> None:
        with self._lock:
            print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


class ResidentTurn(Turn):
    def __init__(self, model: str, session: Session, talk: Talk) -> None:
        super().__init__(model, session)
        self._talk = talk

    def play(self, prompt: str) -> None:
        self.session.add({"role": "user", "content": prompt})
        while calls := self.answer():
            for call in calls:
                self.use(call)

    def say(self, text: str) -> None:
        if text:
            self._talk.update("agent_message_chunk", content={"type": "text", "text": text})

    def note(self, line: str) -> None:
        pass

    def use(self, call: dict[str, Any]) -> None:
        about = {"toolCallId": call["id"], "toolName": call["function"]["name"]}
        given = json.loads(call["function"]["arguments"])
        self._talk.update("tool_call", **about, status="pending", title="Shell", kind="execute")
        running = {"status": "in_progress", "title": str(given.get("command")), "args": given, "kind": "execute"}
        self._talk.update("tool_call_update", **about, **running, content=[], locations=[])
        printed = _run(call["function"])
        self.session.add({"role": "tool", "tool_call_id": call["id"], "content": printed})
        content = [{"type": "content", "content": {"type": "text", "text": printed}}]
        self._talk.update("tool_call_update", **about, status="completed", content=content)


def _refusal(error: urllib.error.HTTPError) -> str:
    with error:
        body = error.read().decode()
    if error.code == 429:
        return "This model has reached the platform rate limit, the system will retry the request."
    return f"generate data error: HTTP error! status: {error.code}, body: {body} TraceID: 00-{uuid.uuid4().hex}-01"


def _run(function: dict[str, Any]) -> str:
    if function["name"] != SHELL["name"]:
        return f'Tool "{function["name"]}" not found in registry.'
    command = json.loads(function["arguments"])["command"]
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    return f"Command: {command}\nStdout: {ran.stdout}\nStderr: {ran.stderr}\nExit Code: {ran.returncode}"


if __name__ == "__main__":
    sys.exit(main())
