"""Settings: which source wins, where the file is looked for, what is told about mistakes, and what an engine may have."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from datetime import UTC, time
from pathlib import Path

import pytest

from askback.app import delivery_policy
from askback.core.errors import Invalid, RefusalCode
from askback.core.webhooks import Reminders
from askback.settings.environment import client_environment, engine_environment, secret_values
from askback.settings.files import load, trust_ledger, unknown_variables
from askback.settings.model import Settings, webhooks
from askback.settings.sections import in_bytes
from support.data_folder import World, over, run_async, submit


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a working directory without settings, and an environment without ours."""
    for name in [name for name in os.environ if name.startswith(("ASKBACK_", "XDG_"))]:
        monkeypatch.delenv(name)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(folder)
    return folder


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_trusted(folder: Path, text: str) -> Path:
    """A settings file in a working directory that its user has trusted."""
    path = write(folder / "askback.toml", text)
    trust_ledger().add_folder(folder)
    return path


def problems_of(config: Path | None = None, **rest: Path) -> list[str]:
    with pytest.raises(Invalid) as refused:
        load(config, **rest)
    assert refused.value.code is RefusalCode.SETTINGS_INVALID
    return list(refused.value.problems)


# Which source wins.


def test_without_anything_the_defaults_hold(tmp_path: Path) -> None:
    settings = load()
    assert settings.data_dir == tmp_path / "home/.local/share/askback"
    assert settings.slots >= 1
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8765)
    assert (settings.sandbox, settings.default_engine, settings.skills_dir) == ("auto", None, ())
    assert (in_bytes(settings.limits.body), in_bytes(settings.limits.line)) == (32 * 2**20, 8 * 2**20)


