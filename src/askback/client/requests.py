"""What the two clients have in common: their methods, arguments for httpx, errors, timeouts, and files."""

from __future__ import annotations

import inspect
import re
import socket
import ssl
import tempfile
import threading
import zipfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar, overload

import httpx

from askback import __version__
from askback.client import calls
from askback.client.errors import ServerUnreachable, TokenUnusable
from askback.client.following import SILENCE_SEC
from askback.core.webhooks import is_loopback

TIMEOUT_SEC = 60.0
_NOT_PACKED = frozenset({"__pycache__", ".ds_store", ".git"})
"""Files that a server refuses in a zip."""
_USER = re.compile(r"//[^/?#]*@")

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A", covariant=True)
B = TypeVar("B", covariant=True)


class _Method(Generic[P, A, B]):
    """A method of both clients: `A` is what the asynchronous one returns, `B` what the blocking one returns.

    `send` is the name of the client's method that sends the call.
    """

    def __init__(self, make: Callable[P, Any], send: str) -> None:
        def method(client: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            return getattr(client, send)(make(*args, **kwargs))

        # For `help()` and notebooks.
        method.__name__, method.__qualname__, method.__doc__ = make.__name__, make.__name__, make.__doc__
        signature = inspect.signature(make)
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        parameters = [own, *signature.parameters.values()]
        method.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=parameters, return_annotation=inspect.Signature.empty
        )
        self._method = method

    @overload
    def __get__(self, client: AsyncMethods, owner: type) -> Callable[P, A]: ...
    @overload
    def __get__(self, client: BlockingMethods, owner: type) -> Callable[P, B]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    def __get__(self, client: Any, owner: type) -> Callable[..., Any]:
        return self._method if client is None else MethodType(self._method, client)


def _call(make: Callable[P, calls.Call[T]]) -> _Method[P, Coroutine[Any, Any, T], T]:
    """Sends the call and returns the response."""
    return _Method(make, "_do")


def _iterator(make: Callable[P, calls.Listing[T]]) -> _Method[P, AsyncIterator[T], Iterator[T]]:
    """Yields the items of all pages, and fetches them as needed."""
    return _Method(make, "_items")


def _list(make: Callable[P, calls.Listing[T]]) -> _Method[P, Coroutine[Any, Any, list[T]], list[T]]:
    return _Method(make, "_list")


def _saved(make: Callable[P, calls.Download]) -> _Method[P, Coroutine[Any, Any, Path], Path]:
    return _Method(make, "_save")


class Methods:
    """The methods of both clients that are one call each. `calls` has their arguments."""

    create_run = _call(calls.create_run)
    get_run = _call(calls.get_run)
    changed_run = _call(calls.changed_run)
    list_runs = _iterator(calls.list_runs)
    cancel = _call(calls.cancel)
    resume = _call(calls.resume)
    delete_run = _call(calls.delete_run)
    result = _call(calls.result)
    interaction = _call(calls.interaction)
    reply = _call(calls.reply)
    interactions = _list(calls.interactions)
    background = _call(calls.background)
    link = _call(calls.link)
    links = _list(calls.links)
    revoke_links = _call(calls.revoke_links)
    revoke_link = _call(calls.revoke_link)
    inbox = _iterator(calls.inbox)
    audit = _iterator(calls.audit)
    closed_questions = _iterator(calls.closed_questions)
    events = _iterator(calls.events)
    artifacts = _list(calls.artifacts)
    versions = _list(calls.versions)
    diff = _call(calls.diff)
    download = _saved(calls.download)
    bundle = _saved(calls.bundle)
    upload = _call(calls.upload)
    skills = _list(calls.skills)
    skill = _call(calls.skill)
    skill_files = _list(calls.skill_files)
    download_skill_file = _saved(calls.download_skill_file)
    install_skill = _call(calls.install_skill)
    delete_skill = _call(calls.delete_skill)
    deliveries = _iterator(calls.deliveries)
    engines = _list(calls.engines)
    workers = _list(calls.workers)
    models = _call(calls.models)
    tokens = _list(calls.tokens)
    create_token = _call(calls.create_token)
    revoke_token = _call(calls.revoke_token)
    invitations = _list(calls.invitations)
    invite = _call(calls.invite)
    revoke_invitation = _call(calls.revoke_invitation)
    statistics = _call(calls.statistics)
    usage = _call(calls.usage)
    health = _call(calls.health)


class AsyncMethods(Methods):
    pass


class BlockingMethods(Methods):
    pass


