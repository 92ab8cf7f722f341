"""Programs that compile and run the TypeScript client."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[2] / "clients/typescript"
COMPILER = CLIENT / "node_modules/typescript/bin/tsc"
LIMIT_SEC = 300


def ran(*command: str, **env: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, **env}, cwd=CLIENT, capture_output=True, text=True, timeout=LIMIT_SEC, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
