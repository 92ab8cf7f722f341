"""The setting `files`: where stored files are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from askback.core.errors import Invalid, RefusalCode


class StoreKind(StrEnum):
    S3 = "s3"
    GCS = "gs"
    AZURE = "az"


_OPTIONS = {
    StoreKind.S3: {"endpoint", "region"},
    StoreKind.GCS: set[str](),
    StoreKind.AZURE: {"endpoint", "account"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """An object store. It contains no secrets."""

    kind: StoreKind
    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    account: str | None = None

    def __str__(self) -> str:
        at = f" at {self.endpoint}" if self.endpoint else ""
        return f"{self.kind}://{self.bucket}/{self.prefix}".rstrip("/") + at


def read_address(given: str) -> Path | StoreAddress:
    """A folder or an object store. Raises `Invalid`; the message does not repeat the address."""
    if given.startswith("/"):
        return Path(given)
    parts = urlsplit(given)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return Path(unquote(parts.path))
    if parts.scheme not in set(StoreKind) or not parts.netloc or parts.fragment:
        raise _wrong("must look like s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or /a/folder")
    if "@" in parts.netloc or ":" in parts.netloc:
        raise _wrong("has no user, password or port; credentials come from the environment")
    kind = StoreKind(parts.scheme)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := options.keys() - _OPTIONS[kind]:
        known = ", ".join(sorted(_OPTIONS[kind])) or "none"
        raise _wrong(f"has unknown options: {', '.join(sorted(unknown))}; known for {kind}: {known}")
    endpoint = options.get("endpoint")
    if endpoint is not None and not _is_endpoint(endpoint):
        raise _wrong("has an endpoint that does not look like https://minio.example:9000")
    prefix = parts.path.strip("/")
    if prefix and not all(each not in ("", ".", "..") and each.isascii() for each in prefix.split("/")):
        raise _wrong("has a prefix with unusual folders")
    return StoreAddress(
        kind=kind,
        bucket=parts.netloc,
        prefix=prefix,
        endpoint=endpoint,
        region=options.get("region"),
        account=options.get("account"),
    )


def _is_endpoint(url: str) -> bool:
    parts = urlsplit(url)
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain


def _wrong(problem: str) -> Invalid:
    return Invalid(RefusalCode.SETTINGS_INVALID, "the settings are wrong", [f"files: the address {problem}"])
