"""What Askback reads from the environment of its process. No other module reads it: all others receive values."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

PREFIX = "ASKBACK_"
COMMON_DATABASE = "DATABASE_URL"
_COMMON_ENV = (
    "PATH",
    "LANG",
    "LANGUAGE",
    "TZ",
    "USER",
    "LOGNAME",
    "SHELL",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
)
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)


def named_folder(variable: str, fallback: str) -> Path:
    """The folder that a variable names; without a whole path in it, the fallback in the home of the user."""
    base = os.environ.get(variable, "")
    return Path(base) if base.startswith("/") else Path.home() / fallback


def data_folder() -> Path:
    return named_folder("XDG_DATA_HOME", ".local/share") / "askback"


def ignore_relative_search_path() -> None:
    """Drop relative folders from PATH, so that no program is found in the working directory."""
    if "PATH" in os.environ:
        os.environ["PATH"] = _absolute_folders(os.environ["PATH"])


def _absolute_folders(search: str) -> str:
    return os.pathsep.join(folder for folder in search.split(os.pathsep) if folder.startswith("/"))


def engine_environment(allow: Iterable[str], added: Mapping[str, str]) -> dict[str, str]:
    """The environment of an engine: a few common variables, those in `allow`, and those that the settings add."""
    names = {*_COMMON_ENV, *allow, *(name for name in os.environ if name.startswith("LC_"))}
    taken = {name: os.environ[name] for name in names if name in os.environ}
    if "PATH" in taken:
        taken["PATH"] = _absolute_folders(taken["PATH"])
    return {**taken, **added}


def variables(names: Iterable[str]) -> dict[str, str]:
    """The values of these variables, of those that are set and not empty."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables whose names suggest a secret."""
    return tuple(value for name, value in environment.items() if _SECRET_NAME.search(name))


def user_home() -> Path:
    return Path.home()


def common_database() -> str | None:
    """The address in `DATABASE_URL`, which other programs use, too."""
    return os.environ.get(COMMON_DATABASE)


def client_environment() -> tuple[str | None, str | None]:
    """The server's URL and token for the client commands. An empty variable counts as unset."""
    return os.environ.get("ASKBACK_URL") or None, os.environ.get("ASKBACK_TOKEN") or None


def environment_moves_data() -> bool:
    """Whether the data folder depends on the environment of this process, and may be another one elsewhere."""
    return any(os.environ.get(name) for name in ("ASKBACK_DATA_DIR", "XDG_DATA_HOME"))


def setting_variable(path: Sequence[str]) -> str:
    """The variable that sets this key: its own, or that of a table which contains it."""
    given = {name.upper() for name in os.environ}
    names = [PREFIX + "__".join(path[:length]).upper() for length in range(len(path), 0, -1)]
    return next((name for name in names if name in given), names[0])


def process_environment() -> Mapping[str, str]:
    """The variables of this process, for a command that passes some of them on."""
    return os.environ
