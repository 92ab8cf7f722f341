"""A later version of Askback: a copy of this one with a higher number, two more steps of the tables, and more that it stores."""

from __future__ import annotations

import shutil
from pathlib import Path

import askback

VERSION = "99.0.0"
FIELD = "later"
"""What its runs have, and this version does not know."""
_MIGRATIONS = Path("store/postgres/sql/migrations")


class NextVersion:
    def __init__(self, folder: Path, *, needs_more: bool = False) -> None:
        """Its first new step is additive. Its second one is not: older programs cannot work with it.

        `needs_more`: a third one is additive again, so that it needs the second one.
        """
        self._package = folder / "askback"
        source = Path(askback.__file__).parent
        shutil.copytree(source, self._package, ignore=shutil.ignore_patterns("__pycache__"))
        self.before = len(list((source / _MIGRATIONS).glob("*.sql")))
        self._write("0998_more.sql", "ALTER TABLE runs ADD COLUMN later TEXT;")
        less = f"-- oldest format: {self.before + 1}\nALTER TABLE runs DROP COLUMN later;"
        self._write("0999_less.sql", less)
        if needs_more:
            self._write("1000_more.sql", "ALTER TABLE runs ADD COLUMN latest TEXT;")
        self._edit("__init__.py", f'__version__ = "{askback.__version__}"', f'__version__ = "{VERSION}"')
        last = "    newer: Mapping[str, str] | None = None\n"
        self._edit("core/runs.py", last, f'    {FIELD}: str = "of the next version"\n{last}')
        self._edit("store/postgres/jobs.py", "defer(run=run.id, ", "defer(more=[1], run=run.id, ")
        self._edit("core/instances.py", "    version: str\n", '    version: str\n    region: str = "nearby"\n')

    @property
    def env(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self._package.parent)}

    def _write(self, name: str, script: str) -> None:
        (self._package / _MIGRATIONS / name).write_text(script)

    def _edit(self, file: str, old: str, new: str) -> None:
        path = self._package / file
        text = path.read_text()
        assert text.count(old) == 1, (file, old)
        path.write_text(text.replace(old, new))
