"""The names of this server: which ones it answers to, and under which one the page lives.

Browsers send a cookie to every port of a host name, so whoever listens on another port of 127.0.0.1 or localhost would
get a cookie of those names. The page therefore lives at `LABEL.localhost`, a name of the loopback address that nobody
knows who has not shown a valid token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

_LABEL_CHARACTERS = 26
"""130 bits in base32."""
_LOCALHOST = "localhost"
BOTH_LOOPBACKS = frozenset({"127.0.0.1", "localhost", "::1", "0.0.0.0", "::"})
"""Addresses to listen on with which the server holds its port on 127.0.0.1 and on ::1, where `*.localhost` leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    hosts: frozenset[str]
    """The `Host` headers that are answered, in lower case."""
    port: int
    label: str | None
    """None where another program could listen on a loopback address at the same port."""
    public_url: str | None = None

    def page_host(self, host: str) -> str | None:
        """Where the page lives for somebody who came by a loopback name; None: at the very name they came by."""
        name, colon, port = _split(host)
        if self.label is None or not _is_loopback(name) or name == f"{self.label}.{_LOCALHOST}":
            return None
        return f"{self.label}.{_LOCALHOST}{colon}{port}"

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
        name, colon, port = _split(host)
        return f"http://127.0.0.1{colon}{port}" if name == f"{self.label}.{_LOCALHOST}" else f"http://{host}"


def addresses(
    *, listening_on: str, port: int, allowed_hosts: Iterable[str], public_url: str | None, key: bytes
) -> Addresses:
    """The names of a server that listens there; any other may be a stranger's name that leads here."""
    host, public = listening_on.lower(), None if public_url is None else public_url.lower().rstrip("/")
    names = {_LOCALHOST, "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host}
    hosts = {f"{name}:{port}" for name in names} | (names if port == 80 else set()) | {h.lower() for h in allowed_hosts}
    if public is not None:
        hosts.add(public.partition("://")[2])
    found = Addresses(
        hosts=frozenset(hosts), port=port, label=_label(key) if host in BOTH_LOOPBACKS else None, public_url=public
    )
    pages = {page for each in hosts if (page := found.page_host(each)) is not None}
    return Addresses(hosts=found.hosts | pages, port=port, label=found.label, public_url=public)


def _label(key: bytes) -> str:
    mac = hmac.new(key, b"askback page name", hashlib.sha256).digest()
    return base64.b32encode(mac).decode().lower()[:_LABEL_CHARACTERS]


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