def connection(
    url: str, token: str | None, timeout_sec: float, further: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The arguments of the httpx client. Raises `httpx.InvalidURL` for a port that cannot exist."""
    port = httpx.URL(url).port
    # httpx accepts any number, and raises an `OverflowError` at the first request.
    if port is not None and not 0 < port < 65_536:
        raise httpx.InvalidURL(f"there is no port {port}; ports are 1 to 65535")
    headers = {"User-Agent": f"askback/{__version__}", **(further or {})}
    if token and token.strip():
        text = token.strip()
        # The error of httpx would contain the token.
        if not text.isascii() or not text.isprintable():
            raise TokenUnusable
        headers["Authorization"] = f"Bearer {text}"
    return {
        "base_url": url,
        "headers": headers,
        "timeout": timeout_sec,
        # A proxy cannot reach a server on this machine.
        "trust_env": not is_loopback(httpx.URL(url).host),
    }


@contextmanager
def request_arguments(call: calls.Call[Any], stream_timeout_sec: float | None = None) -> Iterator[dict[str, Any]]:
    """The arguments of the httpx request. A file is open while it is sent. `stream_timeout_sec` is for event streams."""
    arguments: dict[str, Any] = {"params": dict(call.params), "headers": dict(call.headers), "content": call.body}
    if stream_timeout_sec is not None:
        arguments["timeout"] = httpx.Timeout(stream_timeout_sec, read=SILENCE_SEC)
    if call.file is None:
        yield arguments
        return
    with _packed(call.file) if call.packed else nullcontext(call.file) as path, path.open("rb") as file:
        yield {**arguments, "files": {"file": (path.name, file)}}


@contextmanager
def transport_errors(url: str) -> Iterator[None]:
    """Raises `ServerUnreachable` for errors of the connection."""
    try:
        yield
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise ServerUnreachable(_USER.sub("//…@", url), _reason_of(error)) from None


def _reason_of(error: httpx.TransportError | httpx.InvalidURL) -> str:
    """Why a server cannot be reached, in words. The libraries below say “All connection attempts failed”."""
    match error:
        case httpx.ConnectTimeout():
            return "the connection timed out"
        case httpx.TimeoutException():
            return "it did not respond in time"
        case httpx.UnsupportedProtocol():
            return "the address must begin with http:// or https://"
        case httpx.RemoteProtocolError() if "disconnected" in str(error):
            return "it closed the connection without a response"
        case httpx.RemoteProtocolError():
            return "what listens there does not speak HTTP"
        case _:
            # The deepest cause is the one of the system.
            known = [said for each in _causes(error) if (said := _of_system(each)) is not None]
            return known[-1] if known else str(error) or type(error).__name__


def _of_system(error: BaseException) -> str | None:
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {error.verify_message}"
        case ssl.SSLError():
            return "it does not speak TLS (perhaps the address begins with http://)"
        case socket.gaierror():
            return "its host name is unknown"
        case ConnectionRefusedError():
            return "nothing listens there, the connection was refused"
        case ConnectionResetError():
            return "it closed the connection"
        case OSError(strerror=str(said)) if error.errno is not None:
            return said
        case _:
            return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, and the first of those that it groups."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.exceptions[0] if isinstance(found, BaseExceptionGroup) else found.__cause__ or found.__context__


@contextmanager
def cut_off(response: httpx.Response, after_sec: float | None) -> Iterator[None]:
    """Close the response after this time. httpx limits each read, but not all of them together."""
    if after_sec is None:
        yield
        return
    timer = threading.Timer(after_sec, _shut, (response.extensions["network_stream"].get_extra_info("socket"),))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _shut(connection: socket.socket) -> None:
    """Shut the plain socket down: TLS would first send a closing message."""
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


@contextmanager
def _packed(source: Path) -> Iterator[Path]:
    """A skill as a zip file. A folder is packed without following symbolic links."""
    if not source.is_dir():
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="askback-skill-") as folder:
        target = Path(folder) / f"{source.resolve().name}.zip"
        # A file may be older than 1980, the oldest time in a zip.
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for path in sorted(source.rglob("*")):
                _pack(archive, path, path.relative_to(source))
        yield target


def _pack(archive: zipfile.ZipFile, path: Path, name: Path) -> None:
    if any(part.casefold() in _NOT_PACKED for part in name.parts):
        return
    if path.is_symlink():
        raise ValueError(f"{path} is a symbolic link; replace it with the file itself")
    if path.is_file():
        archive.write(path, name.as_posix())


@contextmanager
def written(target: Path) -> Iterator[Any]:
    """Write a file that appears only once it is complete."""
    partial = target.with_name(f".{target.name}.part")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
