"""Processes that swap folders for links to somewhere else, or for each other, over and over, as fast as they can."""

from __future__ import annotations

SWAPPER = """
import os, sys, time
base, victim = sys.argv[1:3]
os.chdir(base)

def swap(folder, name):
    # The folder stays what it is under another name, and a link to somewhere else takes its place for a moment.
    here = os.path.join(folder, name)
    aside, link = os.path.join(folder, f".{name}.aside"), os.path.join(folder, f".{name}.link")
    os.rename(here, aside)
    os.symlink(victim, link)
    os.rename(link, here)
    time.sleep(0)
    os.unlink(here)
    os.rename(aside, here)

until = time.monotonic() + 100
while time.monotonic() < until:
    for folder, names in (("inputs", ["answer"]), (".", ["inputs"])):
        try:
            if folder == "inputs":
                names = [name for name in os.listdir(folder) if not name.startswith(".")]
            for name in names:
                swap(folder, name)
        except OSError:
            pass
"""


EXCHANGER = """
import ctypes, itertools, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
HERE, EXCHANGE = -100, 2

def exchange(one, other):
    # Some systems have no such call; three steps do the same, with moments in which nothing is there.
    if hasattr(libc, "renameat2") and not libc.renameat2(HERE, one, HERE, other, EXCHANGE):
        return
    try:
        os.rename(one, one + b".aside")
        os.rename(other, one)
        os.rename(one + b".aside", other)
    except OSError:
        time.sleep(0.001)

base = os.fsencode(sys.argv[1])
pairs = [(os.path.join(base, b"d%d" % n), os.path.join(base, b"x%d" % n)) for n in range(int(sys.argv[2]))]
print("swapping", flush=True)
until = time.monotonic() + 100
for count, pair in enumerate(itertools.cycle(pairs)):
    exchange(*pair)
    if count % 1000 == 0 and time.monotonic() > until:
        break
"""
"""Exchanges the entries d0 and x0, d1 and x1 ... of a folder, as fast as it can."""
