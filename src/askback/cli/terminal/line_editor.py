"""Editing an answer on the terminal with prompt_toolkit, which takes a second to import: only `prompt` imports it.

The terminal's own line discipline cuts a line after 4,095 bytes; this editor reads keys, so an answer can have any
length. Alt-Enter starts a new line. A bracketed paste is one answer, with all its lines. Nothing is written to a history: answers may be secret.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from itertools import groupby

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.history import DummyHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.utils import is_dumb_terminal

__all__ = ["discard_typeahead", "edit_line", "is_dumb_terminal"]


async def edit_line(
    prompt: str, *, secret: bool, on_shown: Callable[[], None], ignores_empty_line: Callable[[], bool]
) -> str:
    """The answer. Raises EOFError at Ctrl-D or when the terminal closes, and KeyboardInterrupt at Ctrl-C."""
    output = Vt100_Output.from_pty(sys.stderr)
    # A terminal that does not report its cursor's position would get a warning, and nothing here needs it.
    output.enable_cpr = False
    session: PromptSession[str] = PromptSession(
        prompt,
        input=_Input(sys.stdin),
        output=output,
        history=DummyHistory(),
        key_bindings=_key_bindings(ignores_empty_line),
        input_processors=[_Hidden()] if secret else [],
        enable_suspend=True,
    )
    return await session.prompt_async(pre_run=on_shown, handle_sigint=False, set_exception_handler=False)


def discard_typeahead() -> None:
    clear_typeahead(_Input(sys.stdin))


def _key_bindings(ignores_empty_line: Callable[[], bool]) -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("c-c")
    def interrupt(event: KeyPressEvent) -> None:
        # If our caller had us ignore the signal, as nohup does, ignore the key as well.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            event.app.exit(exception=KeyboardInterrupt)

    @bindings.add("c-d")
    def end(event: KeyPressEvent) -> None:
        """Leave an empty line, or any line at the second press in a row; otherwise delete a character."""
        if event.is_repeat or not event.current_buffer.text:
            event.app.exit(exception=EOFError)
        else:
            event.current_buffer.delete()

    @bindings.add(
        "enter", filter=has_focus(DEFAULT_BUFFER) & Condition(lambda: not get_app().current_buffer.text.strip())
    )
    def accept_empty(event: KeyPressEvent) -> None:
        if not ignores_empty_line():
            event.current_buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    @bindings.add("escape", "c-j")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


class _Input(Vt100Input):
    """Passes characters that arrive together as one paste: key by key, 100 KB would take a minute."""

    def read_keys(self) -> list[KeyPress]:
        arrived: list[KeyPress] = []
        while more := super().read_keys():
            arrived += more
        keys: list[KeyPress] = []
        for is_text, group in groupby(arrived, key=lambda key: len(key.key) == 1 and key.key.isprintable()):
            run = list(group)
            if is_text and len(run) > 1:
                run = [KeyPress(Keys.BracketedPaste, "".join(key.data for key in run))]
            keys += run
        return keys


class _Hidden(Processor):
    """Shows neither what is typed nor how long it is."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        return Transformation([], source_to_display=lambda _: 0, display_to_source=lambda _: 0)
