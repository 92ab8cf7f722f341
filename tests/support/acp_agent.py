"""A program that speaks the Agent Client Protocol, with any quirk that such programs have: each argument is one.

Its "model" asks for a colour, and finishes with the answer that it hears. Its sessions are files in its home, which say what
the model saw. Uses nothing but the standard library, and shares no code with the rest.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

QUIRKS = dict(each.removeprefix("--").partition("=")[::2] for each in sys.argv[1:])
SESSIONS = Path(os.environ["HOME"]) / ".agent" / "sessions"
AUTH_REQUIRED, UNKNOWN = -32000, -32602


class Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Agent:
    def __init__(self) -> None:
        self.session = ""
        self.said: list[dict[str, str]] = []
        self.servers: list[dict[str, Any]] = []
        self.signed_in = "auth" not in QUIRKS
        self.last_request = 0

    # The transport.

    def send(self, **message: Any) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def update(self, kind: str, session: str = "", /, **rest: Any) -> None:
        params = {"sessionId": session or self.session, "update": {"sessionUpdate": kind, **rest}}
        self.send(method="session/update", params=params)

    def chunk(self, text: str, kind: str = "agent_message_chunk", session: str = "") -> None:
        self.update(kind, session, content={"type": "text", "text": text})

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """A request to the client, and its answer."""
        self.last_request += 1
        self.send(id=f"ours-{self.last_request}", method=method, params={"sessionId": self.session, **params})
        for line in sys.stdin:
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == f"ours-{self.last_request}":
                return message.get("result", {})
        sys.exit(0)

    def serve(self) -> None:
        for line in sys.stdin:
            request = json.loads(line)
            if "id" not in request or "method" not in request:
                continue
            try:
                result = self.answer(request["method"], request.get("params", {}))
            except Refused as refused:
                self.send(id=request["id"], error={"code": refused.code, "message": str(refused)})
            else:
                self.send(id=request["id"], result=result)
                if "late" in QUIRKS and request["method"] == "session/load":
                    self.replay()

    # The protocol.

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                sessions = {name: {} for name in ("resume", "close") if name in QUIRKS}
                offered = {"loadSession": "load" in QUIRKS, "sessionCapabilities": sessions}
                about = {"name": "agent", "version": QUIRKS.get("version", "1.2.3")}
                return {"protocolVersion": 1, "agentCapabilities": offered, "agentInfo": about}
            case "authenticate":
                self.signed_in = params["methodId"] == QUIRKS["auth"]
                return {}
            case "session/new":
                self.check_sign_in()
                self.session, self.servers = f"s-{uuid.uuid4()}", params["mcpServers"]
                self.store()
                return {"sessionId": self.session, "modes": MODES, "configOptions": OPTIONS}
            case "session/load" | "session/resume":
                self.check_sign_in()
                return self.continue_session(method, params)
            case "session/set_mode" | "session/set_config_option":
                self.note("set", json.dumps(params))
                return {}
            case "session/prompt":
                return self.turn("".join(block["text"] for block in params["prompt"][-1:]))
            case "session/close":
                self.store()
                return {}
        raise Refused(-32601, f"{method} is not supported")

    def check_sign_in(self) -> None:
        if not self.signed_in:
            raise Refused(AUTH_REQUIRED, "Authentication required")

    def continue_session(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.session, self.servers = params["sessionId"], params["mcpServers"]
        file = SESSIONS / f"{self.session}.json"
        if "new-session" in QUIRKS:
            self.session = f"s-{uuid.uuid4()}"
        elif not file.is_file() or "unknown" in QUIRKS:
            raise Refused(UNKNOWN, f"Unknown session: {self.session}")
        else:
            self.said = json.loads(file.read_text())
        if "forgets" in QUIRKS:
            self.said = []
        if method == "session/load" and "late" not in QUIRKS:
            self.replay(params["sessionId"])
        named = {"sessionId": self.session} if QUIRKS.get("new-session") == "named" else {}
        return {**named, "modes": MODES, "configOptions": OPTIONS}

    def replay(self, session: str = "") -> None:
        for each in self.said:
            if each["kind"] in ("user", "agent"):
                self.chunk(each["text"], f"{each['kind']}_message_chunk", session)

    def note(self, kind: str, text: str) -> None:
        self.said.append({"kind": kind, "text": text})

    def store(self) -> None:
        SESSIONS.mkdir(parents=True, exist_ok=True)
        (SESSIONS / f"{self.session}.json").write_text(json.dumps(self.said))

    # The turn.

    def turn(self, prompt: str) -> dict[str, Any]:
        self.note("user", prompt)
        if "echoes" in QUIRKS:
            self.chunk(prompt, "user_message_chunk")
        for notice in filter(None, QUIRKS.get("notice", "").split("|")):
            self.chunk(notice)
        if "retries" in QUIRKS:
            about = {"category": "server_error", "detail": QUIRKS["retries"]}
            self.send(method="_session/retrying", params={"sessionId": self.session, **about})
            time.sleep(3600)
        if "error" in QUIRKS:
            raise Refused(-32603, QUIRKS["error"])
        while "floods" in QUIRKS:
            self.chunk("and on and on " * 1000)
        if "dies" in QUIRKS:
            os.kill(os.getpid(), signal.SIGKILL)
        self.use_tools()
        for text in self.model(prompt):
            self.note("agent", text)
            self.chunk(text)
        # Such a program writes its last message only when it is asked to close the session.
        if "lazy" not in QUIRKS:
            self.store()
        return {"stopReason": "end_turn", "usage": {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18}}

    def use_tools(self) -> None:
        call = {"toolCallId": "call-1", "title": "shell", "kind": "execute"}
        if "tool" in QUIRKS:
            self.update("tool_call", **call, status="in_progress", rawInput={})
            self.update("tool_call_update", **call, status="in_progress", rawInput={"command": "echo hi"})
            self.update("tool_call_update", toolCallId="call-1", status="completed")
        if "permission" in QUIRKS:
            options = [
                {"optionId": "1", "name": "No", "kind": "reject_once"},
                {"optionId": "2", "name": "Yes", "kind": "allow_once"},
            ]
            self.note("permission", json.dumps(self.ask("session/request_permission", toolCall=call, options=options)))
        if "elicits" in QUIRKS:
            form = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
            answer = self.ask("elicitation/create", mode="form", message="What?", requestedSchema=form)
            self.note("elicited", json.dumps(answer))

    def model(self, prompt: str) -> Iterator[str]:
        if "silent" in QUIRKS or "notice" in QUIRKS:
            return
        heard = " ".join(each["text"] for each in self.said)
        if word := re.search(r"Remember the word (\w+)\.", prompt):
            yield "OK" if word else ""
        elif prompt.startswith("Which word should you remember?"):
            remembered = re.findall(r"Remember the word (\w+)\.", heard)
            yield remembered[0] if remembered else "none"
        elif (reply := re.search(r"<user_reply[^>]*>\n(.*?)\n</user_reply>", prompt)) is not None:
            yield json.dumps({"colour": reply[1], "__SKILL_DONE__": True})
        elif self.servers:
            call_tool(self.servers[0], {"interaction_id": "colour", "prompt": "Which colour?"})
            yield "I have asked."
        else:
            asked = {"interaction_id": "colour", "prompt": "Which colour?"}
            yield "```json\n" + json.dumps({"ask_user": asked}) + "\n```"


MODES = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "free", "name": "Free"}]}
OPTIONS = [{"id": "brain", "category": "model", "name": "Model", "type": "select", "currentValue": "a", "options": []}]


def call_tool(server: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Call the first tool of an MCP server on stdio."""
    with subprocess.Popen(
        [server["command"], *server["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        stdin, stdout = program.stdin, program.stdout
        assert stdin is not None
        assert stdout is not None

        def request(number: int, method: str, **params: Any) -> dict[str, Any]:
            stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
            stdin.flush()
            answers = (json.loads(line) for line in stdout)
            result: dict[str, Any] = next(each for each in answers if each.get("id") == number)["result"]
            return result

        request(
            1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "a", "version": "1"}
        )
        (tool,) = request(2, "tools/list")["tools"]
        request(3, "tools/call", name=tool["name"], arguments=arguments)
        stdin.close()


if __name__ == "__main__":
    if "stays" in QUIRKS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Agent().serve()
    while "stays" in QUIRKS:
        time.sleep(3600)
