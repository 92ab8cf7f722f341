"""A program in a sandbox that works in a folder of the user: it has that folder, and nothing around it."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from askback.fs.repositories import MAX_REPOSITORIES
from askback.process.child import FolderRefused, Printed, call
from askback.process.guardian.client import Guardian, available
from askback.process.isolation import IsolationLevel
from askback.process.sandbox.bubblewrap import Sandboxed
from askback.process.sandbox.visibility import deny_list
from support.repositories import contents, git, repository

GIT = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.com")


class Place:
    """A home with a repository, a secret next to it, and a settings file of ours in it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.repo = repository(self.home / "code/repo")
        self.own = folder / "data/run/work"
        self.own.mkdir(parents=True)
        self.settings = self.repo / "askback.toml"
        self.settings.write_text('server.token = "secret"')
        for secret in (self.home / ".ssh/id", self.home / "code/secret", folder / "data/token"):
            secret.parent.mkdir(exist_ok=True)
            secret.write_text("secret")
        self._hide = deny_list(homes=[self.home], private=[folder / "data", self.settings])

    def run(self, script: str) -> Printed:
        async def main() -> Printed:
            spawner = Sandboxed(Guardian(), hide=self._hide)
            try:
                isolation = await spawner.isolation()
                if isolation.level is not IsolationLevel.BUBBLEWRAP:
                    pytest.skip(f"no sandbox here: {isolation.why_not_more}")
                env = {"PATH": "/usr/bin:/bin", "HOME": str(self.own)}
                argv = ("sh", "-c", f"cd {self.repo}; {script}")
                return await call(
                    spawner, argv, env=env, cwd=self.own, workdir=self.repo, timeout_sec=100, mark="tested"
                )
            finally:
                await spawner.close()

        if not available():
            pytest.skip("there is no guardian here")
        return asyncio.run(main())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.contract("J-6")
def test_the_folder_is_there_at_its_path_and_nothing_around_it(place: Place) -> None:
    script = f"""
pwd
echo blue > site.css && mkdir -p artifacts && echo report > artifacts/report.md
for path in {place.home}/.ssh {place.home}/code/secret {place.own}/../../token; do ls $path 2>/dev/null; done
ls {place.home}/code
cat askback.toml 2>/dev/null
touch {place.home}/code/beside 2>/dev/null
"""
    assert place.run(script).stdout.splitlines() == [str(place.repo), "repo"]
    assert (place.repo / "site.css").read_text() == "blue\n"
    assert (place.repo / "artifacts/report.md").read_text() == "report\n"
    assert place.settings.read_text() == 'server.token = "secret"'
    assert not (place.home / "code/beside").exists()


@pytest.mark.contract("J-6")
def test_the_engine_reads_the_repository_and_changes_nothing_of_it(place: Place) -> None:
    (place.repo / ".git/hooks").mkdir(exist_ok=True)
    before = contents(place.repo / ".git")
    script = """
echo evil >> .git/config; rm -f .git/config; mv .git/config .git/old
git config core.fsmonitor evil
echo evil > .git/hooks/pre-commit; rm -rf .git/hooks; mv .git/hooks .git/old
mv .git old; rm -rf .git
echo blue > site.css
git -c user.name=a -c user.email=b commit --quiet -am "by the engine" && echo committed
git log --format=%s && git status --porcelain && git diff --stat -- site.css
"""
    assert [line.strip() for line in place.run(script).stdout.splitlines()] == [
        "start",
        "M old.txt",
        "M site.css",
        "?? askback.toml",
        "?? notes.txt",
        "site.css | 2 +-",
        "1 file changed, 1 insertion(+), 1 deletion(-)",
    ]
    assert contents(place.repo / ".git") == before


