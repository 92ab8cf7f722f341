"""One sync of a file system serves all who had written before it began."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from askback.fs import atomic
from askback.fs.atomic import GroupSync

PATIENCE_SEC = 60.0


class CountedLock:
    """Counts those who have come to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counting = threading.Condition()
        self._came = 0

    def __enter__(self) -> None:
        with self._counting:
            self._came += 1
            self._counting.notify_all()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait_for(self, many: int) -> None:
        with self._counting:
            assert self._counting.wait_for(lambda: self._came >= many, PATIENCE_SEC)


class Watched(GroupSync):
    """Counts the syncs, and can hold one until it is let go."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lock = CountedLock()
        self._running = self.lock  # type: ignore[assignment]
        self.count = 0
        self.began = threading.Event()
        self.go_on = threading.Event()
        self.fault: OSError | None = None

    def _sync(self) -> None:
        self.count += 1
        self.began.set()
        assert self.go_on.wait(PATIENCE_SEC)
        if self.fault is not None:
            raise self.fault
        super()._sync()


def started(disk: Watched, folder: Path, failures: list[OSError]) -> threading.Thread:
    def work() -> None:
        try:
            disk.sync(folder)
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize("fault", [None, OSError(errno.EIO, "broken")])
def test_callers_that_arrive_during_a_sync_share_the_next_one(tmp_path: Path, fault: OSError | None) -> None:
    disk, failures = Watched(tmp_path), list[OSError]()
    first = started(disk, tmp_path, failures)
    assert disk.began.wait(PATIENCE_SEC)
    later = [started(disk, tmp_path, failures) for _ in range(20)]
    disk.lock.wait_for(21)
    disk.fault = fault
    disk.go_on.set()
    for thread in (first, *later):
        thread.join(PATIENCE_SEC)
    assert disk.count == 2, "what is written while a sync runs is not covered by it"
    assert len(failures) == (0 if fault is None else 21)


def test_the_files_of_a_folder_are_synced_in_one_pass_where_a_file_system_cannot_be(tmp_path: Path) -> None:
    tree = tmp_path / "a" / "b"
    tree.mkdir(parents=True)
    (tree / "file").write_text("x")
    (tree / "link").symlink_to("/nowhere")
    atomic._sync_each(tree, tmp_path)
