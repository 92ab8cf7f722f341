"""Why a server cannot be reached, in words. The libraries below say “All connection attempts failed”."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

import httpx


def reason_of(error: httpx.TransportError | httpx.InvalidURL) -> str:
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
