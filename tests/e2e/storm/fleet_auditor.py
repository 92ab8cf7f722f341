"""The auditor of a fleet: the session that counts is in the archive that the run's row names, in the object store."""

from __future__ import annotations

import io
import json
import tarfile
import time
from pathlib import Path

import psycopg
import zstandard

from storm.auditor import Auditor
from storm.clients import Story
from support.object_store import Bucket

_DATABASE_SEC = 60.0


class FleetAuditor(Auditor):
    def __init__(self, folder: Path, database: str, bucket: Bucket) -> None:
        super().__init__(folder)
        self._evidence = folder / "evidence"
        self._database = database
        self._bucket = bucket

    def home(self, story: Story) -> Path:
        """Unpacked without the code of Askback. Empty if no turn of the run has ended."""
        folder = self._evidence / story.run_id
        if not folder.exists():
            folder.mkdir(parents=True)
            if (key := self._kept(story.run_id)) is not None:
                self._unpack(key, folder)
        return folder / "home"

    def _kept(self, run_id: str) -> str | None:
        """The database may be down at the moment."""
        deadline = time.monotonic() + _DATABASE_SEC
        while True:
            try:
                with psycopg.connect(self._database, autocommit=True) as connection:
                    found = connection.execute("SELECT doc FROM askback.runs WHERE id = %s", (run_id,)).fetchone()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
                continue
            assert found is not None, f"run {run_id} is not in the database"
            doc = found[0] if isinstance(found[0], dict) else json.loads(found[0])
            kept = doc.get("kept")
            return None if kept is None else str(kept)

    def _unpack(self, key: str, folder: Path) -> None:
        packed = io.BytesIO(self._bucket.content(key))
        with (
            zstandard.ZstdDecompressor().stream_reader(packed) as stream,
            tarfile.open(fileobj=stream, mode="r|") as archive,
        ):
            archive.extractall(folder, filter="data")
