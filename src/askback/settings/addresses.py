"""What is wrong with the address of a database or of stored files, said before anything connects to it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

_ENCODE = (
    "a special character in its user or password must be percent-encoded (%40 for @, %2F for /, %3A for :, %3F for ?,"
    " %23 for #, %25 for %); or leave the password out, and set PGPASSWORD"
)


def check_database(address: str | None) -> str | None:
    """Raises `ValueError` if a part of the password would be taken for another part, and shown as such."""
    if address is None or not address.startswith(("postgres://", "postgresql://")):
        return address
    place, _, options = address.partition("://")[2].partition("?")
    user, at, host = place.partition("@")
    odd_port = not at and "@" in options and not (place.partition(":")[2].partition("/")[0] or "0").isdigit()
    if (at and ("/" in user or "@" in host)) or odd_port or "#" in address or not _is_url(address):
        raise ValueError(_ENCODE)
    return address


def _is_url(address: str) -> bool:
    try:
        urlsplit(address)
    except ValueError:
        return False
    return True


def check_files(address: object) -> object:
    """Raises `ValueError` for a folder that is not the same one everywhere."""
    if isinstance(address, str):
        folder = address.removeprefix("file://")
        if not folder.startswith("/") and (folder != address or "://" not in address):
            raise ValueError("a folder must be absolute, such as /mnt/askback; a bucket looks like s3://bucket/askback")
    return address


def check_runs_dir(path: Path | None) -> Path | None:
    """Raises `ValueError` for a path that depends on the folder of a settings file, or on the working directory."""
    if path is not None and not path.is_absolute() and not str(path).startswith("~"):
        raise ValueError(
            "must be absolute, such as /var/lib/askback/runs: the sessions of engines contain it, and it must be the same"
            " on all machines"
        )
    return path
