"""Plays turns: reads the prompt, names the session, executes the script's steps, and ends the turn."""

# No pathlib: importing it would take a third of the startup time.
# ruff: noqa: PTH103, PTH109, PTH110, PTH117, PTH120
from __future__ import annotations

import json
import os
import signal
import sys
import time

from .input import VERSION, UsageError, facts_of, help_text, read_options, turns_in_transcript
from .scripts import (
    UNPLAYABLE,
    Script,
    ScriptError,
    TemplateError,
    as_text,
    load_script,
    problems,
    render,
    render_text,
    verb_of,
)
from .sessions import Session, SessionError, UnknownSession

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from .ask_tool import AskTool
    from .input import Input
    from .scripts import Step

_MARKER = "__SKILL_DONE__"
_RECORDED = "The question is recorded."
_POLL_SEC = 0.004
_SCRIPT_INVALID = "script_invalid"


def main(argv: Sequence[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if "--version" in argv or "--help" in argv:
        print(f"{VERSION}\n" if "--version" in argv else help_text(argv), end="")
        return 0
    try:
        options = read_options(argv)
        if "check" in options:
            return check(options["check"])
        player = Player(options)
        return player.stay() if player.stays else player.play(sys.stdin.buffer.read().decode("utf-8", "replace"))
    except UsageError as error:
        print(f"error: {error}; see --help", file=sys.stderr)
        return 2


def check(path: str) -> int:
    """Print the problems of a script as JSON: pairs of a place and what is wrong there."""
    try:
        with open(path, "rb") as file:
            found = list(problems(json.load(file)))
    except (OSError, ValueError, RecursionError) as error:
        found = [("", f"cannot be read: {error}")]
    print(json.dumps(found))
    return 0


class Failed(Exception):
    """The turn failed, and its failure was printed."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class Answered(Exception):
    """The ask tool has returned the answer of the user: the next turn of the script is played."""


class Player:
    def __init__(self, options: dict[str, str]) -> None:
        self.stays = "stay" in options
        self.input: Input | None = None
        self._options = options
        self._home = os.environ.get("HOME", ".")
        self._session: Session | None = None
        self._named = False
        self._tools = 0
        self._questions = 0
        self._ask_tool: AskTool | None = None
        self._answered = False
        self._usage_so_far: dict[str, Any] = {}
        self._facts: dict[str, Any] = {}

    def stay(self) -> int:
        """Play a turn for every prompt. A failed turn is reported, and the next prompt is read."""
        from .input import Input

        self.input = Input()
        while (message := self.input.next("prompt")) is not None:
            self.play(str(message.get("text", "")))
        return 0

    # One turn.

    def play(self, prompt: str) -> int:
        try:
            script = load_script(self._options.get("script"), self._options.get("default-script"))
            self._play(script, prompt)
        except BrokenPipeError:
            return 1
        except (ScriptError, TemplateError) as error:
            self._report_failure(str(error), _SCRIPT_INVALID)
            return 1
        except UnknownSession as error:
            self._report_failure(str(error), "session_unknown")
            return 1
        except (SessionError, OSError) as error:
            self._report_failure(str(error))
            return 1
        except (TypeError, ValueError, AttributeError, KeyError, RecursionError) as error:
            self._report_failure(f"a step of the script has an invalid value: {error!r}", _SCRIPT_INVALID)
            return 1
        except Failed as failed:
            return failed.exit_code
        return 0

    def _play(self, script: Script, prompt: str) -> None:
        session = self._session
        if session is None and "resume" in self._options:
            session = Session.resume(self._home, self._options["resume"])
        session = session or Session.start(self._home)
        if not session.records and (turns := turns_in_transcript(prompt)):
            session.add("rebuilt", turns=turns)
        steps = script.steps(session.turn, self._mode)
        if (self._session or "resume" in self._options) and _has_fault(steps, "other_session"):
            session = Session.start(self._home)
        is_new, self._session, self._usage_so_far = session is not self._session, session, {}
        facts = facts_of([*session.records, {"type": "prompt", "text": prompt}], session.turn, session.id)
        self._facts = {**facts, "values": script.values}
        self._do([step for step in steps if step.get("before_session")])
        if is_new and not _has_fault(steps, "no_session"):
            self.emit("session.started", session_id=session.id)
        self._named = True
        chosen = {name: self._options.get(name) for name in ("model", "effort")}
        session.add("prompt", text=prompt, mode=self._mode, **chosen, pid=os.getpid())
        if "gate" in self._options and not _has_fault(steps, "no_gate"):
            self._ask_gate({"hook_event_name": "SessionStart"})
        self.emit("turn.started", turn=session.turn)
        self._do_until_answered([step for step in steps if not step.get("before_session")])
        while self._answered:
            self._answered = False
            self._facts |= facts_of(session.records, session.turn, session.id)
            self._do_until_answered(script.steps(session.turn, self._mode))
        self.complete()

    def _do_until_answered(self, steps: Sequence[Step]) -> None:
        try:
            self._do(steps)
        except Answered:
            self._answered = True

    @property
    def _mode(self) -> str:
        return self._options.get("mode", "interactive")

    def _do(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if UNPLAYABLE in step:
                raise ScriptError(step[UNPLAYABLE])
            getattr(self, f"_{verb_of(step)}")(step)

    def complete(self, end: bytes = b"\n") -> None:
        """End the turn properly."""
        if self._session is not None:
            self._session.add("completed")
        self.write(json.dumps({"type": "turn.completed", "usage": self._usage_so_far}).encode() + end)

    def fail(self, words: str, exit_code: int) -> NoReturn:
        """End the turn with a failure event."""
        self._report_failure(words)
        raise Failed(exit_code)

    def _report_failure(self, words: str, code: str | None = None) -> None:
        print(f"error: {words}", file=sys.stderr, flush=True)
        reason = {"message": words, **({} if code is None else {"code": code})}
        if self._named or self.stays:
            self.emit("turn.failed", error=reason)
        else:
            self.emit("error", **reason)

    # Output.

    def emit(self, kind: str, **fields: Any) -> None:
        self.write(json.dumps({"type": kind, **fields}, ensure_ascii=False).encode("utf-8", "replace") + b"\n")

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(1, data) :]

    def text(self, value: Any) -> str:
        return render_text(value, self._facts)

    def touch(self, path: str) -> None:
        with open(path, "ab"):
            pass

    def _speak(self, text: str) -> None:
        if self._session is not None:
            self._session.add("message", text=text)
        self.emit("message", text=text)

    # The steps: one method each, called by name.

    def _say(self, step: Step) -> None:
        self._speak(self.text(step["say"]))

    def _ask(self, step: Step) -> None:
        self._speak(_block({"ask_user": render(step["ask"], self._facts)}))

    def _ask_native(self, step: Step) -> None:
        if self.input is None or self._session is None or "no-native" in self._options:
            raise ScriptError("the script asks through the program's own protocol, which needs --stay")
        self._questions += 1
        asked = {"id": f"question-{self._questions}", "question": render(step["ask_native"], self._facts)}
        self._session.add("question", **asked)
        self.emit("question", **asked)
        answer = self.input.next("answer", asked["id"])
        if answer is None:
            raise Failed(0)
        self._session.add("answer", id=asked["id"], response=answer.get("response"))
        facts = facts_of(self._session.records, self._session.turn, self._session.id)
        self._facts |= {name: facts[name] for name in ("reply", "reply_json", "replies")}

    def _put_question(self, step: Step) -> None:
        """Ask by the ask tool, and if there is none with a block."""
        if "ask-tool" not in self._options:
            self._ask({"ask": step["put_question"]})
            return
        from .ask_tool import AskTool

        self._ask_tool = self._ask_tool or AskTool(json.loads(self._options["ask-tool"]))
        self._tools += 1
        call = {"id": f"tool-{self._tools}", "name": "put_question"}
        arguments = render(step["put_question"], self._facts)
        self.emit("tool.started", **call, detail=as_text(arguments))
        if self._session is not None:
            self._session.add("call", **call)
        ok, output = self._ask_tool.call(arguments, kill=bool(step.get("kill")))
        answered = ok and not output.startswith(_RECORDED)
        if self._session is not None:
            self._session.add("tool", **call, ok=ok, output=output, answered=answered)
        self.emit("tool.ended", **call, ok=ok, output=output)
        if answered:
            raise Answered

    def _output(self, step: Step) -> None:
        self._speak(_block(render(step["output"], self._facts)))

    def _finish(self, step: Step) -> None:
        data = render(step["finish"], self._facts)
        marked = _block({**data, _MARKER: True}) if isinstance(data, dict) else f"{as_text(data)}\n{_MARKER}"
        self._speak(marked)

    def _tool(self, step: Step) -> None:
        tool = render(step["tool"], self._facts)
        self._tools += 1
        call = {"id": f"tool-{self._tools}", "name": as_text(tool.get("name", "tool"))}
        self.emit("tool.started", **call, detail=as_text(tool.get("detail", "")))
        if "gate" in self._options and not tool.get("ungated"):
            refusal = self._ask_gate(
                {
                    "hook_event_name": "PreToolUse",
                    "tool_name": call["name"],
                    "tool_input": tool.get("input", {}),
                    "tool_use_id": call["id"],
                    **({"agent_id": "helper"} if tool.get("subagent") else {}),
                }
            )
            if refusal is not None:
                if self._session is not None:
                    self._session.add("refused", **call, output=refusal)
                self.emit("tool.ended", **call, ok=False, output=refusal)
                return
        if "append" in tool:
            with open(as_text(tool["append"]), "a", encoding="utf-8") as file:
                file.write("made\n")
        time.sleep(float(tool.get("sleep_sec", 0)))
        if tool.get("ends", True):
            self.emit("tool.ended", **call, ok=bool(tool.get("ok", True)), output=as_text(tool.get("output", "")))

    def _ask_gate(self, about: dict[str, Any]) -> str | None:
        """Run the hook. Returns why a call is denied; None if it is allowed."""
        import subprocess

        payload = json.dumps({**about, "session_id": "", "cwd": os.getcwd()}).encode()
        command = json.loads(self._options["gate"])
        asked = subprocess.run(command, input=payload, capture_output=True, check=False)
        return None if asked.returncode == 0 else asked.stderr.decode("utf-8", "replace").strip() or "denied"

    def _write(self, step: Step) -> None:
        path = as_text(render(step["write"]["path"], self._facts))
        if os.path.isabs(path) or ".." in path.split("/"):
            raise ScriptError(f"the script writes to {path}, which is not below the working directory")
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text(step["write"]["text"]))

    def _touch(self, step: Step) -> None:
        self.touch(self.text(step["touch"]))

    def _wait_for(self, step: Step) -> None:
        path = self.text(step["wait_for"])
        while not os.path.exists(path):
            time.sleep(_POLL_SEC)

    def _sleep_sec(self, step: Step) -> None:
        time.sleep(float(step["sleep_sec"]))

    def _usage(self, step: Step) -> None:
        self._usage_so_far = render(step["usage"], self._facts)
        self.emit("usage", usage=self._usage_so_far)

    def _stderr(self, step: Step) -> None:
        print(self.text(step["stderr"]), file=sys.stderr, flush=True)

    def _misbehave(self, step: Step) -> None:
        from .faults import misbehave

        misbehave(self, step)


def _block(value: Any) -> str:
    return f"```json\n{json.dumps(value, ensure_ascii=False, indent=2)}\n```"


def _has_fault(steps: Sequence[Step], name: str) -> bool:
    return any(step.get("misbehave") == name for step in steps)
