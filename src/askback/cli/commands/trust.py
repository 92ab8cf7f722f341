"""`askback trust`: the user's list of trusted settings files."""

from __future__ import annotations

from pathlib import Path

import click

from askback.cli import options, output
from askback.cli.help import Command
from askback.text.formatting import one_line

_MAX_PATH = 4096


@click.command(
    "trust",
    cls=Command,
    examples=(
        "askback trust",
        "askback trust --list",
        "askback trust ../project --revoke",
    ),
)
@click.argument("folder", required=False, default=".", type=options.PathName(path_type=Path))
@click.option("--revoke", is_flag=True, help="Stop trusting it.")
@click.option("--list", "listing", is_flag=True, help="List the trusted files.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout, and nothing else.")
def command(folder: Path, revoke: bool, listing: bool, as_json: bool) -> int:
    """Trust the askback.toml in FOLDER (default: the working directory), so that all its settings are used.

    Settings can start programs and turn off the sandbox, so read the file first. Trust covers the file as it is now:
    after a change, trust it again. Of an untrusted file, only `default_engine` and the engines' `model` are used.
    """
    if revoke and listing:
        raise click.UsageError("--revoke and --list cannot be combined")
    if listing:
        return _list(as_json=as_json)
    return _revoke(folder, as_json=as_json) if revoke else _trust(folder, as_json=as_json)


def _trust(folder: Path, *, as_json: bool) -> int:
    from askback.settings.files import trust_ledger

    path, settings = trust_ledger().add_folder(folder)
    if as_json:
        output.print_json({"path": str(path), "trusted": True, "keys": [key for key, _ in settings]})
        return 0
    output.print_line(f"✔ {one_line(str(path), _MAX_PATH)} is trusted as it is now; it sets:")
    for key, value in settings:
        output.print_line(f"    {key}" if value is None else f"    {key}: {value}")
    return 0


def _revoke(folder: Path, *, as_json: bool) -> int:
    from askback.settings.files import trust_ledger

    path, was_trusted = trust_ledger().remove_folder(folder)
    if as_json:
        output.print_json({"path": str(path), "trusted": False})
        return 0
    done = "is no longer trusted" if was_trusted else "was not trusted"
    output.print_line(f"✔ {one_line(str(path), _MAX_PATH)} {done}")
    return 0


def _list(*, as_json: bool) -> int:
    from askback.settings.files import trust_ledger

    ledger = trust_ledger()
    files = [(entry.path, ledger.is_valid(entry)) for entry in ledger.all()]
    if as_json:
        output.print_json([{"path": str(path), "valid": valid} for path, valid in files])
        return 0
    for path, valid in files:
        output.print_line(f"{one_line(str(path), _MAX_PATH)}{'' if valid else '  (changed or missing: not used)'}")
    if not files:
        output.to_stderr("no settings file is trusted")
    return 0
