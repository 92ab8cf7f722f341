"""The host names of this server: those that it serves, and the one of the page.

Browsers send a cookie to every port of a host name, so any program on another port of 127.0.0.1 or localhost would
receive it. The page is therefore at `LABEL.localhost`, a loopback name with a secret label for each token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from askback.core.errors import Unavailable

_LOCALHOST = "localhost"
BOTH_LOOPBACKS = frozenset({"127.0.0.1", "localhost", "::1", "0.0.0.0", "::"})
"""Listening on one of these reserves the port on 127.0.0.1 and on ::1, to which `*.localhost` resolves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    hosts: frozenset[str]
    """The accepted `Host` headers besides the names of the page, in lower case."""
    port: int
    labels: PageLabels | None
    """None: the page has no separate host name, because another program may own the port on a loopback address."""
    page_ports: frozenset[str]
    """Port suffixes of the page's names: `:8765`, and those of forwarded loopback names."""
    public_url: str | None = None

    def accepts(self, host: str) -> bool:
        """Whether a `Host` header, in lower case, is accepted."""
        return host in self.hosts or self._is_page_host(host)

    def page_host(self, host: str, token_digest: str) -> str | None:
        """The host of the page for a token whose holder used a loopback name; None: the same host."""
        name, colon, port = _split(host)
        if self.labels is None or not _is_loopback(name):
            return None
        page = f"{self.labels.of(token_digest)}.{_LOCALHOST}{colon}{port}"
        return None if page == host else page

    def may_continue(self, host: str) -> bool:
        """Whether a sign-in at this host name may continue at a name of the page."""
        return self.labels is not None and _is_loopback(_split(host)[0]) and self.accepts(host)

    def _is_page_host(self, host: str) -> bool:
        name, colon, port = _split(host)
        label, dot, parent = name.partition(".")
        if self.labels is None or not dot or parent != _LOCALHOST or f"{colon}{port}" not in self.page_ports:
            return False
        return self.labels.has(label)

    def is_secure(self, host: str) -> bool:
        """Whether this name uses TLS. Only the settings decide, never a header."""
        return self.public_url is not None and self.public_url == f"https://{host}"

    def cookie_name(self, host: str) -> str:
        """Contains the port, so that several servers on one machine do not overwrite each other's cookies."""
        return f"{'__Host-' if self.is_secure(host) else ''}askback_session_{self.port}"

    def base_url(self, host: str) -> str:
        """The start of the URL of a link. The name of the page is a secret of its token."""
        if self.public_url is not None:
            return self.public_url
        _, colon, port = _split(host)
        return f"http://{host}" if host in self.hosts else f"http://127.0.0.1{colon}{port}"


def addresses(
    *, listening_on: str, port: int, allowed_hosts: Iterable[str], public_url: str | None, labels: PageLabels
) -> Addresses:
    """The names of a server that listens there. Any other name may be a DNS rebinding attack."""
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
    """`[::1]:80` → `("[::1]", ":", "80")`. Without a port, the last two are empty."""
    name, colon, port = host.rpartition(":")
    return (name, colon, port) if colon and not port.endswith("]") else (host, "", "")


def _is_loopback(name: str) -> bool:
    if name == _LOCALHOST or name.endswith(f".{_LOCALHOST}"):
        return True
    try:
        address = ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    # Browsers treat 0.0.0.0 as this machine.
    return address.is_loopback or address.is_unspecified


_CHARACTERS = 26
"""130 bits in base32."""


@dataclass(slots=True, eq=False, repr=False)
class PageLabels:
    key: bytes
    digests: Callable[[], frozenset[str]]
    """Of all tokens, possibly including expired ones."""
    is_valid: Callable[[str], bool]
    _cached: tuple[frozenset[str], dict[str, str]] = field(init=False, default_factory=lambda: (frozenset(), {}))
    """The digests at the last check, and the same by label."""

    def of(self, token_digest: str) -> str:
        mac = hmac.new(self.key, b"askback page name\0" + token_digest.encode(), hashlib.sha256).digest()
        return base64.b32encode(mac).decode().lower()[:_CHARACTERS]

    def has(self, label: str) -> bool:
        token_digest = self._cached[1].get(label) or self._current().get(label)
        return token_digest is not None and self.is_valid(token_digest)

    def _current(self) -> dict[str, str]:
        """Computed again only if the tokens have changed: anybody can send unknown labels."""
        digests, by_label = self._cached
        try:
            found = self.digests()
        except Unavailable:
            # Those of before; which of them are valid is asked for each.
            return by_label
        if found != digests:
            by_label = {self.of(each): each for each in found}
            self._cached = (found, by_label)
        return by_label


def cookie(header: str, name: str) -> str | None:
    """The value of the cookie in a `Cookie` header; of several, the last."""
    found = None
    for part in header.split(";"):
        key, equals, value = part.partition("=")
        if equals and key.strip() == name:
            found = value.strip()
    return found
