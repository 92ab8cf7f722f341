"""A real mail server on this machine: keeps what came, and refuses what it is told to refuse."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any, cast

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

USER, PASSWORD = "askback", "the password of the mail server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    sender: str
    recipients: tuple[str, ...]
    content: bytes
    tls: bool
    user: str | None

    @property
    def message(self) -> EmailMessage:
        return cast(EmailMessage, message_from_bytes(self.content, policy=default))

    def part(self, kind: str) -> str:
        """The text of the part of this type."""
        part = self.message.get_body((kind,))
        assert part is not None
        return str(part.get_content())


@dataclass(slots=True, kw_only=True)
class Mailbox:
    """`answers` are the replies to the first messages; then they are accepted."""

    came: list[Received] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    attempts: int = 0
    port: int = 0

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        self.attempts += 1
        if self.answers:
            return self.answers.pop(0)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        sent_as = getattr(session, "auth_data", None)
        self.came.append(
            Received(
                sender=envelope.mail_from or "",
                recipients=tuple(envelope.rcpt_tos),
                content=cast(bytes, envelope.original_content),
                tls=session.ssl is not None or cast(Any, server.transport).get_extra_info("sslcontext") is not None,
                user=sent_as.login.decode() if isinstance(sent_as, LoginPassword) else None,
            )
        )
        return "250 OK"


@contextmanager
def receiving_mail(
    mailbox: Mailbox, *, tls: ssl.SSLContext | None = None, starttls: ssl.SSLContext | None = None, login: bool = False
) -> Iterator[Mailbox]:
    """Receives for as long as the block lasts, on a free port. With `login`, only from who knows the password."""

    def authenticate(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        known = isinstance(data, LoginPassword) and (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=known, handled=False, auth_data=data)

    def session() -> SMTP:
        with warnings.catch_warnings():
            # It warns of sign-ins without TLS, and does not know of TLS that begins with the connection.
            warnings.simplefilter("ignore", UserWarning)
            return SMTP(
                mailbox,
                tls_context=starttls,
                require_starttls=starttls is not None,
                authenticator=authenticate,
                auth_required=login,
                auth_require_tls=False,
                loop=loop,
            )

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    opening = loop.create_server(session, "127.0.0.1", 0, ssl=tls)
    server = asyncio.run_coroutine_threadsafe(opening, loop).result()
    mailbox.port = server.sockets[0].getsockname()[1]
    try:
        yield mailbox
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end(server: asyncio.Server) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def make_certificate(folder: Path, *names: str) -> Path:
    """Signed by itself; key and certificate in one file."""
    folder.mkdir(parents=True, exist_ok=True)
    both, key, made = (folder / name for name in ("both.pem", "key.pem", "cert.pem"))
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    alternatives = ",".join(f"IP:{each}" if each[0].isdigit() else f"DNS:{each}" for each in names)
    command += ["-subj", f"/CN={names[0]}", "-addext", f"subjectAltName={alternatives}", "-days", "2"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(made)], check=True, capture_output=True)
    both.write_text(key.read_text() + made.read_text())
    return both


def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context
