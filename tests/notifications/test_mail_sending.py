"""E-mails, sent to a real mail server on loopback: with TLS, with a sign-in, repeated if refused for now."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from askback.app import delivery_policy, now, opened
from askback.core.webhooks import Delivery, Webhook, WebhookKind
from askback.notifications.channels import DeliveryPolicy
from askback.notifications.channels.base import Failed, Message, Response
from askback.notifications.channels.email import Mail, MailSender, MailServer, notice_mail
from askback.notifications.notice import Notice
from askback.notifications.outbox import Notifications
from askback.settings.model import webhooks
from support.data_folder import FINISH, World, run_async, submit
from support.mail_server import PASSWORD, USER, Mailbox, make_certificate, receiving_mail, server_context

NAME = "mail.example"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"), NAME)


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """`mail.example` and `other.example` are this machine, which is not what their names say."""
    real = socket.getaddrinfo

    def lookup(host: Any, *rest: Any, **more: Any) -> Any:
        return real("127.0.0.1" if str(host).endswith(".example") else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


def a_mail() -> Mail:
    webhook = Webhook(url="mailto:anna@example.org", kind=WebhookKind.EMAIL)
    at = datetime(2026, 3, 1, tzinfo=UTC)
    notice = Notice(title="Title", text="Text")
    message = Message(webhook=webhook, id="msg_1", at=at, notice=notice, document=None)
    return notice_mail(message, "Askback <askback@example.org>")


def sending(server: MailServer, *, total_sec: float = 60) -> Response:
    async def main() -> Response:
        async with MailSender(server=server, total_sec=total_sec) as sender:
            return await sender.send(a_mail())

    return asyncio.run(main())


def signed_in(url: str, **more: Any) -> MailServer:
    return MailServer(url=url, user=USER, password=PASSWORD, **more)


# TLS and the sign-in.


def test_smtps_delivers_with_a_sign_in(certificate: Path, named: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with receiving_mail(Mailbox(), tls=server_context(certificate), login=True) as mailbox:
        assert sending(signed_in(f"smtps://{NAME}:{mailbox.port}")).status == 250
    (came,) = mailbox.came
    assert (came.sender, came.recipients, came.user) == ("askback@example.org", ("anna@example.org",), USER)
    assert came.tls
    assert came.message["Subject"] == "Title"


def test_starttls_delivers_with_a_sign_in(certificate: Path, named: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with receiving_mail(Mailbox(), starttls=server_context(certificate), login=True) as mailbox:
        assert sending(signed_in(f"smtp://{NAME}:{mailbox.port}")).status == 250
    assert [(came.tls, came.user) for came in mailbox.came] == [(True, USER)]


@pytest.mark.parametrize(
    ("name", "trusted", "problem"),
    [
        (NAME, False, "certificate is invalid: self"),
        ("other.example", True, "certificate is invalid: Hostname mismatch"),
    ],
)
@pytest.mark.parametrize("scheme", ["smtps", "smtp"])
def test_a_certificate_that_is_not_valid_gets_no_password(
    certificate: Path, named: None, monkeypatch: pytest.MonkeyPatch, scheme: str, name: str, trusted: bool, problem: str
) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = server_context(certificate)
    how: dict[str, Any] = {"tls": context} if scheme == "smtps" else {"starttls": context}
    with receiving_mail(Mailbox(), login=True, **how) as mailbox, pytest.raises(Failed, match=problem):
        sending(signed_in(f"{scheme}://{name}:{mailbox.port}"))
    assert mailbox.attempts == 0


def test_a_server_without_tls_gets_nothing_unless_allowed_or_on_this_machine(named: None) -> None:
    with receiving_mail(Mailbox()) as mailbox:
        url = f"smtp://{NAME}:{mailbox.port}"
        with pytest.raises(Failed, match="offers no STARTTLS; notifications"):
            sending(MailServer(url=url))
        assert mailbox.attempts == 0
        assert sending(MailServer(url=url, allow_plaintext=True)).status == 250
        assert sending(MailServer(url=f"smtp://127.0.0.1:{mailbox.port}")).status == 250
        assert sending(MailServer(url=f"smtp://localhost:{mailbox.port}")).status == 250
    assert [came.tls for came in mailbox.came] == [False] * 3


def test_on_this_machine_starttls_needs_no_trusted_certificate(certificate: Path) -> None:
    with receiving_mail(Mailbox(), starttls=server_context(certificate)) as mailbox:
        assert sending(MailServer(url=f"smtp://127.0.0.1:{mailbox.port}")).status == 250
    assert mailbox.came[0].tls


def test_a_wrong_password_is_refused_for_good() -> None:
    with receiving_mail(Mailbox(), login=True) as mailbox:
        response = sending(MailServer(url=f"smtp://127.0.0.1:{mailbox.port}", user=USER, password="wrong"))
    assert response.status == 535
    assert response.problem.startswith(f"the mail server 127.0.0.1:{mailbox.port} returned 535 ")
    assert "wrong" not in repr(MailServer(url="smtp://x", user=USER, password="wrong"))


def test_a_sign_in_that_the_server_does_not_offer_is_said() -> None:
    with listening(lambda peer: peer.sendall(b"220 hello\r\n250 plain\r\n")) as port, pytest.raises(Failed):
        sending(signed_in(f"smtp://127.0.0.1:{port}"))


# A mail server that is not there, or never answers.


@contextmanager
def listening(greet: Callable[[socket.socket], object]) -> Iterator[int]:
    """A server that greets one client, and then neither answers nor hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        peers: list[socket.socket] = []

        def accept() -> None:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            peers.append(peer)
            greet(peer)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            for peer in peers:
                peer.close()


