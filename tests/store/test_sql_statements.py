"""The statements of a database: named once per folder, and replaced only by those of the database's own folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from askback.store.sql.connection import Dialect


@pytest.mark.parametrize("second", ["reads.sql", "more.sql"])
def test_a_name_that_is_used_twice_in_one_folder_is_an_error(tmp_path: Path, second: str) -> None:
    (tmp_path / "reads.sql").write_text("-- name: twice\nSELECT 1;\n")
    with (tmp_path / second).open("a") as file:
        file.write("-- name: twice\nSELECT 2;\n")
    with pytest.raises(ValueError, match=r"\.sql: the name 'twice' is used twice in this folder"):
        _ = Dialect(tmp_path).sql


def test_the_folder_of_a_database_replaces_a_shared_statement(tmp_path: Path) -> None:
    shared = Dialect(tmp_path).sql
    (tmp_path / "own.sql").write_text("".join(f"-- name: {name}\nSELECT 'own';\n" for name in shared))
    assert set(Dialect(tmp_path).sql.values()) == {"SELECT 'own';"}