def test_the_file_wins_over_defaults_the_environment_over_the_file_and_the_flag_over_both(
    surroundings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_trusted(surroundings, 'slots = 3\ndata_dir = "/from/file"\ndefault_engine = "codex"\n')
    assert (load().slots, load().data_dir) == (3, Path("/from/file"))
    monkeypatch.setenv("ASKBACK_SLOTS", "5")
    monkeypatch.setenv("ASKBACK_DATA_DIR", "/from/environment")
    assert (load().slots, load().data_dir) == (5, Path("/from/environment"))
    assert load(data_dir=Path("/from/flag")).data_dir == Path("/from/flag")
    assert load().default_engine == "codex"


def test_levels_are_joined_by_two_underscores_and_sources_mixed_key_by_key(
    surroundings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_trusted(surroundings, '[server]\nhost = "0.0.0.0"\nport = 1\n[engines.codex]\nmodel = "a"\nslots = 2\n')
    monkeypatch.setenv("ASKBACK_SERVER__PORT", "9000")
    monkeypatch.setenv("ASKBACK_ENGINES__CODEX__MODEL", "b")
    settings = load()
    assert (settings.server.host, settings.server.port) == ("0.0.0.0", 9000)
    assert (settings.engines["codex"].model, settings.engines["codex"].slots) == ("b", 2)


def test_lists_and_tables_are_json_in_the_environment_and_skill_folders_a_path_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ASKBACK_ENGINES__CODEX__COMMAND", '["npx", "codex"]')
    monkeypatch.setenv("ASKBACK_ENGINES__CODEX__ENV", '{"OPENAI_API_KEY": "k"}')
    monkeypatch.setenv("ASKBACK_SKILLS_DIR", "/one:/two:")
    monkeypatch.setenv("ASKBACK_WORKDIRS", "/three:/four")
    settings = load()
    assert settings.engines["codex"].command == ("npx", "codex")
    assert settings.engines["codex"].env == {"OPENAI_API_KEY": "k"}
    assert settings.skills_dir == (Path("/one"), Path("/two"))
    assert settings.workdirs == (Path("/three"), Path("/four"))


@pytest.mark.parametrize(
    ("given", "folders"),
    [('["/one", "/two:2"]', ["/one", "/two:2"]), ("[]", []), ("[x]:/two", ["[x]", "/two"]), ("[" * 9999, ["[" * 9999])],
    ids=["JSON", "empty", "no JSON", "deep"],
)
def test_skill_folders_may_be_json_in_the_environment_as_every_other_list(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str, folders: list[str]
) -> None:
    monkeypatch.setenv("ASKBACK_SKILLS_DIR", given)
    monkeypatch.chdir(tmp_path)
    assert load().skills_dir == tuple(tmp_path / folder for folder in folders)


# Where the file is, and what its folders are relative to.


def test_the_file_is_looked_for_here_and_then_in_the_users_config_folder(
    tmp_path: Path, surroundings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "home/.config/askback/askback.toml", "slots = 11\n")
    assert load().slots == 11
    write(tmp_path / "xdg/askback/askback.toml", "slots = 12\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert load().slots == 12
    write_trusted(surroundings, "slots = 13\n")
    assert load().slots == 13
    assert load(write(tmp_path / "named.toml", "slots = 14\n")).slots == 14


def test_the_users_folders_are_those_of_the_desktop_where_it_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert load().data_dir == tmp_path / "data/askback"
    monkeypatch.setenv("XDG_DATA_HOME", "relative/is/to/be/ignored")
    assert load().data_dir == tmp_path / "home/.local/share/askback"


def test_relative_folders_are_meant_from_the_file_that_names_them(tmp_path: Path) -> None:
    text = (
        'data_dir = "data"\nskills_dir = ["a", "../b", "~/c"]\nworkdirs = ["d"]\n[engines.codex]\nhome = "codex-home"\n'
    )
    settings = load(write(tmp_path / "conf/askback.toml", text))
    assert settings.data_dir == tmp_path / "conf/data"
    assert settings.skills_dir == (tmp_path / "conf/a", tmp_path / "b", tmp_path / "home/c")
    assert settings.workdirs == (tmp_path / "conf/d",)
    assert settings.engines["codex"].home == tmp_path / "conf/codex-home"


def test_without_a_file_relative_folders_are_meant_from_here(
    surroundings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASKBACK_DATA_DIR", "data")
    assert load().data_dir == surroundings / "data"


# Mistakes.


def test_every_mistake_is_named_by_its_key_all_at_once(tmp_path: Path) -> None:
    text = 'slotz = 1\nslots = 0\n[server]\nport = 70000\n[engines.codex]\ncommand = []\nmodell = "x"\n'
    told = problems_of(write(tmp_path / "askback.toml", text))
    keys = [problem.partition(":")[0] for problem in told]
    assert sorted(keys) == ["engines.codex.command", "engines.codex.modell", "server.port", "slots", "slotz"]
    assert "slotz: there is no such setting; did you mean 'slots'?" in told
    assert "engines.codex.modell: there is no such setting; did you mean 'model'?" in told


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"slots = = 3", "the file cannot be read"),
        (b"\xff\xfe", "the file cannot be read"),
        (b'data_dir = "a\\u0000b"', r"a\x00b' cannot be a folder"),
        (b'data_dir = "~no-such-user/x"', "data_dir: '~no-such-user/x' cannot be a folder"),
        (b'[engines.codex]\nhome = "\\u0000"', "engines.codex.home: "),
        (b'sandbox = "perhaps"', "sandbox: must be 'auto', 'on' or 'off'"),
        (b'network = "local"', "network: must be 'host', 'no-loopback' or 'none'"),
        (b'sandbox_share = ["/tmp/.."]', "sandbox_share: '/' would disable the sandbox"),
        (b'[[webhooks]]\nkind = "ntfy"', "webhooks.0.url: must be given"),
        (b"skills_dir = [1]", "skills_dir.0: must be the path of a folder, in quotes"),
        (b'slots = "many"', "slots: must be a whole number"),
        (b'[server]\npublic_url = "askback.example"', "server.public_url: must look like https://askback.example"),
        (b'[server]\npublic_url = "http://localhost:99999"', "server.public_url: port out of range"),
        (b'[engines.codex]\neffort = "-x"', "engines.codex.effort: must look like high"),
        (b'[telegram]\ntoken = "x"', "telegram.token: must look like 123456789:"),
        (b'files = "shared/files"', "files: a folder must be absolute, such as /mnt/askback"),
        (b'files = "~/files"', "files: a folder must be absolute, such as /mnt/askback"),
        (b'files = "file://files"', "files: a folder must be absolute, such as /mnt/askback"),
        (b'files = "ftp://files"', "files: must look like s3://bucket/askback"),
        (b'runs_dir = "runs"', "runs_dir: must be absolute, such as /var/lib/askback/runs"),
        (b"[fleet]\nlease_sec = 1", "fleet.lease_sec: must be greater than or equal to 5"),
        (b'[worker]\nengines = "codex"', 'worker.engines: must be a list, such as ["one", "two"]'),
        (b"[worker]\nslots = 3", "worker.slots: there is no such setting; valid settings: host, port, engines"),
        (b'[engines]\ncodex = "x"', "engines.codex: must be a table"),
        (b'[engines.codex]\ncommand = "codex --fast"', 'engines.codex.command: must be a list, such as ["one", "two"]'),
        (b"[retention]\nyears = 1", "retention.years: there is no such setting; valid settings: days, max_gb"),
    ],
)
def test_a_file_that_cannot_be_taken_is_told(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "askback.toml"
    path.write_bytes(content)
    (problem,) = problems_of(path)
    assert says in problem


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:geh@eim@db.example/askback",
        "postgresql://me:geh/eim@db.example/askback",
        "postgresql://me:geh?eim@db.example/askback",
        "postgresql://me:geh?eim=x@db.example/askback",
        "postgresql://me:geh#eim@db.example/askback",
        "postgresql://me:geh[eim@db.example/askback",
    ],
)
def test_a_password_that_would_be_misread_is_refused_and_not_shown(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("ASKBACK_DATABASE", "DATABASE_URL"):
        with monkeypatch.context() as env:
            env.setenv(variable, address)
            (problem,) = problems_of()
            assert problem.startswith("database: a special character in its user or password must be percent-encoded")
            assert "eim" not in problem


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:geh%40e:im@db.example:5432/askback",
        "postgresql://me@/askback?host=/run/postgresql",
        "postgresql:///askback?user=me@tenant",
        "postgresql://db.example:5432/askback?user=me@tenant",
        "postgres://me@[::1]:5432,other:5433/askback?sslmode=require",
    ],
)
def test_an_address_that_libpq_reads_as_it_is_meant_is_taken(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASKBACK_DATABASE", address)
    assert load().database == address


def test_a_home_may_be_named_in_the_path_of_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(write(tmp_path / "mine.toml", 'runs_dir = "~/runs"')).runs == Path.home() / "runs"
    monkeypatch.setenv("ASKBACK_RUNS_DIR", "runs")
    assert "runs_dir: must be absolute" in problems_of()[0]


def test_an_empty_path_is_not_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "mine.toml", 'data_dir = ""\nworkdirs = [""]\n[engines.codex]\nhome = ""\n')
    with pytest.raises(Invalid) as refused:
        load(file)
    empty = [f"{key}: the path is empty" for key in ("data_dir", "engines.codex.home", "workdirs")]
    assert sorted(refused.value.problems) == empty
    monkeypatch.setenv("ASKBACK_DATA_DIR", "")
    with pytest.raises(Invalid) as refused:
        load()
    assert refused.value.problems == ("data_dir: the path is empty",)


