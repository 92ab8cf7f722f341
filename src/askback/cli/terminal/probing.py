"""Progress while the programs of engines are probed, which takes seconds for each that is new."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from askback.cli import layout
from askback.installed.engines import EnginesHere
from askback.text.formatting import one_line


@contextmanager
def probing_shown(engines: EnginesHere) -> Iterator[None]:
    """During the block, a terminal shows which engine is asked for its version. Nothing stays on the screen."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    status = console.status("", spinner="line" if layout.is_ascii_only() else "dots")

    def show(name: str) -> None:
        with suppress(OSError):
            # What moves must fit into one line, beside the spinner.
            status.update(layout.signs(one_line(f"asking {name} for its version …", console.width - 3)))
            status.start()

    engines.watch_probes(show)
    try:
        yield
    finally:
        engines.watch_probes(lambda _: None)
        with suppress(OSError):
            status.stop()
