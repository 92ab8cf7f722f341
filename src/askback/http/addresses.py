"""The names of this server: which ones it answers to, and under which one the page lives.

Browsers send a cookie to every port of a host name, so whoever listens on another port of 127.0.0.1 or localhost would
get a cookie of those names. The page therefore lives at `LABEL.localhost`, a name of the loopback address with a label
for each token, which only the holder of that token learns.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from askback.http.links import PageLabels

_LOCALHOST = "localhost"
BOTH_LOOPBACKS = frozenset({"127.0.0.1", "localhost", "::1", "0.0.0.0", "::"})
"""Addresses to listen on with which the server holds its port on 127.0.0.1 and on ::1, where `*.localhost` leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    hosts: frozenset[str]
    """The `Host` headers that are answered besides the names of the page, in lower case."""
    port: int
    labels: PageLabels | None
    """None where another program could listen on a loopback address at the same port."""
    page_ports: frozenset[str]
    """What follows the names of the page: `:8765`, and the ports of forwarded loopback names."""
    public_url: str | None = None

    def answers(self, host: str) -> bool:
        """Whether a request with this `Host` header, in lower case, is answered."""
        return host in self.hosts or self._is_page_host(host)

    def page_host(self, host: str, token_digest: str) -> str | None:
        """Where the page lives for a token whose holder came by a loopback name; None: at the name they came by."""
        name, colon, port = _split(host)
        if self.labels is None or not _is_loopback(name):
            return None
        page = f"{self.labels.of(token_digest)}.{_LOCALHOST}{colon}{port}"
        return None if page == host else page

    def leads_on(self, host: str) -> bool:
        """Whether a sign-in at this name of ours may lead on to a name of the page."""
        return self.labels is not None and _is_loopback(_split(host)[0]) and self.answers(host)

    def _is_page_host(self, host: str) -> bool:
        name, colon, port = _split(host)
        label, dot, parent = name.partition(".")
        if self.labels is None or not dot or parent != _LOCALHOST or f"{colon}{port}" not in self.page_ports:
            return False
        return self.labels.has(label)

    def is_secure(self, host: str) -> bool:
        """Whether this name is reached over TLS: only the settings say so, never a header."""
        return self.public_url is not None and self.public_url == f"https://{host}"

    def cookie_name(self, host: str) -> str:
        """With the port: several servers on one machine do not overwrite each other's cookies."""
        return f"{'__Host-' if self.is_secure(host) else ''}askback_session_{self.port}"

    def base_url(self, host: str) -> str:
        """What the address of a link begins with. The name of the page is not for others."""
        if self.public_url is not None:
            return self.public_url
        _, colon, port = _split(host)
        return f"http://{host}" if host in self.hosts else f"http://127.0.0.1{colon}{port}"


def addresses(
    *, listening_on: str, port: int, allowed_hosts: Iterable[str], public_url: str | None, labels: PageLabels
) -> Addresses:
    """The names of a server that listens there; any other may be a stranger's name that leads here."""
    host, public = listening_on.lower(), None if public_url is None else public_url.lower().rstrip("/")
    names = {_LOCALHOST, "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host}
    hosts = {f"{name}:{port}" for name in names} | (names if port == 80 else set()) | {h.lower() for h in allowed_hosts}
    if public is not None:
        hosts.add(public.partition("://")[2])
    split = [_split(each) for each in hosts]
    return Addresses(
        hosts=frozenset(hosts),
        port=port,
        labels=labels if host in BOTH_LOOPBACKS else None,
        page_ports=frozenset(f"{colon}{number}" for name, colon, number in split if _is_loopback(name)),
        public_url=public,
    )


def _split(host: str) -> tuple[str, str, str]:
    """`[::1]:80` → `("[::1]", ":", "80")`; without a port the last two are empty."""
    name, colon, port = host.rpartition(":")
    return (name, colon, port) if colon and not port.endswith("]") else (host, "", "")


def _is_loopback(name: str) -> bool:
    if name == _LOCALHOST or name.endswith(f".{_LOCALHOST}"):
        return True
    try:
        address = ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    # A browser takes 0.0.0.0 for this machine, too.
    return address.is_loopback or address.is_unspecified
