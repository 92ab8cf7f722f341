"""Shows the events of a run: one line for each, and on a terminal a live status line below them.

Everything goes to stderr, so that stdout has only the result. A closed stderr does not stop a run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from askback.cli import output
from askback.core.events import Event, EventType
from askback.core.outcomes import MARKER
from askback.text.formatting import count, duration, one_line, printable

if TYPE_CHECKING:
    from askback.catalog.engines import EngineCatalog

_HIDDEN_BLOCKS = ("ask_user", MARKER, "<ASK_USER_YAML>")


class Display:
    """Shows nothing, for `--json`: only the result is printed. The other displays add what they show."""

    def event(self, event: Event) -> None:
        pass

    def write(self, text: str) -> None:
        pass

    def wait_until(self, deadline: datetime | None) -> None:
        """Show that the run waits for an answer from elsewhere."""

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def __enter__(self) -> Self:
        self.resume()
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()


class Plain(Display):
    """For a pipe or a log: lines only."""

    def event(self, event: Event) -> None:
        for line in lines(event):
            self.write(line)

    def write(self, text: str) -> None:
        output.to_stderr(text)


class Live(Plain):
    """For a terminal: the same lines, with a spinner below while the engine works or an answer is awaited."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive
        from rich.spinner import Spinner

        self._console = Console(stderr=True, highlight=False)
        self._spinner = Spinner("line" if output.is_ascii_only() else "dots")
        self._live = RichLive(
            self._spinner,
            console=self._console,
            refresh_per_second=12,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._started = time.monotonic()
        self._doing = "starting"
        self._tokens = 0
        self._turn = 0
        self._waits = False
        self._deadline: datetime | None = None
        self._live.get_renderable = self._render  # type: ignore[method-assign]

    def _render(self) -> Any:
        from rich.text import Text

        self._spinner.update(text=Text(output.ascii_fallback(" · ".join(self._parts())), style="dim"))
        line = self._spinner.render(self._console.get_time())
        # The spinner builds a new text each time, without these attributes.
        if isinstance(line, Text):
            line.no_wrap, line.overflow = True, "ellipsis"
        return line

    def _parts(self) -> Iterator[str]:
        if self._waits:
            yield "waits for an answer"
            if self._deadline is not None:
                yield time_left((self._deadline - datetime.now(UTC)).total_seconds())
            return
        if self._turn:
            yield f"turn {self._turn}"
        yield duration(time.monotonic() - self._started)
        yield self._doing
        if self._tokens:
            yield count(self._tokens, "token")

    def wait_until(self, deadline: datetime | None) -> None:
        self._waits, self._deadline = True, deadline

    def event(self, event: Event) -> None:
        match event.type:
            case EventType.INTERACTION_ASKED:
                self.wait_until(None)
            case EventType.INTERACTION_CLOSED:
                self._waits = False
            case EventType.TURN_STARTED:
                self._turn, self._doing, self._waits = event.data["attempt_number"], "thinking", False
            case EventType.TOOL_STARTED:
                self._doing = one_line(f"{event.data['name']} {event.data.get('detail', '')}", 60)
            case EventType.TOOL_ENDED | EventType.ASSISTANT_MESSAGE:
                self._doing = "thinking"
            case EventType.USAGE:
                self._tokens += event.data["total_tokens"]
            case _:
                pass
        super().event(event)

    def write(self, text: str) -> None:
        from rich.text import Text

        style = output.STYLES.get(text.lstrip()[:1], "")
        with suppress(OSError):
            width = output.columns(sys.stderr) or self._console.width
            self._console.print(Text(output.wrapped(text, width), style=style), soft_wrap=True)

    def pause(self) -> None:
        with suppress(OSError):
            self._live.stop()

    def resume(self) -> None:
        with suppress(OSError):
            self._live.start()


def time_left(seconds: float) -> str:
    """As a countdown: `14:26 left`."""
    if seconds <= 0:
        return "time is up"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d} left" if hours else f"{minutes}:{rest:02d} left"


def lines(event: Event) -> list[str]:
    data = event.data
    match event.type:
        case EventType.ASSISTANT_MESSAGE:
            return _message(data["text"])
        case EventType.TOOL_STARTED:
            return [f"  · {one_line(data['name'] + ' ' + data.get('detail', ''), 100)}"]
        case EventType.TOOL_ENDED:
            return [] if data["ok"] else [f"    {printable(data['name'])} failed"]
        case EventType.INTERACTION_EXPIRING:
            deadline = datetime.fromisoformat(data["deadline_at"]).astimezone()
            return [f"  ! the question is still open; it expires at {deadline:%H:%M:%S}"]
        case EventType.RUN_PARKED:
            until = datetime.fromisoformat(data["not_before"]).astimezone()
            return [f"  ! a limit of the model provider was met; the run is parked until {until:%Y-%m-%d %H:%M:%S}"]
        case EventType.RUN_RESUMED:
            return ["  the run continues after the limit"]
        case EventType.RUN_WARNING:
            return [f"  ! {printable(data['code'])}: {printable(data['message'])}"]
        case EventType.TURN_ENDED:
            return ["  the turn was interrupted and restarts"] if data["outcome"] == "interrupted" else []
        case EventType.TURN_STARTED:
            return ["  the output does not match its schema; the engine repairs it"] if data["kind"] == "repair" else []
        case _:
            return []


def _message(text: str) -> list[str]:
    """The part of a message for the user. Askback shows a question or an output itself."""
    if any(sign in text for sign in _HIDDEN_BLOCKS):
        from askback.questions.reading import prose

        text = prose(text)
    return [f"  {line}" for line in printable(text).strip().splitlines()]


def choose(*, as_json: bool) -> Display:
    if as_json:
        return Display()
    return Live() if sys.stderr.isatty() else Plain()


@contextmanager
def probing_shown(engines: EngineCatalog) -> Iterator[None]:
    """During the block, a terminal shows which engine is asked for its version, which takes seconds for each that is new."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

    console = Console(stderr=True, highlight=False)
    spinner = Spinner("line" if output.is_ascii_only() else "dots", style="status.spinner")
    live = Live(spinner, console=console, refresh_per_second=12.5, transient=True)

    def show(name: str) -> None:
        # What moves must fit into one line, beside the spinner.
        spinner.update(text=output.ascii_fallback(one_line(f"asking {name} for its version …", console.width - 3)))
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
