"""Sending one e-mail to the mail server of the settings.

`smtplib` blocks, so it runs in separate threads. An attempt that takes too long is ended by closing its connection. Errors
are stored and logged, and a mail server may repeat what it was sent: none of them contains the password.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import smtplib
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from askback.notifications.channels.base import Failed, Response
from askback.notifications.channels.sender import TIMEOUT_SEC, why_failed
from askback.text.formatting import one_line
from askback.text.redaction import Redactor

TOTAL_SEC = 3 * TIMEOUT_SEC
"""Less than the time for which a delivery is claimed."""
_CONNECTIONS = 4
_REPLY_CHARS = 200
_TO_SIGN_IN = "to the sign-in"
"""Shown instead of a reply to it, which may repeat the password in any form."""
_PORTS = {"smtp": 587, "smtps": 465}


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """The mail server of the settings."""

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

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        if server.is_loopback:
            # The traffic does not leave this machine, and its certificate is rarely for `localhost`.
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection.starttls(context=context)
    elif not (server.is_loopback or server.allow_plaintext):
        raise Failed("it offers no STARTTLS; notifications.email.allow_plaintext = true allows that")
