"""Every recording of a real turn is read as it was expected to be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recordings import EXPECTED, FOLDER, Recording, cases, differences, read

from askback.engines import registry
from askback.engines.base import Stream


@pytest.mark.contract("T-6", "X-9")
@pytest.mark.parametrize("folder", cases(), ids=lambda folder: folder.relative_to(FOLDER).as_posix())
def test_a_recording_is_read_as_expected(folder: Path) -> None:
    engine, recording = registry.get(folder.parent.name), Recording.load(folder)
    expected = json.loads((folder / EXPECTED).read_text())
    assert "sessions" in expected
    assert ("messages" in expected) != ("code" in expected)
    told = read(engine, recording)
    assert differences(expected, told) == []
    # The two streams are read side by side, so that either may come first.
    assert differences(expected, read(engine, recording, Stream.STDERR, Stream.STDOUT)) == []
    # What was told on the way is what counts at the end; the rest of it is told then.
    assert "messages" not in told or told["messages"][: len(told["said"])] == told["said"]


def test_a_recording_that_is_read_otherwise_is_found() -> None:
    told = {"sessions": ["a"], "code": "ENGINE_CRASHED", "detail": "it said: no"}
    assert differences({"sessions": ["a"], "code": "ENGINE_CRASHED", "detail": "no"}, told) == []
    assert len(differences({"sessions": [], "code": "ENGINE_API_ERROR", "detail": "yes", "usage": {}}, told)) == 4
    assert len(differences({"messages": []}, told)) == 1
