"""`askback completion`: the script that makes a shell complete commands, options, skills, engines and runs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from askback.cli import output
from askback.cli.help import Command

_SHELLS = {
    "bash": """echo 'eval "$(askback completion bash)"' >> ~/.bashrc""",
    "zsh": """echo 'eval "$(askback completion zsh)"' >> ~/.zshrc""",
    "fish": "askback completion fish > ~/.config/fish/completions/askback.fish",
}
_VARIABLE = "_ASKBACK_COMPLETE"


@click.command(
    "completion",
    cls=Command,
    examples=tuple(_SHELLS.values()),
)
@click.argument("shell", required=False, type=click.Choice(list(_SHELLS)))
def command(shell: str | None) -> int:
    """Print the completion script for SHELL: bash (4.4 or newer), zsh or fish.

    The Tab key then completes commands, options, skills, engines and the ids of runs: for `reply` those that wait, for
    `cancel` those that are not over. Without SHELL: how to set it up.
    """
    if shell is None:
        output.print_line("Run the line for your shell, then open a new terminal:")
        for line in _SHELLS.values():
            output.print_line(f"  {line}")
        return 0
    complete = get_completion_class(shell)
    assert complete is not None, shell
    print(complete(click.get_current_context().find_root().command, {}, "askback", _VARIABLE).source())
    return 0
