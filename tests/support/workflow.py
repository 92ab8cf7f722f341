"""A runner for workflows of GitHub Actions: executes the `run` steps in order, with what GitHub says of them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from support.program import DEADLINE_SEC

BASH = shutil.which("bash") or "bash"
_EXPRESSION = re.compile(r"\$\{\{ (.*?) \}\}")


class StepFailed(AssertionError):
    def __init__(self, step: dict[str, Any], code: int, printed: str) -> None:
        super().__init__(f"{step['name']} ended with {code}: {printed}")
        self.name = step["name"]
        self.code = code


class Runner:
    """One job of a workflow, in its own folder. `known` are the values of expressions such as `inputs.days`."""

    def __init__(self, file: Path, folder: Path, known: Mapping[str, str]) -> None:
        # YAML 1.1 reads the key `on` as a boolean.
        self.workflow: dict[Any, Any] = yaml.safe_load(file.read_text())
        (self.job,) = self.workflow["jobs"].values()
        self.folder = folder
        temporary = folder.parent / "runner-temp"
        temporary.mkdir()
        self.summary, self._variables = temporary / "summary.md", temporary / "variables"
        inputs = self.workflow[True]["workflow_dispatch"]["inputs"]
        defaults = {f"inputs.{name}": each["default"] for name, each in inputs.items() if "default" in each}
        self._known = {"runner.temp": str(temporary), **defaults, **known}
        self.env = {
            "RUNNER_TEMP": str(temporary),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_ENV": str(self._variables),
            "GITHUB_RUN_ID": "1658821493",
        }

    def run(self, env: Mapping[str, str]) -> list[str]:
        """Execute the job; the files that it keeps. After a failed step only those that say so are executed."""
        failed: StepFailed | None = None
        kept: list[str] = []
        for step in self.job["steps"]:
            if failed and step.get("if") != "${{ !cancelled() }}":
                continue
            if step.get("uses", "").startswith("actions/upload-artifact@"):
                kept += self._found(step["with"]["path"])
            elif "run" in step:
                try:
                    self._execute(step, env)
                except StepFailed as error:
                    failed = failed or error
        if failed:
            raise failed
        return kept

    def _execute(self, step: dict[str, Any], env: Mapping[str, str]) -> None:
        assert self.workflow["defaults"]["run"]["shell"] == "bash"
        set_before = self._variables.read_text().splitlines() if self._variables.exists() else []
        own = {name: self._evaluated(value) for name, value in (self.job.get("env", {}) | step.get("env", {})).items()}
        assert "${{" not in step["run"], "an expression in a command can be used to inject commands"
        ran = subprocess.run(
            [BASH, "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            env={**env, **self.env, **dict(line.split("=", 1) for line in set_before), **own},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SEC,
            check=False,
        )
        if ran.returncode:
            raise StepFailed(step, ran.returncode, ran.stdout + ran.stderr)

    def _evaluated(self, value: str) -> str:
        return _EXPRESSION.sub(lambda found: self._known[found[1]], value)

    def _found(self, patterns: str) -> list[str]:
        """The names of the files that `path` matches; a folder stands for the files in it."""
        matches = []
        for pattern in self._evaluated(patterns).splitlines():
            base = Path("/") if pattern.startswith("/") else self.folder
            for path in base.glob(pattern.lstrip("/")):
                matches += [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        return sorted(path.name for path in matches)


def program(folder: Path, name: str, lines: str) -> None:
    """A program of the runner's machine, as a shell script."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!{shlex.quote(BASH)}\nset -eu\n{lines}\n")
    path.chmod(0o755)
