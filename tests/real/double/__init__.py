"""A model that a test scripts, on loopback, for the real CLIs: four protocols, streaming and not."""

from double.record import Entry, Kind, Request, Visit
from double.script import Step, always, break_off, call_tool, fail, hang, run_shell, say
from double.server import ModelDouble, nobody_listens
from double.wire import TOKENS, Tokens

__all__ = [
    "TOKENS",
    "Entry",
    "Kind",
    "ModelDouble",
    "Request",
    "Step",
    "Tokens",
    "Visit",
    "always",
    "break_off",
    "call_tool",
    "fail",
    "hang",
    "nobody_listens",
    "run_shell",
    "say",
]
