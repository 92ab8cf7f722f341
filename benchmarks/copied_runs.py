"""Many copies of one run in PostgreSQL: every row that the run has, with a new id. All columns are copied, also later ones."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

_NEW_ID = "substr(md5('copy ' || copy.n), 1, 16)"
_BATCH = 20_000
_COLUMNS = """
SELECT table_name, column_name, data_type FROM information_schema.columns
WHERE table_schema = 'askback' AND is_identity = 'NO' AND table_name = ANY (%s)
ORDER BY table_name, ordinal_position
"""
_PARTS = """
SELECT table_name FROM information_schema.columns
WHERE table_schema = 'askback' AND column_name IN ('run', 'run_id') AND table_name <> 'runs'
ORDER BY table_name
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    name: str
    columns: tuple[tuple[str, str], ...]
    """Names and types, without the number that the database gives."""

    def copy(self) -> str:
        """The statement that copies the rows of the template for the numbers of a batch."""
        names = ", ".join(name for name, _ in self.columns)
        values = ", ".join(self._value(name, kind) for name, kind in self.columns)
        source = f"INSERT INTO {self.name} ({names}) SELECT {values} FROM {self.name} AS part"
        if self.name == "runs":
            return f"{source}, generate_series(%(first)s::int, %(last)s::int) AS copy (n) WHERE part.id = %(id)s"
        key = "run" if ("run", "bigint") in self.columns else "run_id"
        own = "%(number)s" if key == "run" else "%(id)s"
        made = (
            f"(SELECT {_NEW_ID} AS id, runs.number, copy.n FROM generate_series(%(first)s::int, %(last)s::int) AS copy (n)"
            f" JOIN runs ON runs.id = {_NEW_ID} OFFSET 0) AS made"
        )
        return f"{source}, {made} WHERE part.{key} = {own}"

    def _value(self, name: str, kind: str) -> str:
        new_id = _NEW_ID if self.name == "runs" else "made.id"
        if name == "run":
            return "made.number"
        if self.name == "runs" and name in ("asked_at", "deadline_at", "created_at"):
            return f"part.{name} + copy.n * 1000"
        if kind == "text":
            return f"replace(part.{name}, %(id)s, {new_id})"
        return f"part.{name}"


def tables(connection: psycopg.Connection[tuple[object, ...]]) -> list[Table]:
    """Those with rows of runs, `runs` first."""
    names = ["runs", *(str(name) for (name,) in connection.execute(_PARTS))]
    found: dict[str, list[tuple[str, str]]] = {name: [] for name in names}
    for table, column, kind in connection.execute(_COLUMNS, (names,)):
        found[str(table)].append((str(column), str(kind)))
    return [Table(name=name, columns=tuple(columns)) for name, columns in found.items()]


def copy(address: str, run_id: str, count: int) -> None:
    """Add copies of a run, and collect statistics as the server does in time."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("SET search_path TO askback")
        # The rows refer to one another as those of the template do, which were checked.
        connection.execute("SET session_replication_role TO replica; SET synchronous_commit TO off")
        statements = [each.copy() for each in tables(connection)]
        [(number,)] = connection.execute("SELECT number FROM runs WHERE id = %s", (run_id,)).fetchall()
        for first in range(1, count + 1, _BATCH):
            values = {"id": run_id, "number": number, "first": first, "last": min(first + _BATCH - 1, count)}
            with connection.transaction():
                for statement in statements:
                    connection.execute(statement.encode(), values)
        connection.execute("VACUUM ANALYZE")


def shape(address: str, run_id: str) -> dict[str, list[tuple[int, ...]]]:
    """For each table, the lengths of the values of each row of a run, in order: a copy has the same as its template."""
    with psycopg.connect(address) as connection:
        connection.execute("SET search_path TO askback")
        found = {}
        for table in tables(connection):
            key = {"runs": "id", "audit": "run_id"}.get(table.name, "run")
            own = "%(id)s" if key != "run" else "(SELECT number FROM runs WHERE id = %(id)s)"
            lengths = ", ".join(f"length({name}::text)" for name, _ in table.columns if name != "run")
            query = f"SELECT {lengths} FROM {table.name} WHERE {key} = {own} ORDER BY {lengths}"
            found[table.name] = [tuple(row) for row in connection.execute(query.encode(), {"id": run_id})]
        return found


def a_copy(address: str) -> str:
    """The id of the first copy."""
    with psycopg.connect(address) as connection:
        return str(connection.execute("SELECT substr(md5('copy 1'), 1, 16)").fetchall()[0][0])
