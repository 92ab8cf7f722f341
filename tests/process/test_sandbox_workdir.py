"""A program in a sandbox that works in a folder of the user: it has that folder, and nothing around it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from askback.process.child import Printed, call
from askback.process.guardian.client import Guardian, available
from askback.process.isolation import IsolationLevel
from askback.process.sandbox.bubblewrap import Sandboxed
from askback.process.sandbox.visibility import hidden
from support.repositories import contents, git, repository


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
        self._hide = hidden(homes=[self.home], private=[folder / "data", self.settings])

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
def test_the_engine_can_commit_but_not_configure_the_repository(place: Place) -> None:
    (place.repo / ".git/hooks").mkdir(exist_ok=True)
    before = contents(place.repo / ".git/hooks"), (place.repo / ".git/config").read_text()
    script = """
echo evil >> .git/config; rm -f .git/config; mv .git/config .git/old
git config core.fsmonitor evil
echo evil > .git/hooks/pre-commit; rm -rf .git/hooks; mv .git/hooks .git/old
mv .git old; rm -rf .git/config
echo blue > site.css
git -c user.name=a -c user.email=b commit --quiet -am "by the engine" && echo committed
"""
    assert place.run(script).stdout.splitlines()[-1:] == ["committed"]
    assert (contents(place.repo / ".git/hooks"), (place.repo / ".git/config").read_text()) == before
    assert git(place.repo, "log", "--format=%s").splitlines() == ["by the engine", "start"]
