"""Runs the steps of the Dockerfile without a container engine: in a new Debian root, as the users that it names.

The stages share one root, which stands for their images, and packages are installed from files that the host downloads.
Needs root, debootstrap and Debian's mirrors. The stages with Node are not run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAGES = ("build", "base", "slim")
RELEASES = {"3.11": "bookworm", "3.13": "trixie"}
"""Debian releases, by the Python that they have."""
LIMIT_SEC = 120
CHROOT = shutil.which("chroot", path="/usr/sbin:/usr/bin:/sbin:/bin") or "chroot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One instruction, with its continuation lines joined."""

    stage: str
    word: str
    text: str


def steps(dockerfile: str) -> list[Step]:
    """The instructions of every stage, in order. Those before the first FROM have the stage ''."""
    found, stage = [], ""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^\s*#.*\n", "", dockerfile, flags=re.MULTILINE))
    for line in filter(str.strip, joined.splitlines()):
        word, _, text = line.partition(" ")
        if word == "FROM":
            stage = text.rpartition(" AS ")[2]
        found.append(Step(stage=stage, word=word, text=text.strip()))
    return found


@dataclass(slots=True, kw_only=True)
class Image:
    """A root folder, and what the instructions so far have set."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    user: str = "0"
    workdir: str = "/"
    health: list[str] = field(default_factory=list)
    start: list[str] = field(default_factory=list)

    def command(self, words: Sequence[str]) -> list[str]:
        inner = f'cd {self.workdir} && exec "$@"'
        return [CHROOT, f"--userspec={self.user}:{self.user}", str(self.root), "/bin/sh", "-c", inner, "sh", *words]

    def run(self, words: Sequence[str], **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(words), env=self.environment(more), text=True, check=True)

    def spawn(self, words: Sequence[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(self.command(words), env=self.environment({}), text=True)

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        home = {"HOME": "/root" if self.user == "0" else self.workdir, "LANG": "C.UTF-8"}
        proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        return {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **proxies, **home, **self.env, **more}


def carry_out(image: Image, step: Step) -> None:
    match step.word:
        case "RUN":
            print(f"== {step.stage}: RUN {step.text[:100]}", flush=True)
            image.run(
                ["/bin/sh", "-c", step.text],
                PIP_NO_INDEX="1",
                PIP_FIND_LINKS="/wheels",
                DEBIAN_FRONTEND="noninteractive",
            )
        case "COPY":
            _copy(image, step.text.split())
        case "ENV":
            image.env |= dict(word.split("=", 1) for word in step.text.split())
        case "USER":
            image.user = step.text
        case "WORKDIR":
            image.workdir = step.text
            (image.root / step.text.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case "HEALTHCHECK":
            image.health = json.loads(step.text.partition("CMD ")[2])
        case "ENTRYPOINT":
            image.start = json.loads(step.text)
        case "CMD":
            image.start = [*image.start, *json.loads(step.text)]
        case "FROM":
            image.user, image.workdir = (image.user, image.workdir) if step.stage == "slim" else ("0", "/")
        case "ARG" | "VOLUME" | "EXPOSE":
            pass
        case other:
            raise SystemExit(f"the check does not know the instruction {other}")


def _copy(image: Image, words: list[str]) -> None:
    """From the context. What another stage made is in the same root already."""
    if words[0].startswith("--from="):
        return
    *sources, target = words
    for source in sources:
        place = image.root / image.workdir.lstrip("/") / target
        if (ROOT / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / source, place, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / source, place / Path(source).name)


def python_version(dockerfile: str) -> str:
    """The version of the images that the Dockerfile starts from."""
    found = re.search(r"^ARG PYTHON=(\S+)$", dockerfile, re.MULTILINE)
    if found is None or found[1] not in RELEASES:
        known = ", ".join(RELEASES)
        raise SystemExit(f"the Dockerfile names no Python that a Debian release has; known: {known}")
    return found[1]


def bootstrap(root: Path, python: str) -> None:
    """A new Debian of the release with this Python, which the image of that Python also is made from."""
    packages = "python3,python3-venv,ca-certificates"
    command = ["debootstrap", "--variant=minbase", f"--include={packages}", RELEASES[python], str(root)]
    print(f"== debootstrap {RELEASES[python]}, for Python {python}", flush=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def add_packages(root: Path, version: str) -> None:
    """The wheels of the lock file, for the Python of the root."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
        "--python-version",
        version,
    ]
    extras = ("mcp", "otel", "postgres")
    files = [str(ROOT / f"requirements-{extra}.txt") for extra in extras]
    locked = ["--require-hashes", *(word for file in files for word in ("-r", file))]
    subprocess.run([*pip, "-d", str(root / "wheels"), *locked], check=True)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")


def prove(image: Image) -> None:
    """The demo works, and the server becomes healthy, as the user of the image."""
    image.run(["askback", "demo", "--answer", "relaxed"])
    server = image.spawn(image.start)
    try:
        deadline = time.monotonic() + LIMIT_SEC
        while subprocess.run(
            image.command(image.health), env=image.environment({}), stderr=subprocess.DEVNULL
        ).returncode:
            if server.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the server did not become healthy")
            time.sleep(0.5)
    finally:
        server.terminate()
        server.wait(LIMIT_SEC)
    owner = (image.root / "data/askback.db").stat().st_uid
    if str(owner) != image.user or owner == 0:
        raise SystemExit(f"the data belongs to user {owner}, not to {image.user}")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--keep", action="store_true", help="keep the root folder, and print its path")
    keep = arguments.parse_args().keep
    folder = Path(tempfile.mkdtemp(prefix="askback-image-"))
    folder.chmod(0o755)
    dockerfile = (ROOT / "Dockerfile").read_text()
    python = python_version(dockerfile)
    image = Image(root=folder / "root")
    mounts = ("proc", "dev")
    try:
        bootstrap(image.root, python)
        add_packages(image.root, python)
        subprocess.run(["mount", "-t", "proc", "proc", str(image.root / "proc")], check=True)
        subprocess.run(["mount", "--bind", "/dev", str(image.root / "dev")], check=True)
        for step in steps(dockerfile):
            if step.stage in STAGES:
                carry_out(image, step)
        prove(image)
    finally:
        for name in mounts:
            if os.path.ismount(image.root / name):
                subprocess.run(["umount", "-l", str(image.root / name)], check=False)
        if keep:
            print(folder)
        elif not any(os.path.ismount(image.root / name) for name in mounts):
            shutil.rmtree(folder)
    print(
        f"image: the steps of build, base and slim work with Python {python}; demo and server run as user {image.user}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
