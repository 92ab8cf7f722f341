"""A new skill to start from: it asks a question, has schemas, and runs at once with the engine `scripted`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from askback.core.errors import Invalid, RefusalCode, Unavailable
from askback.skills.front_matter import FILE, MAX_NAME, NAME

INPUT = "topic=tea"
"""An input that the new skill accepts, as on the command line."""

_SKILL = """---
name: {name}
description: Writes a short note about a topic in the tone that the user likes. Replace this with what your skill does and when to use it.
---

# {title}

Write a short note about the input `topic`.

1. Ask which tone the note should have: `friendly` or `formal`. The default is `friendly`. If nobody can be asked, use
   the default.
2. Write the note to `artifacts/note.md`: three sentences at most.
3. Finish with the tone and the note.
"""
_RUNNER: dict[str, Any] = {
    "version": "0.1.0",
    "execution_modes": ["interactive", "auto"],
    "max_attempt": 6,
    "summary": "{{input.topic}}",
}
_INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"topic": {"description": "What the note is about.", "type": "string", "minLength": 1}},
    "required": ["topic"],
    "additionalProperties": False,
}
_OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tone": {"description": "The tone of the note.", "type": "string"},
        "note": {"description": "The note itself.", "type": "string", "minLength": 1},
    },
    "required": ["tone", "note"],
    "additionalProperties": False,
}
_QUESTION: dict[str, Any] = {
    "interaction_id": "tone",
    "prompt": "Which tone should the note about {{input.topic}} have?",
    "kind": "choice",
    "options": [{"label": "Friendly", "value": "friendly"}, {"label": "Formal", "value": "formal"}],
    "default": "friendly",
}
_SCRIPT: dict[str, Any] = {
    "values": {
        "tone": "{{reply|friendly}}",
        "note": {
            "$pick": "{{values.tone}}",
            "from": {
                "formal": "This note provides an overview of {{input.topic}}.",
                "*": "Here is what I like about {{input.topic}}!",
            },
        },
    },
    "parts": {
        "write the note": [
            {"write": {"path": "artifacts/note.md", "text": "{{values.note}}"}},
            {"finish": {"tone": "{{values.tone}}", "note": "{{values.note}}"}},
        ]
    },
    "turns": [
        {
            "interactive": [{"say": "I have an idea for the note."}, {"ask": _QUESTION}],
            "auto": [{"say": "Nobody can be asked, so I choose a friendly tone."}, {"play": "write the note"}],
        },
        {"interactive": [{"play": "write the note"}]},
    ],
}


def create_skill(folder: Path) -> list[str]:
    """Write a new skill into a new folder, whose name is the skill's. Returns its files. Overwrites nothing."""
    name = folder.name
    if not NAME.fullmatch(name) or len(name) > MAX_NAME:
        message = f"{name!r} is not the name of a skill: use at most {MAX_NAME} lowercase letters, digits and hyphens"
        raise Invalid(RefusalCode.SKILL_INVALID, f"{message}, such as my-skill")
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        message = f"{folder} already exists, and nothing is overwritten; choose another name"
        raise Invalid(RefusalCode.SKILL_INVALID, message) from None
    except OSError as error:
        raise _cannot_write(folder, error) from None
    files = _files(name)
    try:
        (folder / "assets").mkdir()
        for path, text in files.items():
            (folder / path).write_text(text, encoding="utf-8")
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise _cannot_write(folder, error) from None
    return list(files)


def _files(name: str) -> dict[str, str]:
    title = name.replace("-", " ").capitalize()
    documents = {
        "runner": {"id": name, **_RUNNER},
        "input.schema": _INPUT_SCHEMA,
        "output.schema": _OUTPUT_SCHEMA,
        "scripted": _SCRIPT,
    }
    assets = {f"assets/{key}.json": json.dumps(each, indent=2) + "\n" for key, each in documents.items()}
    return {FILE: _SKILL.format(name=name, title=title), **assets}


def _cannot_write(folder: Path, error: OSError) -> Unavailable:
    message = f"{folder} cannot be created: {error.strerror or error}"
    return Unavailable(RefusalCode.STORE_UNUSABLE, message)
