"""What a sandbox shows of the machine is cached, but what it covers is looked up for every program."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from askback.process.child import OutputLimits, SpawnRequest
from askback.process.sandbox.bubblewrap import Bubblewrap
from askback.process.sandbox.visibility import DenyList


def options(bubblewrap: Bubblewrap, run: Path) -> tuple[str, ...]:
    limits = OutputLimits(line_bytes=1, turn_bytes=1)
    request = SpawnRequest(
        argv=("/bin/sh",), env={"PATH": os.defpath}, cwd=run, limits=limits, writable=(run,), pass_fds=()
    )
    return tuple(bubblewrap.wrap(request).argv)


def test_a_private_folder_is_covered_exactly_while_it_exists(tmp_path: Path) -> None:
    private = tmp_path / "settings" / "askback.toml"
    hide = DenyList(homes=(), private=(private,))
    bubblewrap = Bubblewrap(program="bwrap", hide=hide)
    covered = ("--tmpfs", str(private.parent))

    def is_covered() -> bool:
        words = options(bubblewrap, tmp_path)
        return covered in itertools.pairwise(words)

    assert not is_covered()
    private.parent.mkdir()
    assert is_covered()
    private.parent.rmdir()
    assert not is_covered()


def test_two_runs_share_the_view_and_not_their_folders(tmp_path: Path) -> None:
    bubblewrap = Bubblewrap(program="bwrap", hide=DenyList(homes=(), private=()))
    first, second = (options(bubblewrap, tmp_path / name) for name in ("first", "second"))
    assert [word for word in first if str(tmp_path / "second") in word] == []
    assert [word.replace("second", "first") for word in second] == list(first)
