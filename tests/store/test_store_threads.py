"""Rows are read in several threads from the first moment on."""

from __future__ import annotations

import subprocess
import sys

from lives import new_run

from askback.store.sql import rows

# Threads that come one after the other, and are switched between at every chance, each reading its first run.
PROGRAM = """
import sys, threading, time
sys.setswitchinterval(1e-5)
from askback.store.sql import rows
document = sys.stdin.read()
def read(delay):
    time.sleep(delay)
    rows.load_run(document)
threads = [threading.Thread(target=read, args=(number * 0.0001,)) for number in range(30)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_the_first_reads_of_many_threads_end_well() -> None:
    """msgspec takes the process down where two threads look at a class for the first time."""
    _, document = rows.stored(new_run())
    ran = subprocess.run([sys.executable, "-c", PROGRAM], input=document, text=True, timeout=60, check=False)
    assert ran.returncode == 0
