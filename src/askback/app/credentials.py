"""What gives this program access to its database and to the file store. Engines get none of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from askback.settings.model import Settings, variables

_SECRETS = {
    "postgresql": ("PGPASSWORD", "PGSSLPASSWORD"),
    "s3": ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN"),
    "gs": ("GOOGLE_SERVICE_ACCOUNT_KEY",),
    "az": (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_TOKEN",
        "AZURE_STORAGE_CLIENT_SECRET",
        "AZURE_CLIENT_SECRET",
    ),
}
"""Variables that contain a secret, by the scheme of the address."""
_FILES = {
    "postgresql": ("PGPASSFILE", "PGSERVICEFILE", "PGSSLKEY"),
    "s3": ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH"),
    "az": ("AZURE_FEDERATED_TOKEN_FILE",),
}
"""Variables that name a file with a secret."""
_FILE_OPTIONS = ("passfile", "servicefile", "sslkey")
"""Options of the address of a database that name such a file."""


def credential_variables(settings: Settings) -> frozenset[str]:
    """The variables that the database and the file store of these settings use."""
    return frozenset(name for names in (_SECRETS, _FILES) for scheme in _schemes(settings) for name in names[scheme])


def credential_values(settings: Settings) -> tuple[str, ...]:
    """The secrets in these variables."""
    return tuple(variables(name for scheme in _schemes(settings) for name in _SECRETS[scheme]).values())


def credential_files(settings: Settings) -> list[Path]:
    """The files with secrets that these variables and the address of the database name.

    A file that the settings of an engine name as well is shared with it on purpose.
    """
    named = [*variables(name for scheme in _schemes(settings) for name in _FILES[scheme]).values()]
    options = parse_qsl(urlsplit(settings.database or "").query)
    named += [value for option, value in options if option in _FILE_OPTIONS]
    shared = {value for engine in settings.engines.values() for value in engine.env.values()}
    return [Path(name) for name in named if name.startswith("/") and name not in shared]


def _schemes(settings: Settings) -> Iterator[str]:
    for address in (settings.database, settings.files):
        scheme = (address or "").partition("://")[0]
        known = "postgresql" if scheme == "postgres" else scheme
        if known in _FILES:
            yield known
