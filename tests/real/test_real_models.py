"""The real CLIs list their models: without a network, so that no request leaves this machine."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

import pytest
from clis import MODEL
from engines_under_test import EngineUnderTest
from suite import Stage

from askback.catalog import models

LISTED: Mapping[str, str] = {
    "claude": "sonnet",
    "codex": "gpt-",
    "gemini": "gemini-2.5-pro",
    "opencode": f"double/{MODEL}",
    "qwen": MODEL,
}
"""A model, or the beginning of its name, that the pinned version lists."""


@pytest.mark.parametrize("engine", LISTED, indirect=True)
def test_it_lists_its_models(stage: Stage, engine: EngineUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("there is no sandbox here: bwrap is not on PATH")
    monkeypatch.setattr(models, "MODELS_SEC", 180.0)
    # Else it first waits for the list of all models, which it would fetch.
    monkeypatch.setenv("OPENCODE_DISABLE_MODELS_FETCH", "1")

    async def main() -> None:
        async with stage.working('network = "none"') as app:
            found = await app.service.engines.models(engine.name)
            assert found.models is not None, found.reason
            assert any(each.id.startswith(LISTED[engine.name]) for each in found.models), found.models
            assert all(each.id and not each.id.startswith("$") for each in found.models)
            assert list((stage.data_dir / "models").iterdir()) == []

    stage.run(main)
