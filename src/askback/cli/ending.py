"""How a command that followed a run ends: what it tells, what it prints for scripts, and its exit code."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from askback.bootstrap import App
from askback.cli import exits, output
from askback.cli.live import Display, summary
from askback.cli.text import printable, size
from askback.core.runs import Run, RunState
from askback.core.views import result_view, run_view
from askback.process.workspace import ARTIFACTS_DIR


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    run: Run
    exit_code: int
    document: dict[str, Any]


async def conclude(app: App, run: Run, display: Display, *, interrupted: bool, kept: bool = True) -> Ending:
    """Tell how the run stands now; the result itself goes to stdout."""
    document = run_view(run)
    if not run.state.final:
        display.write(f"… {_how_to_go_on(run)}" if kept else "… the run is left here, and nothing of it is kept")
        return Ending(run=run, exit_code=exits.WAITING, document=document)
    result = await app.service.result(run.id)
    folder = app.workspaces.of(run.id).artifacts_path if kept else Path(ARTIFACTS_DIR)
    files = [{"path": each.path, "size": each.size} for each in result.artifacts]
    display.write(summary(run))
    for each in result.artifacts:
        display.write(f"  {printable(str(folder / each.path))} ({size(each.size)})")
    document |= result_view(run, result.data, files)
    code = {RunState.SUCCEEDED: 0, RunState.FAILED: exits.FAILED}.get(
        run.state, exits.INTERRUPTED if interrupted else exits.FAILED
    )
    return Ending(run=run, exit_code=code, document=document)


def _how_to_go_on(run: Run) -> str:
    if run.state is not RunState.WAITING_USER:
        return f"run {run.id} is {run.state}; go on with: askback run --continue {run.id}"
    return f"run {run.id} waits for an answer; give it with: askback reply {run.id} TEXT"


def print_result(ending: Ending, *, as_json: bool) -> None:
    """On stdout: with `--json` the whole document, else the checked data of a run that succeeded."""
    if as_json:
        output.print_json(ending.document)
    elif ending.run.state is RunState.SUCCEEDED:
        data = ending.document["data"]
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=2)
        print(printable(text) if sys.stdout.isatty() else text)
