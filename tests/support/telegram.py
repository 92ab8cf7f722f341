"""A double of the Telegram Bot API on this machine, and the people who use Telegram.

It checks what the documentation of the Bot API says: tokens, required fields, sizes of texts and of button data, positions
of entities, which messages can be edited, the order of updates, and that one program alone asks for them.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

TOKEN = "123456789:AAF-of-the-test_abcdefghijklmnopqrs"
BOT_ID, BOT_NAME = 123456789, "askback_test_bot"
ANNA, BOB, EVE = 1001, 1002, 6666
GROUP = -1001234567890
_PARAMETERS = {
    "getMe": set(),
    "getWebhookInfo": set(),
    "getChat": {"chat_id"},
    "getUpdates": {"offset", "limit", "timeout", "allowed_updates"},
    "sendMessage": {
        "chat_id",
        "text",
        "parse_mode",
        "entities",
        "link_preview_options",
        "reply_parameters",
        "reply_markup",
    },
    "editMessageText": {
        "chat_id",
        "message_id",
        "text",
        "parse_mode",
        "entities",
        "link_preview_options",
        "reply_markup",
    },
    "answerCallbackQuery": {"callback_query_id", "text", "show_alert", "url", "cache_time"},
}
_ENTITIES = {"bold", "italic", "underline", "strikethrough", "spoiler", "blockquote", "code", "pre", "text_link"}
_PATH = re.compile(r"/bot([^/]*)/(\w+)")


class Wrong(Exception):
    """The API refuses a call."""

    def __init__(self, status: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.status, self.description, self.parameters = status, description, parameters


@dataclass(slots=True, kw_only=True)
class Message:
    """A message of the bot. `edits` are its earlier texts."""

    chat: int
    id: int
    text: str
    markup: dict[str, Any] | None
    reply_to: int | None = None
    edits: list[str] = field(default_factory=list)

    @property
    def buttons(self) -> dict[str, dict[str, str]]:
        """By their labels."""
        rows = (self.markup or {}).get("inline_keyboard", [])
        return {button["text"]: button for row in rows for button in row}


@dataclass(slots=True, kw_only=True, eq=False)
class Telegram:
    """`trouble` are answers to the next calls of a method, as what to raise."""

    port: int = 0
    token: str = TOKEN
    started: set[int] = field(default_factory=lambda: {ANNA, BOB, GROUP})
    messages: list[Message] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    notices: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What the taps were answered with, by their ids."""
    trouble: dict[str, list[Wrong]] = field(default_factory=dict)
    before_answer: Callable[[str], None] = lambda method: None
    """Called when a call was carried out, before its response is sent."""
    webhook: str = ""
    taps_end_sec: float = 15 * 60
    _updates: list[dict[str, Any]] = field(default_factory=list)
    _next_update: int = 700_000_000
    _next_message: int = 1
    _tapped: dict[str, float] = field(default_factory=dict)
    _news: threading.Condition = field(default_factory=threading.Condition)
    _poller: int = 0
    _ended: bool = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # What people do.

    def write(self, user: int, text: str | None, *, chat: int | None = None, reply_to: int | None = None) -> None:
        """Write a message. Without a text, send a picture."""
        place = user if chat is None else chat
        kind = "private" if place > 0 else "supergroup"
        message = {"message_id": self._number(), "from": _user(user), "chat": {"id": place, "type": kind}, "date": 1}
        message |= (
            {"photo": [{"file_id": "f", "file_unique_id": "u", "width": 1, "height": 1}]}
            if text is None
            else {"text": text}
        )
        if place > 0:
            self.started.add(place)
        if reply_to is not None:
            replied = {"message_id": reply_to, "from": _user(BOT_ID, is_bot=True), "date": 1}
            message["reply_to_message"] = replied | {"chat": message["chat"]}
        self._add({"message": message})

    def tap(self, user: int, message: Message, label: str, *, data: str | None = None) -> str:
        """Tap a button of a message, also one that an edit has removed (`data`). Returns the id of the tap."""
        sent = message.buttons[label]["callback_data"] if data is None else data
        tap = f"{user}{time.monotonic_ns()}"
        shown = {"message_id": message.id, "chat": {"id": message.chat, "type": "private"}, "date": 1}
        self._tapped[tap] = time.monotonic()
        query = {"id": tap, "from": _user(user), "chat_instance": "1", "data": sent, "message": shown}
        self._add({"callback_query": query})
        return tap

    def _add(self, update: dict[str, Any]) -> None:
        with self._news:
            self._updates.append({"update_id": self._next_update, **update})
            self._next_update += 1
            self._news.notify_all()

    def _number(self) -> int:
        with self._news:
            self._next_message += 1
            return self._next_message - 1

    # What a test looks at.

    def said_to(self, chat: int) -> list[Message]:
        return [message for message in list(self.messages) if message.chat == chat]

    def called(self, method: str) -> list[dict[str, Any]]:
        return [parameters for name, parameters in list(self.calls) if name == method]

    @property
    def unconfirmed(self) -> int:
        with self._news:
            return len(self._updates)

    # The API.

    def answer(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        try:
            return 200, {"ok": True, "result": self._call(path, body)}
        except Wrong as wrong:
            document = {"ok": False, "error_code": wrong.status, "description": wrong.description}
            return wrong.status, document | ({"parameters": wrong.parameters} if wrong.parameters else {})

    def _call(self, path: str, body: bytes) -> Any:
        found = _PATH.fullmatch(path)
        if found is None:
            raise Wrong(404, "Not Found")
        token, method = found.groups()
        if token != self.token:
            self.calls.append((method, {}))
            raise Wrong(401, "Unauthorized")
        if method not in _PARAMETERS:
            raise Wrong(404, "Not Found: method not found")
        given = json.loads(body or b"{}")
        self.calls.append((method, given))
        if unknown := given.keys() - _PARAMETERS[method]:
            raise Wrong(400, f"Bad Request: the double does not know {sorted(unknown)}")
        if self.trouble.get(method):
            raise self.trouble[method].pop(0)
        work = getattr(self, re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", f"_{method}"))
        try:
            return work(**given)
        except TypeError:
            raise Wrong(400, "Bad Request: a parameter is missing") from None

    def _get_me(self) -> dict[str, Any]:
        return _user(BOT_ID, is_bot=True) | {"username": BOT_NAME}

    def _get_webhook_info(self) -> dict[str, Any]:
        return {"url": self.webhook, "has_custom_certificate": False, "pending_update_count": 0}

    def _get_chat(self, chat_id: int) -> dict[str, Any]:
        self._check_chat(chat_id)
        return {"id": chat_id, "type": "private" if chat_id > 0 else "supergroup"}

    def _get_updates(
        self, offset: int = 0, limit: int = 100, timeout: int = 0, allowed_updates: list[str] | None = None
    ) -> list[dict[str, Any]]:
        if self.webhook:
            raise Wrong(409, "Conflict: can't use getUpdates method while webhook is active")
        if not 1 <= limit <= 100 or timeout < 0:
            raise Wrong(400, "Bad Request: limit or timeout")
        until = time.monotonic() + timeout
        with self._news:
            self._poller = mine = self._poller + 1
            self._news.notify_all()
            self._updates = [each for each in self._updates if each["update_id"] >= offset]
            while True:
                if self._poller != mine:
                    raise Wrong(409, "Conflict: terminated by other getUpdates request")
                wanted = [each for each in self._updates if not allowed_updates or set(each) & set(allowed_updates)]
                if wanted or self._ended or time.monotonic() >= until:
                    return wanted[:limit]
                self._news.wait(min(until - time.monotonic(), 1))

    def _send_message(self, chat_id: int, text: str, reply_markup: Any = None, **rest: Any) -> dict[str, Any]:
        self._check_chat(chat_id)
        _check_text(text, rest.get("entities"), rest.get("parse_mode"))
        _check_markup(reply_markup)
        reply_to = (rest.get("reply_parameters") or {}).get("message_id")
        sent = Message(chat=chat_id, id=self._number(), text=text, markup=reply_markup, reply_to=reply_to)
        self.messages.append(sent)
        return _sent(sent)

    def _edit_message_text(
        self, chat_id: int, message_id: int, text: str, reply_markup: Any = None, **rest: Any
    ) -> dict[str, Any]:
        _check_text(text, rest.get("entities"), rest.get("parse_mode"))
        _check_markup(reply_markup)
        found = [each for each in self.messages if (each.chat, each.id) == (chat_id, message_id)]
        if not found:
            raise Wrong(400, "Bad Request: message to edit not found")
        [message] = found
        if message.markup is not None and "inline_keyboard" not in message.markup:
            raise Wrong(400, "Bad Request: message can't be edited")
        if (message.text, message.markup) == (text, reply_markup):
            raise Wrong(400, "Bad Request: message is not modified")
        message.edits.append(message.text)
        message.text, message.markup = text, reply_markup
        return _sent(message)

    def _answer_callback_query(self, callback_query_id: str, **rest: Any) -> bool:
        since = self._tapped.get(callback_query_id)
        if since is None or time.monotonic() - since > self.taps_end_sec:
            raise Wrong(400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
        if len(rest.get("text") or "") > 200:
            raise Wrong(400, "Bad Request: MESSAGE_TOO_LONG")
        self.notices[callback_query_id] = rest
        return True

    def _check_chat(self, chat: Any) -> None:
        if type(chat) is not int:
            raise Wrong(400, "Bad Request: chat_id must be an Integer")
        if chat not in self.started:
            raise Wrong(400, "Bad Request: chat not found")

    def end(self) -> None:
        with self._news:
            self._ended = True
            self._news.notify_all()


def _user(number: int, *, is_bot: bool = False) -> dict[str, Any]:
    return {"id": number, "is_bot": is_bot, "first_name": f"User {number}"}


def _sent(message: Message) -> dict[str, Any]:
    chat = {"id": message.chat, "type": "private" if message.chat > 0 else "supergroup"}
    return {"message_id": message.id, "date": 1, "chat": chat, "text": message.text}


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _check_text(text: Any, entities: Any, parse_mode: Any) -> None:
    if not isinstance(text, str) or not text.strip():
        raise Wrong(400, "Bad Request: message text is empty")
    if parse_mode is not None:
        raise Wrong(400, "Bad Request: the double parses no markup: use entities")
    if units(text) > 4096:
        raise Wrong(400, "Bad Request: message is too long")
    encoded = text.encode("utf-16-le")
    for entity in entities or []:
        if entity["type"] not in _ENTITIES or not 0 <= entity["offset"] < entity["offset"] + entity["length"] <= units(
            text
        ):
            raise Wrong(400, "Bad Request: wrong entity")
        part = encoded[2 * entity["offset"] : 2 * (entity["offset"] + entity["length"])]
        with suppress(UnicodeDecodeError):
            part.decode("utf-16-le")
            continue
        raise Wrong(400, "Bad Request: an entity begins or ends within a symbol")


def _check_markup(markup: Any) -> None:
    match markup:
        case None | {"force_reply": True}:
            return
        case {"inline_keyboard": [*rows]} if rows and all(rows):
            for button in (button for row in rows for button in row):
                _check_button(button)
        case _:
            raise Wrong(400, "Bad Request: object expected as reply markup")


def _check_button(button: dict[str, Any]) -> None:
    match button:
        case {"text": str(text), "callback_data": str(data), **rest} if not rest and text.strip():
            if not 1 <= len(data.encode()) <= 64:
                raise Wrong(400, "Bad Request: BUTTON_DATA_INVALID")
        case {"text": str(text), "url": str(url), **rest} if not rest and text.strip():
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or "." not in (parts.hostname or ""):
                raise Wrong(400, f"Bad Request: inline keyboard button URL '{url}' is invalid: Wrong HTTP URL")
        case _:
            raise Wrong(400, "Bad Request: can't parse inline keyboard button")


@contextmanager
def telegram(double: Telegram | None = None) -> Iterator[Telegram]:
    """Answers for as long as the block lasts, on `port` or a free one."""
    double = double or Telegram()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            status, document = double.answer(self.path, body)
            double.before_answer(self.path.rpartition("/")[2])
            encoded = json.dumps(document).encode()
            with suppress(OSError):  # who asked may have been killed
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", double.port), Handler) as listening:
        listening.daemon_threads = True
        double.port = listening.server_address[1]
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield double
        finally:
            double.end()
            listening.shutdown()
            thread.join()


def bot_settings(double: Telegram, *, chats: list[dict[str, Any]] | None = None, **rest: str) -> dict[str, str]:
    """The environment of a server with this bot. Anna and Bob get questions, unless `chats` says otherwise."""
    both = [{"id": ANNA, "name": "anna"}, {"id": BOB, "name": "bob"}]
    return {
        "ASKBACK_TELEGRAM__TOKEN": TOKEN,
        "ASKBACK_TELEGRAM__API_URL": double.url,
        "ASKBACK_TELEGRAM__CHATS": json.dumps(both if chats is None else chats),
        **rest,
    }
