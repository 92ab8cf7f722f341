"""The blocking client."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

from askback.client import calls, requests
from askback.client.calls import Call, Download, Listing
from askback.client.errors import ServerFault, ServerUnreachable
from askback.client.following import PATIENCE_SEC, Following, may_settle
from askback.wire.runs import Event, Run

T = TypeVar("T")


class Client(requests.BlockingMethods):
    """A client of one server. Use it in a `with` block, or close it."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_sec: float = requests.TIMEOUT_SEC,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`headers` are sent with every request."""
        self.url = url
        self._timeout_sec = timeout_sec
        with requests.transport_errors(url):
            self._http = httpx.Client(**requests.connection(url, token, timeout_sec, headers))

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

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, call: Call[T]) -> T:
        with self._response(call) as response:
            return calls.decode(call, response.status_code, response.headers, _body(response))

    def _list(self, listing: Listing[T]) -> list[T]:
        return list(self._items(listing))

    def _items(self, listing: Listing[T] | None) -> Iterator[T]:
        while listing is not None:
            page = self._do(listing.call)
            yield from page.items
            listing = listing.after(page)

    @contextmanager
    def _response(self, call: Call[Any], stream_timeout_sec: float | None = None) -> Iterator[httpx.Response]:
        with (
            requests.request_arguments(call, stream_timeout_sec) as arguments,
            requests.transport_errors(self.url),
            self._http.stream(call.method, call.path, **arguments) as response,
        ):
            yield response

    @contextmanager
    def _stream(
        self, call: Call[bytes], timeout_sec: float | None = None, cut_after_sec: float | None = None
    ) -> Iterator[Iterator[bytes]]:
        with self._response(call, timeout_sec) as response, requests.cut_off(response, cut_after_sec):
            if response.status_code != httpx.codes.OK:
                calls.check(call, response.status_code, _body(response))
            yield response.iter_bytes()

    def _save(self, download: Download) -> Path:
        with self._stream(download.call) as chunks, requests.written(download.target) as file:
            for chunk in chunks:
                file.write(chunk)
        return download.target


def _body(response: httpx.Response) -> bytes:
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        calls.check_size(len(body))
    return bytes(body)
