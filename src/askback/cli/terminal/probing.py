"""Progress while the programs of engines are probed, which takes seconds for each that is new."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from askback.catalog.engines import EngineCatalog
from askback.cli import layout
from askback.text.formatting import one_line


@contextmanager
def probing_shown(engines: EngineCatalog) -> Iterator[None]:
    """During the block, a terminal shows which engine is asked for its version. Nothing stays on the screen."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

    console = Console(stderr=True, highlight=False)
    spinner = Spinner("line" if layout.is_ascii_only() else "dots", style="status.spinner")
    live = Live(spinner, console=console, refresh_per_second=12.5, transient=True)

    def show(name: str) -> None:
        # What moves must fit into one line, beside the spinner.
        spinner.update(text=layout.signs(one_line(f"asking {name} for its version …", console.width - 3)))
        with suppress(OSError):
            live.start()
            # A name is shown even if its program answers before the next regular refresh.
            live.refresh()

    engines.watch_probes(show)
    try:
        yield
    finally:
        engines.watch_probes(lambda _: None)
        with suppress(OSError):
            live.stop()
