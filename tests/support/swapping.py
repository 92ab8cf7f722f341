"""A process that swaps folders for links to somewhere else, over and over, as fast as it can."""

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