MAIL = '[[webhooks]]\nurl = "mailto:anna@example.org"\nkind = "email"\n'
SERVER = '[notifications.email]\nurl = "smtps://mail.example.org"\nsender = "askback@example.org"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (MAIL, "webhooks.0.kind: e-mails need notifications.email.url and notifications.email.sender"),
        (MAIL.replace("mailto:", "https://") + SERVER, "webhooks.0.url: must be mailto: and one e-mail address"),
        (MAIL.replace("example.org", "example.org,eve@example.org") + SERVER, "webhooks.0.url: must be mailto:"),
        (MAIL.replace("anna@example.org", "anna@example.org?bcc=eve") + SERVER, "webhooks.0.url: must be mailto:"),
        (MAIL.replace("anna@", "anna\\r\\n@") + SERVER, "webhooks.0.url: must be mailto:"),
        (MAIL + 'secret = "x"\n' + SERVER, "webhooks.0.secret: an e-mail has none"),
        (SERVER.replace("smtps:", "https:"), "notifications.email.url: must look like smtps://mail.example.org"),
        (
            SERVER.replace("smtps://mail", "smtps://user@mail"),
            "notifications.email.url: must look like smtps://mail.example.org",
        ),
        (SERVER.replace("mail.example.org", "mail.example.org:99999"), "notifications.email.url: "),
        (SERVER.replace("askback@example.org", "nobody"), "notifications.email.sender: must be one e-mail address"),
        (SERVER.replace("askback@", "A\\nBcc: x <askback@"), "notifications.email.sender: must be one e-mail address"),
        ('[[webhooks]]\nurl = "https://ntfy.sh/"\nkind = "ntfy"\n', "webhooks.0.url: must end with the topic"),
    ],
)
def test_what_is_wrong_with_a_channel_is_said(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(Invalid) as refused:
        load(write(tmp_path / "channel.toml", text))
    assert [each for each in refused.value.problems if each.startswith(problem)], refused.value.problems


def test_a_mailbox_gets_questions_and_ends_unless_the_settings_say_otherwise(tmp_path: Path) -> None:
    (usual,) = webhooks(load(write(tmp_path / "usual.toml", MAIL + SERVER)))
    (other,) = webhooks(load(write(tmp_path / "other.toml", MAIL + 'states = ["queued"]\nname = "Anna"\n' + SERVER)))
    assert usual.states == ("waiting_user", "succeeded", "failed", "canceled")
    assert (usual.recipient, usual.shown_url) == ("anna@example.org", "mailto:anna@example.org")
    assert (other.states, other.recipient) == (("queued",), "Anna")


POLICY = "[notifications.reminders]\nafter_sec = [60, 30]\nrepeat_sec = 100\nmax = 4\n"


@pytest.mark.contract("N-4")
@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("standard", "", None),
        ("ntfy", "", Reminders(after_sec=(30, 60, 160, 260))),
        ("ntfy", "false", None),
        ("standard", "true", Reminders(after_sec=(30, 60, 160, 260))),
        ("standard", "{max = 1, expiring = false}", Reminders(after_sec=(30,), expiring=False)),
        ("slack", "{after_sec = [5], repeat_sec = 10, max = 2}", Reminders(after_sec=(5, 15))),
        ("slack", "{after_sec = []}", Reminders()),
        ("slack", "{enabled = false}", None),
    ],
)
def test_a_webhook_has_the_reminders_of_the_settings_or_its_own(
    tmp_path: Path, kind: str, given: str, expected: Reminders | None
) -> None:
    url = f'[[webhooks]]\nurl = "https://example.com/topic"\nkind = "{kind}"\n'
    reminders = f"reminders = {given}\n" if given else ""
    settings = load(write(tmp_path / "askback.toml", POLICY + url + reminders))
    (webhook,) = webhooks(settings)
    assert webhook.reminders == expected


