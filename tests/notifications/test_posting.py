"""Where a POST may go: a name is looked up once, judged, and connected to; nothing leads to our own networks."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from askback.notifications.channels.base import Failed, Refused, Response
from askback.notifications.channels.webhook import WebhookSender
from support.data_folder import run_async, until
from support.receiver import Receiver, receiving


def lookup(*addresses: str) -> tuple[Callable[[str, int], list[str]], list[str]]:
    """A name service that knows these, and the names it was asked for."""
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return list(addresses)

    return resolve, asked


def posting(poster: WebhookSender, post: Callable[[WebhookSender], Awaitable[None]]) -> None:
    async def main() -> None:
        async with poster:
            await post(poster)

    run_async(main)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0", "[::ffff:127.0.0.1]"]
)
def test_no_spelling_of_this_machine_is_reached(host: str) -> None:
    with receiving(Receiver()) as receiver:

        async def post(poster: WebhookSender) -> None:
            with pytest.raises(Refused, match=r"private|not a valid URL"):
                await poster.post(f"http://{host}:{receiver.port}/", {}, b"")

        posting(WebhookSender(allow_private=False), post)
    assert receiver.came == []


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fe80::1", "::ffff:127.0.0.1"])
def test_a_name_that_leads_to_a_private_address_is_refused(address: str) -> None:
    resolve, asked = lookup(address)

    async def post(poster: WebhookSender) -> None:
        with pytest.raises(Refused, match="private"):
            await poster.post("https://hook.example/", {}, b"")

    posting(WebhookSender(allow_private=False, resolve=resolve), post)
    assert asked == ["hook.example"]


def test_a_name_is_resolved_once_and_that_address_is_used() -> None:
    resolve, asked = lookup("127.0.0.1")

    with receiving(Receiver()) as receiver:

        async def post(poster: WebhookSender) -> None:
            asyncio.get_running_loop().getaddrinfo = only_numbers  # type: ignore[method-assign, assignment]
            assert await poster.post(f"http://hook.example:{receiver.port}/a?b=c", {"X-One": "1"}, b"body") == Response(
                status=204
            )

        posting(WebhookSender(allow_private=True, resolve=resolve), post)
    (came,) = receiver.came
    assert asked == ["hook.example"]
    assert came.headers["host"] == f"hook.example:{receiver.port}"
    assert (came.path, came.headers["x-one"], came.body) == ("/a?b=c", "1", b"body")


async def only_numbers(host: str, port: int, **rest: object) -> list[tuple[object, ...]]:
    assert host == "127.0.0.1", f"looked up again: {host}"
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of hook.example, signed by itself; key and certificate in one file."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=hook.example", "-addext", "subjectAltName=DNS:hook.example", "-days", "2"]
    key, made = path.with_name("key.pem"), path.with_name("cert.pem")
    subprocess.run([*command, "-keyout", str(key), "-out", str(made)], check=True, capture_output=True)
    path.write_text(key.read_text() + made.read_text())
    return path


@pytest.mark.parametrize(
    ("name", "trusted", "problem"),
    [
        ("hook.example", True, None),
        ("hook.example", False, "certificate is invalid: self"),
        ("other.example", True, "certificate is invalid: Hostname mismatch"),
    ],
)
def test_tls_is_checked_against_the_name_not_the_address(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, name: str, trusted: bool, problem: str | None
) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    named: list[str | None] = []
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    tls.sni_callback = lambda connection, server_name, context: named.append(server_name)
    resolve, _ = lookup("127.0.0.1")
    with receiving(Receiver(), tls) as receiver:

        async def post(poster: WebhookSender) -> None:
            url = f"https://{name}:{receiver.port}/"
            if problem is None:
                assert await poster.post(url, {}, b"") == Response(status=204)
            else:
                with pytest.raises(Failed, match=problem):
                    await poster.post(url, {}, b"")

        posting(WebhookSender(allow_private=True, resolve=resolve), post)
    assert named == [name]
    assert len(receiver.came) == (problem is None)


# Receivers that waste our time.


async def with_raw(answer: bytes, post: Callable[[int], Awaitable[None]]) -> None:
    """A receiver that says `answer`, over and over, whatever it is sent."""
    talks: list[asyncio.Task[None]] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        talks.append(talk)
        try:
            await reader.read(100)
            while answer:
                writer.write(answer)
                await writer.drain()
            await reader.read()
        except ConnectionError:
            pass
        finally:
            # What nobody reads any more would keep a connection open that is only closed.
            writer.transport.abort()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        await post(server.sockets[0].getsockname()[1])
        # Whoever posts may have given up before he was heard here.
        await until(lambda: bool(talks))
    for each in talks:
        each.cancel()
    await asyncio.gather(*talks, return_exceptions=True)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 100 Continue\r\n\r\n"], ids=["silent", "never final"])
def test_a_receiver_without_an_answer_is_left(answer: bytes) -> None:
    async def post(port: int) -> None:
        async with WebhookSender(allow_private=True, timeout_sec=0.3) as poster:
            with pytest.raises(Failed):
                await poster.post(f"http://127.0.0.1:{port}/", {}, b"")

    run_async(lambda: with_raw(answer, post))


def test_a_body_without_end_is_not_read() -> None:
    async def post(port: int) -> None:
        async with WebhookSender(allow_private=True) as poster:
            assert await poster.post(f"http://127.0.0.1:{port}/", {}, b"") == Response(status=200)

    run_async(lambda: with_raw(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 60000, post))


@pytest.mark.parametrize("answer", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nA: " + b"a" * 60000], ids=["no", "head"])
def test_an_answer_that_is_none_is_a_failure(answer: bytes) -> None:
    async def post(port: int) -> None:
        async with WebhookSender(allow_private=True, timeout_sec=60) as poster:
            with pytest.raises(Failed, match="RemoteProtocolError"):
                await poster.post(f"http://127.0.0.1:{port}/", {}, b"")

    run_async(lambda: with_raw(answer, post))


def test_an_unknown_name_is_a_failure_that_may_pass() -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def post(poster: WebhookSender) -> None:
        with pytest.raises(Failed, match="the host name was not found"):
            await poster.post("https://hook.example/", {}, b"")

    posting(WebhookSender(allow_private=False, resolve=unknown), post)
