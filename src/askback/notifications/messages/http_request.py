"""A message that is sent as an HTTP request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from askback import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


def json_request(url: str, body: Any, headers: Mapping[str, str] | None = None) -> HttpRequest:
    """A POST request with a JSON body. `body` may be encoded already."""
    encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
    common = {"Content-Type": "application/json", "User-Agent": f"askback/{__version__}"}
    return HttpRequest(url=url, headers={**common, **(headers or {})}, body=encoded)