@pytest.mark.contract("N-4")
@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("standard", "", False),
        ("ntfy", "", True),
        ("ntfy", "digest = false", False),
        ("slack", 'states = ["failed"]', False),
        ("slack", 'states = ["failed", "waiting_user"]', True),
        ("slack", "states = []\ndigest = true", True),
    ],
)
def test_webhooks_for_questions_get_the_digest(tmp_path: Path, kind: str, given: str, expected: bool) -> None:
    digest = '[notifications.digest]\nat = ["17:30", "09:00"]\ntz = "Europe/Berlin"\n'
    url = f'[[webhooks]]\nurl = "https://example.com/topic"\nkind = "{kind}"\n'
    settings = load(write(tmp_path / "askback.toml", f"{digest}{url}{given}\n"))
    (webhook,) = webhooks(settings)
    assert webhook.digest is expected
    assert settings.notifications.digest.times == (time(9), time(17, 30))
    assert str(settings.notifications.digest.zone) == "Europe/Berlin"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('at = ["9:00"]', "notifications.digest.at: '9:00' is not a time of day"),
        ('at = ["24:00"]', "notifications.digest.at: '24:00' is not a time of day"),
        ('at = ["09:00", "09:00"]', "notifications.digest.at: 09:00 is listed twice"),
        ('tz = "Europe/Atlantis"', "notifications.digest.tz: 'Europe/Atlantis' is not a time zone"),
        ('tz = "Europe"', "notifications.digest.tz: 'Europe' is not a time zone"),
        ('tz = "../../etc/passwd"', "notifications.digest.tz: '../../etc/passwd' is not a time zone"),
        (
            '[[webhooks]]\nurl = "https://example.com/topic"\nkind = "ntfy"\ndigest = true',
            "webhooks.0.digest: there is none",
        ),
        (
            'at = ["09:00"]\n[[webhooks]]\nurl = "https://example.com/"\ndigest = true',
            "webhooks.0.digest: a digest is for people",
        ),
    ],
)
def test_mistakes_in_digests_are_named_by_their_keys(tmp_path: Path, lines: str, problem: str) -> None:
    with pytest.raises(Invalid) as refused:
        load(write(tmp_path / "askback.toml", f"[notifications.digest]\n{lines}\n"))
    (found,) = refused.value.problems
    assert found.startswith(problem)


