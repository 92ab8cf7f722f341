"""The program that stands in for iFlow prints what the real one was recorded to print, and errs as it did."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from clis import KEY
from double import ModelDouble, Step, always, fail, hang, say
from engines_under_test import ENGINES

RECORDINGS = Path(__file__).resolve().parents[1] / "engines" / "iflow"
UNKNOWN = "session-11111111-2222-4333-8444-555555555555"

_FORMS = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"Model \S+ does", "Model M does"),
    (r"body: .*", "body"),
    (r"the system will retry.*", "…"),
    (r"Full report available at: .*", "Full report"),
    (r"failed(?: with 5xx error)?\.", "failed."),
    (r"(?:ENOTFOUND|EAI_AGAIN)", "E"),
    (r"\d+", "N"),
)
# What a stack trace adds depends on the file it comes from.
_TRACE = re.compile(r"^ +(?:at |\.\.\. |\[cause\]|errno:|code:|syscall:|hostname:).*\n|^\}\n| \{$", re.MULTILINE)


def shape(text: str) -> str:
    """A text without what differs from one turn to the next."""
    text = _TRACE.sub("", text)
    for pattern, form in _FORMS:
        text = re.sub(pattern, form, text)
    return text


class Iflow:
    """The stand-in in a home and a folder of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.home, self.cwd = folder / "home", folder / "work"
        self.home.mkdir()
        self.cwd.mkdir()
        self.command = ENGINES["iflow"].find()
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "IFLOW_BASE_URL": f"{url}/v1",
            "IFLOW_API_KEY": KEY,
            "IFLOW_MODEL_NAME": "fake-model",
        }

    def start(self, *args: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.command, "--yolo", *args],
            cwd=cwd or self.cwd,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *args: str, prompt: str, cwd: Path | None = None) -> tuple[int, str, str]:
        with self.start(*args, cwd=cwd) as child:
            stdout, stderr = child.communicate(prompt, timeout=30)
        return child.returncode, stdout, stderr


@pytest.fixture
def iflow(tmp_path: Path, double: ModelDouble) -> Iflow:
    return Iflow(tmp_path, double.url)


def recorded(case: str) -> tuple[int, str, str]:
    folder = RECORDINGS / case
    code, stdout, stderr = ((folder / name).read_text() for name in ("exit", "stdout", "stderr"))
    return int(code), shape(stdout), shape(stderr)


def session_in(stderr: str) -> str:
    found = re.search(r'"session-id": "(session-[^"]+)"', stderr)
    assert found is not None
    return found[1]


def test_its_turns_look_as_recorded(iflow: Iflow, double: ModelDouble) -> None:
    double.play(say("Which colour?"), *(say("RESUMED") for _ in range(2)))
    code, stdout, stderr = iflow.run(prompt="Paint the wall")
    assert (code, shape(stdout), shape(stderr)) == recorded("stdin_prompt")
    session = session_in(stderr)
    code, _, stderr = iflow.run("--resume", session, "-p", "ANSWER blue", prompt="")
    assert (code, shape(stderr)) == (0, recorded("resumed_turn")[2])
    assert session_in(stderr) == session
    code, _, stderr = iflow.run("--resume", UNKNOWN, prompt="ANSWER blue")
    assert (code, shape(stderr)) == (0, recorded("unknown_session")[2])
    assert session_in(stderr) not in (session, UNKNOWN)
    assert [len(request.user_texts) for request in double.requests] == [2, 3, 2]


@pytest.mark.parametrize(("case", "step"), [("http_401", fail(401)), ("http_429", fail(429)), ("http_500", fail(500))])
def test_its_failures_look_as_recorded(iflow: Iflow, double: ModelDouble, case: str, step: Step) -> None:
    double.play(always(step))
    code, stdout, stderr = iflow.run(prompt="Paint the wall")
    assert (code, shape(stdout), shape(stderr)) == recorded(case)


def test_a_session_is_found_only_from_its_own_folder(iflow: Iflow, double: ModelDouble, tmp_path: Path) -> None:
    double.play(say("one"), say("two"))
    session = session_in(iflow.run(prompt="x")[2])
    _, _, stderr = iflow.run("--resume", session, prompt="y", cwd=tmp_path)
    assert session_in(stderr) != session
    assert "Resuming" not in stderr


def test_it_ignores_being_asked_to_end(iflow: Iflow, double: ModelDouble) -> None:
    held = hang(say("done"))
    double.play(held)
    with iflow.start("-p", "x") as child:
        assert held.reached.wait(30)
        child.send_signal(signal.SIGTERM)
        held.release()
        assert child.wait(30) == 0
        assert child.stdout is not None
        assert child.stdout.read().endswith("done\n")