_MONITOR = "[core]\\n\\tfsmonitor = touch ../ran-by-git\\n"
_NEW_GIT = f"""
mkdir -p $at/objects $at/refs && echo 'ref: refs/heads/main' > $at/HEAD
printf '[core]\\n\\trepositoryformatversion = 0\\n' > $at/config; printf '{_MONITOR}' >> $at/config
"""
_HOOK = (
    "mkdir -p .git/hooks; printf '#!/bin/sh\\ntouch ../ran-by-git\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/*"
)
_COMMON = f"mkdir .git/x; cp -r .git/objects .git/refs .git/config .git/x; printf '{_MONITOR}' >> .git/x/config"
ATTACKS = {
    "another common folder": ("true", f"{_COMMON}; echo x > .git/commondir"),
    "a common folder beside it": ("true", f"{_COMMON.replace('.git/x', 'x')}; echo ../x > .git/commondir"),
    "no configuration of the worktree": (
        "git config extensions.worktreeConfig true",
        f"printf '{_MONITOR}' > .git/config.worktree",
    ),
    "no hooks": ("rm -rf .git/hooks", _HOOK),
    "hooks that are a link": (
        "mv .git/hooks ../hooks; ln -s ../../hooks .git/hooks",
        f"rm .git/hooks; {_HOOK}",
    ),
    "the configuration of a submodule": ("submodule sub", f"printf '{_MONITOR}' >> .git/modules/sub/config"),
    "the file of a submodule": ("submodule sub", f"rm sub/.git; at=sub/.git; {_NEW_GIT}"),
    "a submodule that is moved": ("submodule sub", f"mv sub old; at=sub/.git; {_NEW_GIT}"),
    "a folder around a submodule that is moved": ("submodule deep/sub", f"mv deep old; at=deep/sub/.git; {_NEW_GIT}"),
    "a file that leads to the repository": (
        "mv .git ../separate; echo 'gitdir: ../separate' > .git",
        f"rm .git; at=.git; {_NEW_GIT}",
    ),
    "a bare repository that a file leads to": (
        "mv .git .bare; echo 'gitdir: ./.bare' > .git",
        f"printf '{_MONITOR}' >> .bare/config",
    ),
    "a repository in a subfolder": (
        "mkdir -p a/b; cp -r .git a/b/",
        f"printf '{_MONITOR}' >> a/b/.git/config; mv a/b a/c; mv a d; at=a/b/.git; {_NEW_GIT}",
    ),
}


@pytest.mark.contract("J-6")
@pytest.mark.parametrize("attack", ATTACKS)
def test_git_of_the_user_runs_nothing_that_an_engine_left_in_a_repository(place: Place, attack: str) -> None:
    layout, script = ATTACKS[attack]
    (place.repo / ".git/hooks").mkdir(exist_ok=True)
    if layout.startswith("submodule "):
        other = repository(place.home / "other")
        git(place.repo, "submodule", "--quiet", "add", str(other), layout.removeprefix("submodule "))
    else:
        subprocess.run(["sh", "-ec", layout], cwd=place.repo, check=True)
    place.run(script)
    for folder in {place.repo, *(each.parent for each in place.repo.rglob(".git"))}:
        subprocess.run([*GIT, "status"], cwd=folder, capture_output=True)
    subprocess.run(
        [*GIT, "commit", "--quiet", "--allow-empty", "-m", "by the user"], cwd=place.repo, capture_output=True
    )
    assert not list(place.home.rglob("ran-by-git"))


def test_a_repository_that_is_a_link_is_refused(place: Place) -> None:
    (place.repo / ".git").rename(place.home / "elsewhere")
    (place.repo / ".git").symlink_to(place.home / "elsewhere")
    with pytest.raises(FolderRefused, match="is a link"):
        place.run("true")


def test_a_folder_that_vanished_is_refused(place: Place) -> None:
    place.repo.rename(place.home / "moved")
    with pytest.raises(FolderRefused, match="does not exist"):
        place.run("true")


def test_more_repositories_than_can_be_protected_are_refused(place: Place) -> None:
    for number in range(MAX_REPOSITORIES):
        (place.repo / f"part-{number}/.git").mkdir(parents=True)
    with pytest.raises(FolderRefused, match="more than 100 git repositories"):
        place.run("true")