def test_messages_have_the_time_zone_of_the_settings(tmp_path: Path) -> None:
    given = (
        '[notifications]\ntz = "Asia/Shanghai"\n[telegram]\ntoken = "123456789:AAEhBP0av28abc-XYZ_0123456789abcdef"\n'
    )
    assert str(delivery_policy(load(write(tmp_path / "askback.toml", given))).zone) == "Asia/Shanghai"
    assert delivery_policy(load(write(tmp_path / "askback.toml", ""))).zone is UTC
    with pytest.raises(Invalid) as refused:
        load(write(tmp_path / "askback.toml", '[notifications]\ntz = "Europe/Atlantis"\n'))
    assert refused.value.problems[0].startswith("notifications.tz: 'Europe/Atlantis' is not a time zone")


def test_mistakes_in_reminders_are_named_by_their_keys(tmp_path: Path) -> None:
    lines = '[notifications.reminders]\nafter_sec = [0]\n[[webhooks]]\nurl = "https://example.com/"\nreminders = '
    with pytest.raises(Invalid) as refused:
        load(write(tmp_path / "askback.toml", lines + "{after = [5], max = 1000}"))
    assert sorted(problem.partition(":")[0] for problem in refused.value.problems) == [
        "notifications.reminders.after_sec.0",
        "webhooks.0.reminders.after",
        "webhooks.0.reminders.max",
    ]


def test_numbers_have_a_range_and_webhooks_are_checked_when_they_are_read(tmp_path: Path) -> None:
    lines = "slots = 99999999999\nwarm_sec = inf\n[limits]\nbody = nan\n[retention]\ndays = 1e300\n"
    with pytest.raises(Invalid) as refused:
        load(write(tmp_path / "numbers.toml", lines))
    assert sorted(refused.value.problems) == [
        "limits.body: must be a finite number",
        "retention.days: must be less than or equal to 36500",
        "slots: must be less than or equal to 10000",
        "warm_sec: must be a finite number",
    ]
    with pytest.raises(Invalid) as refused:
        load(write(tmp_path / "webhooks.toml", '[[webhooks]]\nurl = "x"\n'))
    (problem,) = refused.value.problems
    assert problem.startswith("webhooks.0.url: ")


