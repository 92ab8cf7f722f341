"""The program `parrot`: asks for a colour, and repeats the answer. It takes the place of a coding agent.

It knows nothing of Askback but its prompt, keeps its sessions below HOME, and prints one event per line.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import uuid
from pathlib import Path

QUESTION = {"ask_user": {"interaction_id": "colour", "prompt": "Which colour should I say?"}}


def main() -> int:
    parser = argparse.ArgumentParser(prog="parrot", description=__doc__)
    parser.add_argument("--model", help="which parrot")
    parser.add_argument("--resume", metavar="ID", help="resume a session")
    given = parser.parse_args()
    prompt = sys.stdin.read()
    folder = Path.home() / ".parrot"
    path = folder / f"{given.resume or f'parrot-{uuid.uuid4().hex}'}.json"
    if given.resume and not path.exists():
        print("parrot: no such session", file=sys.stderr)
        return 1
    heard = [*(json.loads(path.read_text()) if given.resume else []), prompt]
    folder.mkdir(exist_ok=True)
    path.write_text(json.dumps(heard))
    emit("session", id=path.stem)
    emit("say", text=answer(heard))
    emit("end")
    return 0


def answer(heard: list[str]) -> str:
    answered = re.search(r"<user_reply [^>]*>\n(.*)\n</user_reply>", heard[-1], re.DOTALL)
    said = QUESTION if answered is None else {"colour": answered[1], "turns": len(heard), "__SKILL_DONE__": True}
    return f"```json\n{json.dumps(said)}\n```"


def emit(event: str, **rest: str) -> None:
    print(json.dumps({"event": event, **rest}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
