"""The program `parrot`: asks for a colour, and repeats what it was told. In the place of a coding agent.

It knows nothing of Askback but what stands in its prompt, keeps its sessions below HOME, and prints one event a line.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import uuid
from pathlib import Path

QUESTION = {"ask_user": {"interaction_id": "colour", "prompt": "Which colour shall I say?"}}


def main() -> int:
    parser = argparse.ArgumentParser(prog="parrot", description=__doc__)
    parser.add_argument("--model", help="which parrot")
    parser.add_argument("--resume", metavar="ID", help="go on with a session")
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
    tell("session", id=path.stem)
    tell("say", text=answer(heard))
    tell("end")
    return 0


def answer(heard: list[str]) -> str:
    told = re.search(r"<user_reply [^>]*>\n(.*)\n</user_reply>", heard[-1], re.DOTALL)
    said = QUESTION if told is None else {"colour": told[1], "turns": len(heard), "__SKILL_DONE__": True}
    return f"```json\n{json.dumps(said)}\n```"


def tell(event: str, **rest: str) -> None:
    print(json.dumps({"event": event, **rest}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