def test_variables_that_set_nothing_are_told_with_a_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    used = {
        "ASKBACK_URL": "http://127.0.0.1:1",
        "ASKBACK_TOKEN": "x",
        "ASKBACK_TEST_CLIS": "1",
        "ASKBACK_SLOTS": "3",
        "askback_sandbox": "off",
        "ASKBACK_ENGINES__CODEX__MODEL": "gpt-9",
        "ASKBACK_SERVICE_HOST": "10.0.0.1",
        "ASKBACK_PORT": "tcp://10.0.0.1:8765",
        "ASKBACK_PORT_8765_TCP_ADDR": "10.0.0.1",
    }
    for name, value in used.items():
        monkeypatch.setenv(name, value)
    assert unknown_variables() == []
    for name in ("ASKBACK_SLOT", "ASKBACK_SERVER_PORT", "ASKBACK_QQQ"):
        monkeypatch.setenv(name, "3")
    assert unknown_variables() == [
        "ASKBACK_QQQ is not a setting, and is ignored",
        "ASKBACK_SERVER_PORT is not a setting, and is ignored; did you mean ASKBACK_SERVER__PORT?",
        "ASKBACK_SLOT is not a setting, and is ignored; did you mean ASKBACK_SLOTS?",
    ]


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="there is no settings file"):
        load(tmp_path / "nowhere.toml")
    with pytest.raises(Invalid, match="there is no settings file"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ASKBACK_SLOTS", "many", "slots: "),
        ("ASKBACK_SERVER__PORT", "-1", "server.port: "),
        ("ASKBACK_ENGINES", "{", "ASKBACK_ENGINES: is not JSON"),
        ("ASKBACK_ENGINES__CODEX__COMMAND", "codex", "engines.codex.command: must be a list"),
        ("ASKBACK_SERVER__PROT", "1", "server.prot: there is no such setting"),
    ],
)
def test_a_mistake_in_the_environment_is_told(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    assert any(says in problem for problem in problems_of())


def test_settings_do_not_change(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load().slots = 7  # type: ignore[misc]


# What an engine may have.


def has(environment: Mapping[str, str], *names: str) -> list[bool]:
    return [name in environment for name in names]


def test_an_engine_gets_what_is_allowed_and_what_the_settings_add_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "GITHUB_TOKEN", "LC_ALL", "HTTPS_PROXY", "PYTHONPATH"):
        monkeypatch.setenv(name, f"value of {name}")
    monkeypatch.setenv("ASKBACK_SERVER__TOKEN", "0123456789" * 3)
    environment = engine_environment(("OPENAI_API_KEY", "NOT_SET"), {"EXTRA": "1", "LC_ALL": "C"})
    assert has(environment, "PATH", "OPENAI_API_KEY", "HTTPS_PROXY", "EXTRA") == [True] * 4
    unwanted = ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "PYTHONPATH", "ASKBACK_SERVER__TOKEN", "NOT_SET", "HOME")
    assert has(environment, *unwanted) == [False] * 6
    assert environment["LC_ALL"] == "C"


def test_a_secret_of_ours_does_not_reach_a_real_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-7f3a")
    monkeypatch.setenv("ASKBACK_SERVER__TOKEN", "canary-7f3a-and-more-b82f6d0e94c1")
    world = World(tmp_path)
    shows = "import os; print(sorted(os.environ.items())); print(open('/proc/self/environ').read())"
    command = json.dumps([sys.executable, "-c", shows])
    config = f'[engines.scripted]\ncommand = {command}\nenv = {{ADDED = "by the settings"}}\n'
    skill = world.skill([{"finish": {"colour": "x"}}])

    async def main() -> None:
        async with world.working(config) as app:
            run = await over(app, (await submit(app, skill, mode="auto")).id)
            printed = "".join(path.read_text() for path in app.workspaces.of(run.id).turns.glob("*.stdout"))
            assert "by the settings" in printed
            assert f"ASKBACK_RUN={run.id}" in printed
            assert "canary" not in printed

    run_async(main)


def test_values_that_must_not_be_written_down_are_told_by_their_names() -> None:
    environment = {
        "OPENAI_API_KEY": "k1",
        "github_token": "k2",
        "DB_PASSWORD": "k3",
        "MY_SECRET": "k4",
        "GOOGLE_APPLICATION_CREDENTIALS": "k5",
        "LANG": "C",
        "PATH": "/bin",
    }
    assert secret_values(environment) == ("k1", "k2", "k3", "k4", "k5")


def test_a_client_is_told_where_its_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert client_environment() == (None, None)
    monkeypatch.setenv("ASKBACK_URL", "http://server")
    monkeypatch.setenv("ASKBACK_TOKEN", "t")
    assert client_environment() == ("http://server", "t")
    # Both are the client's own and no settings.
    assert isinstance(load(), Settings)