def echoing(password: str, *, accepts: bool) -> Callable[[socket.socket], None]:
    """A server that repeats the sign-in in its reply: to the sign-in itself, or to the command after it."""

    def greet(peer: socket.socket) -> None:
        peer.settimeout(60)
        sent = b""
        with suppress(OSError), peer.makefile("rb") as lines:
            peer.sendall(b"220 hello\r\n")
            for line in lines:
                command = line.strip()
                if command.lower().startswith(b"ehlo"):
                    peer.sendall(b"250-hello\r\n250 AUTH PLAIN\r\n")
                elif command.startswith(b"AUTH"):
                    sent = command
                    peer.sendall(b"235 fine\r\n" if accepts else b"535 got " + sent + b"\r\n")
                else:
                    peer.sendall(b"550 after " + sent + b" with " + password.encode() + b"\r\n")

    return greet


@pytest.mark.parametrize(
    ("accepts", "told"), [(False, "535 to the sign-in"), (True, "550 after AUTH PLAIN [redacted] with [redacted]")]
)
@pytest.mark.parametrize("password", [PASSWORD, "pass"])
def test_a_server_that_repeats_the_password_does_not_put_it_into_the_error(
    password: str, accepts: bool, told: str
) -> None:
    with listening(echoing(password, accepts=accepts)) as port:
        response = sending(MailServer(url=f"smtp://127.0.0.1:{port}", user=USER, password=password))
    assert response.problem == f"the mail server 127.0.0.1:{port} returned {told}"


def test_a_server_that_is_not_there_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(Failed, match=rf"mail server 127\.0\.0\.1:{port}: the connection was refused"):
        sending(MailServer(url=f"smtp://127.0.0.1:{port}"))


def test_a_server_that_never_answers_is_left() -> None:
    hung_up = threading.Event()

    def greet(peer: socket.socket) -> None:
        peer.sendall(b"220-")
        if peer.recv(1) == b"":
            hung_up.set()

    with listening(greet) as port:
        with pytest.raises(Failed, match=rf"mail server 127\.0\.0\.1:{port}: it did not accept .* within 0\.2 s"):
            sending(MailServer(url=f"smtp://127.0.0.1:{port}"), total_sec=0.2)
        assert hung_up.wait(60)


# Through the outbox.


def config(mailbox: Mailbox) -> str:
    return (
        '[[webhooks]]\nurl = "mailto:anna@example.org"\nkind = "email"\nstates = ["queued"]\n'
        f'[notifications.email]\nurl = "smtp://127.0.0.1:{mailbox.port}"\nsender = "askback@example.org"\n'
    )


async def delivered(world: World, mailbox: Mailbox) -> Delivery:
    """The delivery of one run, when nothing more will be sent."""
    async with opened(world.settings(config(mailbox)), serving=True) as app, asyncio.TaskGroup() as group:
        policy = delivery_policy(app.settings)
        soon = DeliveryPolicy(
            webhooks=webhooks(app.settings),
            retries_sec=(0.01,) * 3,
            mail_server=policy.mail_server,
            mail_sender=policy.mail_sender,
        )
        notifications = Notifications(store=app.store, policy=soon, clock=now)
        await notifications.register()
        task = group.create_task(notifications.run())
        run = await submit(app, world.skill([FINISH]))
        while True:
            page = await app.store.deliveries(run.id)
            if page.items and page.items[0].next_attempt_at is None:
                break
            await asyncio.sleep(0.01)
        task.cancel()
        return page.items[0]


@pytest.mark.parametrize(
    ("answers", "attempts", "status", "error"),
    [
        ([], 1, 250, None),
        (["451 4.7.1 greylisted", "421 busy"], 3, 250, None),
        (["550 5.1.1 no such user"], 1, 550, "returned 550 5.1.1 no such user"),
        (["450 full"] * 9, 4, 450, "returned 450 full"),
    ],
)
def test_what_is_refused_for_now_is_repeated_and_what_is_refused_is_not(
    tmp_path: Path, answers: list[str], attempts: int, status: int, error: str | None
) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving_mail(Mailbox(answers=list(answers))) as mailbox:
            entry = await delivered(world, mailbox)
        told = None if error is None else f"the mail server 127.0.0.1:{mailbox.port} {error}"
        assert (entry.attempts, entry.last_status, entry.last_error) == (attempts, status, told)
        assert (entry.delivered_at is not None) is (error is None)
        assert mailbox.attempts == attempts
        for came in mailbox.came:
            assert came.message["Message-ID"] == f"<{entry.id}@example.org>"
            assert came.message["Subject"] == "tested is queued"

    run_async(main)
