"""A program in place of `codex` that lists models as its app server does, and writes down every start."""

from __future__ import annotations

import json
import sys
from pathlib import Path

_PROGRAM = """
import json, os, sys, time
from pathlib import Path
PLAN = Path({plan!r})
if "--help" in sys.argv:
    print("Usage: codex exec resume [OPTIONS] [SESSION_ID] [PROMPT]\\nUsage: codex app-server [OPTIONS]")
    print("--json --skip-git-repo-check --model --config --output-schema")
    sys.exit()
if "--version" in sys.argv:
    print("codex-cli 1.0.0")
    sys.exit()
plan = json.loads(PLAN.read_text())
with open(PLAN.with_name("starts"), "a") as starts:
    starts.write(json.dumps({{"home": os.environ["HOME"], "argv": sys.argv[1:]}}) + "\\n")
if plan.get("says"):
    sys.exit(plan["says"])
exec(plan.get("first", ""))
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "model/list":
        print(json.dumps({{"id": asked["id"], "result": {{"data": plan["models"], "nextCursor": None}}}}), flush=True)
    elif "id" in asked:
        print(json.dumps({{"id": asked["id"], "result": {{}}}}), flush=True)
"""
MODELS = [
    {
        "model": "big-1",
        "displayName": "Big 1",
        "description": "The large one.",
        "isDefault": True,
        "supportedReasoningEfforts": [{"reasoningEffort": "low"}, {"reasoningEffort": "high"}],
    },
    {"model": "small-1", "displayName": "Small 1"},
    {"model": "secret-1", "hidden": True},
]


class ListingEngine:
    """The program, below `folder`, and what it was started for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "listing"
        self.folder.mkdir(parents=True)
        self._program = self.folder / "codex.py"
        self._plan = self.folder / "plan.json"
        self._program.write_text(_PROGRAM.format(plan=str(self._plan)))
        self.answer()

    def answer(self, **plan: object) -> None:
        """What it does from now on: `models` that it lists, last words that it `says`, or Python that it runs `first`."""
        self._plan.write_text(json.dumps({"models": MODELS, **plan}))

    @property
    def command(self) -> tuple[str, ...]:
        return sys.executable, str(self._program)

    @property
    def settings(self) -> str:
        """Lines of the settings. The program writes beside itself, so it runs without a sandbox."""
        return f'sandbox = "off"\n[engines.codex]\ncommand = {json.dumps(self.command)}\n'

    @property
    def starts(self) -> list[dict[str, object]]:
        file = self.folder / "starts"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
