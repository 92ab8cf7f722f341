"""What gives a program access to its database and to the file store: engines inherit none of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from askback.app.engines import engine_setups, hidden_from_engines
from askback.app.storage import credential_files, credential_values
from support.data_folder import World

DATABASE = "postgresql://askback@db.example/askback"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    for name, value in {
        "PGPASSFILE": "/etc/askback/pgpass",
        "PGPASSWORD": "password-of-the-database",
        "AWS_SECRET_ACCESS_KEY": "secret-of-the-bucket",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/etc/askback/identity",
        "GOOGLE_APPLICATION_CREDENTIALS": "/etc/askback/account.json",
        "AZURE_FEDERATED_TOKEN_FILE": "relative",
    }.items():
        monkeypatch.setenv(name, value)
    return World(tmp_path)


@pytest.mark.parametrize(
    ("config", "files", "values"),
    [
        ("", [], []),
        ('files = "/mnt/askback"', [], []),
        (f'database = "{DATABASE}"', ["pgpass"], ["password-of-the-database"]),
        (
            f'database = "{DATABASE}?sslmode=require&sslkey=%2Fetc%2Faskback%2Fclient.key"\nfiles = "s3://bucket"',
            ["pgpass", "identity", "client.key"],
            ["password-of-the-database", "secret-of-the-bucket"],
        ),
        ('files = "gs://bucket/prefix"', ["account.json"], []),
        ('files = "az://container"', [], []),
    ],
)
@pytest.mark.sqlite
def test_files_and_secrets_are_those_of_the_stores_in_use(
    world: World, config: str, files: list[str], values: list[str]
) -> None:
    settings = world.settings(config)
    assert credential_files(settings) == [Path("/etc/askback", name) for name in files]
    assert list(credential_values(settings)) == values
    assert {path.name for path in hidden_from_engines(settings).private} >= set(files)


@pytest.mark.sqlite
def test_an_engine_gets_the_account_of_the_store_only_if_its_settings_name_it(world: World) -> None:
    def variable(config: str) -> str | None:
        _, setups = engine_setups(world.settings(config), ())
        return setups["gemini"].env.get("GOOGLE_APPLICATION_CREDENTIALS")

    own = '[engines.gemini.env]\nGOOGLE_APPLICATION_CREDENTIALS = "/etc/askback/account.json"'
    assert variable("") == "/etc/askback/account.json"
    assert variable('files = "gs://bucket"') is None
    assert variable(f'files = "gs://bucket"\n{own}') == "/etc/askback/account.json"
    assert credential_files(world.settings(f'files = "gs://bucket"\n{own}')) == []
