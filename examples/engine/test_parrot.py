"""The tests of the engine `parrot`: those that every engine inherits."""

from pathlib import Path
from typing import ClassVar

from askback_parrot import Parrot

from askback.testing import EngineContract


class TestParrot(EngineContract):
    engine = Parrot()
    session = "parrot-0123456789abcdef0123456789abcdef"
    probes: ClassVar = {("--help",): "usage: parrot [--resume ID]"}
    recordings = Path(__file__).parent / "recordings"

    def is_success(self, line: bytes) -> bool:
        return b'"end"' in line
