"""Programs in place of real engines: each answers as the real one was recorded, and first does what its case says.

The case is named by the run's model, so that one program on one data folder plays all of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

_RECORDED = Path(__file__).parents[1] / "engines"
_ANSWER = json.dumps({"colour": "red", "__SKILL_DONE__": True})
_QUESTION = "Which colour?"
_PROGRAM = """
import json, os, sys, time
from pathlib import Path
CASES, STDOUT, STDERR, ANSWER = json.loads({plan!r})
HELP = '''
Usage: codex exec resume [OPTIONS] [SESSION_ID] [PROMPT]
Usage: codex app-server [OPTIONS]
opencode acp
  --resume --session --acp --experimental-acp --output-format json stream-json --format --auto --yolo --json
  --dangerously-bypass-approvals-and-sandbox --output-schema --input-format
'''
if "--help" in sys.argv:
    print(HELP)
    sys.exit()
if "--version" in sys.argv:
    print("1.0.0")
    sys.exit()
home, work = Path(os.environ["HOME"]), Path.cwd()
model = next((word for word in sys.argv if word.split("=")[-1] in CASES), "").split("=")[-1]
exec(CASES.get(model, ""))
sys.stderr.write(STDERR)
sys.stdout.write(STDOUT)
"""


def stand_in(folder: Path, engine: str, cases: Mapping[str, str]) -> str:
    """Write the program; returns the lines of the settings that name it. Each case is Python, with `home` and `work`."""
    recorded = _RECORDED / engine / "first_turn"
    answer = _ANSWER if engine == "iflow" else json.dumps(_ANSWER)[1:-1]
    stdout = (recorded / "stdout").read_text().replace(_QUESTION, answer)
    stderr = (recorded / "stderr").read_text() if (recorded / "stderr").exists() else ""
    program = folder / engine / "stand_in.py"
    program.parent.mkdir(parents=True)
    program.write_text(_PROGRAM.format(plan=json.dumps([cases, stdout, stderr, answer])))
    return f"[engines.{engine}]\ncommand = {json.dumps([sys.executable, str(program)])}\n"


def tree(folder: Path) -> dict[str, bytes]:
    """All that is in a folder, by paths: what files hold, and where links lead."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = b"-> " + bytes(path.readlink())
        else:
            found[name] = path.read_bytes() if path.is_file() else b""
    return found
