"""The blocking client."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from askback.client import calls
from askback.client.calls import Call, Listing, Received
from askback.client.errors import ServerFault, ServerUnreachable
from askback.client.following import PATIENCE_SEC, Following, may_settle
from askback.client.requests import (
    TIMEOUT_SEC,
    connection,
    cut_off,
    described_as,
    packed,
    request_arguments,
    transport_errors,
    written,
)
from askback.wire.runs import Event, Run
from askback.wire.server import Skill

P = ParamSpec("P")
T = TypeVar("T")


def _call(make: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    """A method that sends the call and returns the response."""

    def method(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client._do(make(*args, **kwargs))

    return described_as(make, method)


def _iterator(make: Callable[P, Listing[T]]) -> Callable[Concatenate[Client, P], Iterator[T]]:
    """A method that yields the items of all pages, and fetches them as needed."""

    def method(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return client._items(make(*args, **kwargs))

    return described_as(make, method)


def _list(make: Callable[P, Listing[T]]) -> Callable[Concatenate[Client, P], list[T]]:
    """A method that returns the items of all pages."""

    def method(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> list[T]:
        return list(client._items(make(*args, **kwargs)))

    return described_as(make, method)


class Client:
    """A client of one server. Use it in a `with` block, or close it. `calls` has the arguments of most methods."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_sec: float = TIMEOUT_SEC,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`headers` are sent with every request."""
        self.url = url
        self._timeout_sec = timeout_sec
        with transport_errors(url):
            self._http = httpx.Client(**connection(url, token, timeout_sec, headers))

    # Runs.

    create_run = _call(calls.create_run)
    get_run = _call(calls.get_run)
    list_runs = _iterator(calls.list_runs)
    cancel = _call(calls.cancel)
    delete_run = _call(calls.delete_run)
    result = _call(calls.result)

    def changed_run(self, run_id: str, etag: str | None = None, *, wait_sec: float = 0.0) -> tuple[Run, str] | None:
        """The run and its `ETag`. With an earlier one, the server waits until the run differs, at most `wait_sec` and 60.

        None if it is still the same.
        """
        call = calls.changed_run(run_id, etag, wait_sec=wait_sec)
        response = self._sent(call)
        run = calls.decode(call, response.status, response.content)
        return None if run is None else (run, response.headers["ETag"])

    # Questions.

    interaction = _call(calls.interaction)
    reply = _call(calls.reply)
    interactions = _list(calls.interactions)
    link = _call(calls.link)
    links = _list(calls.links)
    revoke_links = _call(calls.revoke_links)
    revoke_link = _call(calls.revoke_link)
    inbox = _iterator(calls.inbox)
    audit = _iterator(calls.audit)
    closed_questions = _iterator(calls.closed_questions)

    # Events.

    events = _iterator(calls.events)

    def follow(
        self, run_id: str, *, after: int = 0, patience_sec: float = PATIENCE_SEC
    ) -> Generator[Event, None, None]:
        """Every event exactly once, past and new ones, until the run is final. Reconnects if the server restarts."""
        return self._follow(run_id, Following(run_id, after, patience_sec))

    def _follow(self, run_id: str, following: Following) -> Generator[Event, None, None]:
        while True:
            try:
                with self._stream(following.stream(), self._timeout_sec, following.left_sec) as chunks:
                    for chunk in chunks:
                        yield from following.feed(chunk)
                if self.get_run(run_id).state.final:
                    yield from filter(following.is_new, self._items(following.rest()))
                    return
                time.sleep(following.pause())
            except (ServerUnreachable, ServerFault) as error:
                time.sleep(following.lost(error))

    def wait(self, run_id: str, *, timeout_sec: float | None = None) -> Run:
        """Wait until the run asks its user or is final. Raises `WaitTimedOut` after `timeout_sec`."""
        following = Following(run_id, 0, PATIENCE_SEC, timeout_sec)
        run = self.get_run(run_id)
        if run.settled:
            return run
        with closing(self._follow(run_id, following)) as events:
            for event in filter(may_settle, events):
                run = self.get_run(event.run_id)
                if run.settled:
                    break
        return run

    # Files.

    artifacts = _list(calls.artifacts)
    versions = _list(calls.versions)
    diff = _call(calls.diff)
    upload = _call(calls.upload)

    def download(self, run_id: str, path: str, target: Path) -> Path:
        """Save one artifact to a file."""
        return self._save(calls.download(run_id, path), target)

    def bundle(self, run_id: str, target: Path) -> Path:
        """Save all artifacts as a zip file."""
        return self._save(calls.bundle(run_id), target)

    # Skills, engines, the server.

    skills = _list(calls.skills)
    skill = _call(calls.skill)
    skill_files = _list(calls.skill_files)
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
    health = _call(calls.health)

    def download_skill_file(self, skill_id: str, path: str, target: Path) -> Path:
        """Save one file of a skill."""
        return self._save(calls.download_skill_file(skill_id, path), target)

    def install_skill(self, source: Path) -> Skill:
        """Install a skill from a zip file or a folder."""
        with packed(source) as file:
            return self._do(calls.install_skill(file))

    # The connection.

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _do(self, call: Call[T]) -> T:
        response = self._sent(call)
        return calls.decode(call, response.status, response.content)

    def _sent(self, call: Call[Any]) -> Received:
        with self._response(call) as response:
            return Received(status=response.status_code, headers=response.headers, content=_body(response))

    def _items(self, listing: Listing[T] | None) -> Iterator[T]:
        while listing is not None:
            page = self._do(listing.call)
            yield from page.items
            listing = listing.after(page)

    @contextmanager
    def _response(self, call: Call[Any], stream_timeout_sec: float | None = None) -> Iterator[httpx.Response]:
        with (
            request_arguments(call, stream_timeout_sec) as arguments,
            transport_errors(self.url),
            self._http.stream(call.method, call.path, **arguments) as response,
        ):
            yield response

    @contextmanager
    def _stream(
        self, call: Call[bytes], timeout_sec: float | None = None, cut_after_sec: float | None = None
    ) -> Iterator[Iterator[bytes]]:
        with self._response(call, timeout_sec) as response, cut_off(response, cut_after_sec):
            if response.status_code != httpx.codes.OK:
                calls.check(call, response.status_code, _body(response))
            yield response.iter_bytes()

    def _save(self, call: Call[bytes], target: Path) -> Path:
        with self._stream(call) as chunks, written(target) as file:
            for chunk in chunks:
                file.write(chunk)
        return target


def _body(response: httpx.Response) -> bytes:
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        calls.check_size(len(body))
    return bytes(body)
