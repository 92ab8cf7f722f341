"""E-mails: what they say, and sending one to the mail server of the settings.

An e-mail has a plain text and an HTML part, and no part loads anything from elsewhere. A header says what is written here:
`EmailMessage` would decode an encoded word of RFC 2047 in a text that an engine wrote, with the line breaks in it, so it makes
only the parts.

`smtplib` blocks, so it runs in separate threads. An attempt that takes too long is ended by closing its connection. Errors
are stored and logged, and a mail server may repeat what it was sent: none of them contains the password.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import re
import smtplib
import socket
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from email.header import Header
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from askback.core.webhooks import Webhook, is_loopback
from askback.notifications.channels.base import Channel, Failed, Message, Refused, Response
from askback.notifications.channels.webhook import TIMEOUT_SEC, why_failed
from askback.notifications.notice import Digest, Notice
from askback.text.formatting import one_line
from askback.text.redaction import Redactor

if TYPE_CHECKING:
    from jinja2 import Template

_POLICY = SMTP.clone(cte_type="7bit", raise_on_defect=False)
"""Every mail server takes 7-bit content."""
_SUBJECT_CHARS = 80
_HEADER_CHARS = 400
_LINE_CHARS = 76
_PLAIN = re.compile(r"[ -~]*")
_WORDS = re.compile(r"[A-Za-z0-9]+( [A-Za-z0-9]+)*")
_FORWARD = "The links lead to {} only, without a sign-in. Everybody who has one can answer: do not forward them."
_ALONE, _LISTED = _FORWARD.format("this question"), _FORWARD.format("these questions")
TOTAL_SEC = 3 * TIMEOUT_SEC
"""Less than the time for which a delivery is claimed."""
_CONNECTIONS = 4
_REPLY_CHARS = 200
_TO_SIGN_IN = "to the sign-in"
"""Shown instead of a reply to it, which may repeat the password in any form."""
_PORTS = {"smtp": 587, "smtps": 465}


class EmailChannel(Channel):
    """`sender` and `address` are None if the settings have no mail server, or no address to send from."""

    def __init__(self, sender: MailSender | None, address: str | None) -> None:
        self._sender = sender
        self._address = address

    async def send(self, message: Message) -> Response:
        return await self._send(notice_mail(message, self._own_address))

    async def send_digest(self, webhook: Webhook, digest: Digest, message_id: str) -> Response:
        return await self._send(digest_mail(webhook, digest, message_id, self._own_address))

    @property
    def _own_address(self) -> str:
        if self._address is None:
            raise Refused("the settings have no notifications.email.sender")
        return self._address

    async def _send(self, mail: Mail) -> Response:
        if self._sender is None:
            raise Refused("the settings have no notifications.email.url")
        return await self._sender.send(mail)


def notice_mail(message: Message, sender: str) -> Mail:
    notice = message.notice
    subject = f"{notice.title}: {one_line(notice.text, _SUBJECT_CHARS)}" if notice.is_question else notice.title
    headers = _headers(subject, message.webhook, message.at, message.id, sender, conversation=notice.run_id)
    html = _template().render(notice=notice, forward=_ALONE if notice.answer_url else "")
    return _mail(headers, _plain(notice), html, message.webhook, sender)


def digest_mail(webhook: Webhook, digest: Digest, message_id: str, sender: str) -> Mail:
    headers = _headers(digest.title, webhook, digest.at, message_id, sender)
    forward = _LISTED if any(entry.answer_url for entry in digest.entries) else ""
    plain = "\n\n".join([digest.title, digest.plain_list, *([f"-- \n{forward}"] if forward else [])]) + "\n"
    return _mail(headers, plain, _template().render(digest=digest, forward=forward), webhook, sender)


def _headers(
    subject: str, webhook: Webhook, at: datetime, message_id: str, sender: str, *, conversation: str = ""
) -> dict[str, str]:
    """`message_id` is the same for every attempt, so that a mail server can drop a duplicate."""
    name, address = parseaddr(sender)
    domain, name = address.rpartition("@")[2], name or "Askback"
    shown = name if _WORDS.fullmatch(name) else _folded("From", one_line(name, _HEADER_CHARS), "utf-8")
    # A mail program shows the subject as it is, even if it looks like an encoded word.
    subject = one_line(subject, _HEADER_CHARS)
    charset = "us-ascii" if _PLAIN.fullmatch(subject) and "=?" not in subject else "utf-8"
    headers = {
        "Subject": _folded("Subject", subject, charset),
        "From": f"{shown} <{address}>",
        "To": webhook.address,
        "Date": format_datetime(at),
        "Message-ID": f"<{message_id}@{domain}>",
    }
    if conversation:
        # Mail programs show the messages of a run as one conversation.
        headers["References"] = f"<run_{conversation}@{domain}>"
    return headers | {"List-Id": f"Askback <askback.{domain}>", "Auto-Submitted": "auto-generated"}


def _mail(headers: Mapping[str, str], plain: str, html: str, webhook: Webhook, sender: str) -> Mail:
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    body = EmailMessage(_POLICY)
    body.set_content(plain)
    body.add_alternative(html, subtype="html")
    return Mail(sender=parseaddr(sender)[1], recipient=webhook.address, content=head.encode("ascii") + body.as_bytes())


def _folded(name: str, text: str, charset: str) -> str:
    """With `utf-8`, encoded words whose characters are safe in every header."""
    return Header(text, charset, maxlinelen=_LINE_CHARS, header_name=name).encode(linesep="\r\n")


def _plain(notice: Notice) -> str:
    parts = [notice.title, notice.text, *([notice.context] if notice.context else [])]
    if notice.choices:
        parts += [f"{each.label}\n{each.url}" for each in notice.choices]
    else:
        parts += [f"- {label}" for label in notice.labels]
    if notice.answer_url is not None:
        parts.append(f"{notice.how}:\n{notice.answer_url}")
    elif notice.run_url is not None:
        parts.append(notice.run_url)
    if notice.deadline_text is not None:
        parts.append(f"Answer by {notice.deadline_text}")
    if notice.run_id:
        parts.append(f"-- \nRun {notice.run_id}" + (f"\n{_ALONE}" if notice.answer_url else ""))
    return "\n\n".join(parts) + "\n"


@functools.cache
def _template() -> Template:
    # Most servers send no e-mail.
    from jinja2 import Environment, FileSystemLoader

    return Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True).get_template("email.html")


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    allow_plaintext: bool = False

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or _PORTS[urlsplit(self.url).scheme]

    @property
    def name(self) -> str:
        """For messages about it: `mail.example.org:587`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_tls(self) -> bool:
        """Whether the connection starts with TLS. Otherwise STARTTLS begins it."""
        return urlsplit(self.url).scheme == "smtps"

    @property
    def redactor(self) -> Redactor:
        """Masks the password, also as it is sent to sign in."""
        if not self.password:
            return Redactor(())
        sent = (self.password, f"\0{self.user}\0{self.password}", f"{self.user}\0{self.user}\0{self.password}")
        encoded = (base64.b64encode(each.encode(errors="replace")).decode() for each in sent)
        return Redactor(sent, (self.password, *encoded))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    sender: str
    recipient: str
    content: bytes = field(repr=False)


