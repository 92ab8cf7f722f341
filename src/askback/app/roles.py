"""What a program does: serve the API, execute runs, or both."""

from __future__ import annotations

from enum import StrEnum

from askback.core.errors import Invalid, RefusalCode
from askback.settings.model import Settings


class Role(StrEnum):
    COMMAND = "command"
    """Executes its own runs, and ends with them."""
    SERVER = "server"
    """Serves the API, and executes runs that any server or worker may execute."""
    API_SERVER = "api_server"
    """Serves the API, and executes nothing."""
    WORKER = "worker"
    """Executes runs that any server or worker may execute, and serves no API."""

    @property
    def serves(self) -> bool:
        return self in (Role.SERVER, Role.API_SERVER)

    @property
    def executes(self) -> bool:
        return self is not Role.API_SERVER

    @property
    def uses_shared_queue(self) -> bool:
        """Whether its runs are in the queue that all servers and workers share, and so may be executed by any of them."""
        return self is not Role.COMMAND


def check_database(settings: Settings, role: Role) -> None:
    """Refuse a role that needs a database that several programs share. SQLite belongs to the programs of one machine."""
    if settings.database not in (None, "sqlite"):
        return
    advice = "set `database` to the address of a PostgreSQL database; see docs/guides/postgresql.md"
    match role:
        case Role.API_SERVER:
            message = (
                "`--no-worker` needs PostgreSQL: with SQLite there are no other workers, and no run would ever start"
            )
        case Role.WORKER:
            message = "`askback worker` needs PostgreSQL: with SQLite, the server executes the runs itself"
        case Role.COMMAND | Role.SERVER:
            return
    raise Invalid(RefusalCode.SETTINGS_INVALID, f"{message}; {advice}")