@dataclass(slots=True, kw_only=True, eq=False)
class MailSender:
    """Use it with `async with`."""

    server: MailServer
    total_sec: float = TOTAL_SEC
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="askback-mail")
    )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def send(self, mail: Mail) -> Response:
        """Raises `Failed`, which names the mail server: it is the same for all recipients."""
        connection = _connection(self.server, mail.sender.rpartition("@")[2])
        try:
            async with asyncio.timeout(self.total_sec):
                return await asyncio.get_running_loop().run_in_executor(self._pool, self._send, connection, mail)
        except TimeoutError:
            raise self._failed(f"it did not accept the message within {self.total_sec:g} s") from None
        except Failed as error:
            raise self._failed(str(error)) from None
        finally:
            # Ends the thread that waits for the mail server. `close` would let it wait.
            with suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]

    def _failed(self, reason: str) -> Failed:
        return Failed(f"mail server {self.server.name}: {self.server.redactor.text(reason)}")

    def _send(self, connection: smtplib.SMTP, mail: Mail) -> Response:
        try:
            with closing(connection):
                return self._converse(connection, mail)
        except smtplib.SMTPRecipientsRefused as error:
            return self._response(*next(iter(error.recipients.values())))
        except smtplib.SMTPResponseException as error:
            return self._response(error.smtp_code, error.smtp_error)
        except smtplib.SMTPServerDisconnected:
            raise Failed("it closed the connection") from None
        except smtplib.SMTPException as error:
            raise Failed(self._shown(str(error))) from None
        except TimeoutError:
            raise Failed("the connection timed out") from None
        except (OSError, ValueError) as error:
            raise Failed(why_failed(error)) from None

    def _converse(self, connection: smtplib.SMTP, mail: Mail) -> Response:
        server = self.server
        connection.connect(server.host, server.port)
        if not server.is_tls:
            _start_tls(connection, server)
        if server.user is not None:
            try:
                connection.login(server.user, server.password or "")
            except smtplib.SMTPResponseException as error:
                raise smtplib.SMTPResponseException(error.smtp_code, _TO_SIGN_IN) from None
        connection.sendmail(mail.sender, [mail.recipient], mail.content)
        with suppress(smtplib.SMTPException, OSError):
            connection.quit()
        return Response(status=250)

    def _response(self, status: int, text: bytes | str) -> Response:
        """2xx accepts the mail, 4xx refuses it for now, 5xx for good."""
        if 200 <= status < 300:
            return Response(status=status)
        said = self._shown(text.decode(errors="replace") if isinstance(text, bytes) else text)
        problem = f"the mail server {self.server.name} returned {status} {said}".rstrip()
        return Response(status=status, problem=problem, final=status >= 500)

    def _shown(self, said: str) -> str:
        """Masked before it is cut: half a password is too much."""
        return one_line(self.server.redactor.text(said), _REPLY_CHARS)


def _connection(server: MailServer, own_name: str) -> smtplib.SMTP:
    """Not connected yet, so that it can be closed at any time."""
    connection = (
        smtplib.SMTP_SSL(local_hostname=own_name, timeout=TIMEOUT_SEC, context=ssl.create_default_context())
        if server.is_tls
        else smtplib.SMTP(local_hostname=own_name, timeout=TIMEOUT_SEC)
    )
    # The name that TLS verifies. Only the constructor sets it, and that would connect at once.
    connection._host = server.host  # type: ignore[attr-defined]
    return connection


def _start_tls(connection: smtplib.SMTP, server: MailServer) -> None:
    connection.ehlo_or_helo_if_needed()
    if connection.has_extn("starttls"):
        context = ssl.create_default_context()
        if is_loopback(server.host):
            # The traffic does not leave this machine, and its certificate is rarely for `localhost`.
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection.starttls(context=context)
    elif not (is_loopback(server.host) or server.allow_plaintext):
        raise Failed("it offers no STARTTLS; notifications.email.allow_plaintext = true allows that")
