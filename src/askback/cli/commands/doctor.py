"""`askback doctor`: checks this machine, and says how to fix what is wrong."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from askback.cli import options, output
from askback.cli.help import Command
from askback.fs.paths import is_kind
from askback.text.formatting import count, printable, size

if TYPE_CHECKING:
    from askback.app import App
    from askback.catalog.engines import EngineReport
    from askback.notifications.channels.telegram.api import BotApi
    from askback.process.isolation import Enforcement, Isolation
    from askback.settings.model import Settings

_LOW_DISK = 1_000_000_000
_CONNECT_SEC = 3.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `ok` is None for something worth knowing that is not wrong; with `warning`, for something to act on."""

    what: str
    ok: bool | None
    message: str
    advice: str = ""
    warning: bool = False


@click.command("doctor", cls=Command, examples=("askback doctor",))
@options.common
async def command(settings: Settings, as_json: bool) -> int:
    """Check the database, the disk, the sandbox, the limits and the engines. Exit code 1 if something is wrong."""
    from askback.app import opened
    from askback.core.errors import RefusalCode, Unavailable
    from askback.settings.files import unknown_variables
    from askback.settings.sections import TelemetrySettings

    findings = [_python(), _disk(settings.data_dir), *_access(settings.data_dir), *_telemetry(settings)]
    for message in unknown_variables():
        advice = "correct its name, or unset it"
        findings.append(Finding("environment", None, message, advice, warning=True))
    findings += [finding async for finding in _telegram(settings)]
    try:
        # A problem with the telemetry is reported above, and must not hide the rest.
        async with opened(settings.model_copy(update={"telemetry": TelemetrySettings()}), read_only=True) as app:
            findings += [finding async for finding in _examine(app)]
    except Unavailable as error:
        # The folder of the program itself may be on a full disk, wherever the database is.
        what = "disk" if error.code is RefusalCode.DISK_FULL else "database"
        findings.append(Finding(what, False, error.message))
    healthy = all(finding.ok is not False for finding in findings)
    if as_json:
        output.print_json({"ok": healthy, "findings": [asdict(each) for each in findings]})
    else:
        _print(findings)
    return 0 if healthy else 1


async def _database(app: App) -> Finding:
    from askback.app.storage import refuse_forgotten
    from askback.core.errors import Unavailable

    try:
        await refuse_forgotten(app.settings)
        return Finding("database", True, await app.store.check())
    except Unavailable as error:
        return Finding("database", False, error.message)


async def _examine(app: App) -> AsyncIterator[Finding]:
    from askback.cli.terminal.live import probing_shown

    yield await _database(app)
    if (files := await _files(app)) is not None:
        yield files
    yield Finding("slots", True, f"{count(app.settings.slots, 'engine')} at a time")
    for folder in app.settings.skills_dir:
        if not is_kind(folder, Path.exists):
            advice = "create it, or remove it from skills_dir in the settings"
            yield Finding("skills", False, f"there is no folder {folder}", advice)
    for finding in _workdirs(app.settings.workdirs):
        yield finding
    isolation = await app.spawner.isolation()
    yield _sandbox(isolation)
    for finding in _limits(await app.spawner.enforcement()):
        yield finding
    yield _network("", app.settings.network)
    for name, engine in app.settings.engines.items():
        if engine.network is not None:
            yield _network(name, engine.network)
    with probing_shown(app.service.engines):
        reports = await app.service.engines.reports()
    if isolation.hides_files:
        for finding in _homes(app, reports):
            yield finding
    for report in reports:
        yield _engine(report)
        if report.setup.prewarm and report.installed is not None:
            yield _prewarm(report, app.prewarming.obstacle(report.engine.name, report.installed.probe))
    for name, reason in app.service.engines.broken.items():
        advice = "fix or uninstall the package that provides it"
        yield Finding(f"engine {name}", False, reason, advice)
    for finding in _usable(reports):
        yield finding


async def _files(app: App) -> Finding | None:
    import asyncio

    from askback.app.files import examine, files_at, given_address
    from askback.core.errors import Unavailable

    report = await examine(app.settings, app.store)
    if report.problem is not None:
        advice = "correct `files`, mount the share, or check the credentials and permissions: docs/guides/files.md"
        return Finding("files", False, report.problem, advice)
    if report.place is None:
        return None
    if not report.reachable:
        message = f"there is no folder {report.place} yet; the first server creates it"
        advice = "if it is a share, mount it first"
        return Finding("files", None, message, advice, warning=True)
    try:
        await asyncio.to_thread(files_at(given_address(app.settings)).check)
    except Unavailable as error:
        advice = "check the permissions: docs/guides/files.md"
        return Finding("files", False, error.message, advice)
    return Finding("files", True, f"can be stored in {report.place}")


def _workdirs(allowed: Sequence[Path]) -> Iterator[Finding]:
    from askback.workspace.workdirs import exposed

    for folder in allowed:
        if problem := exposed(folder):
            message = f"{problem}: runs in folders below it are refused"
            advice = "let only the server's user write to it, or remove it from workdirs in the settings"
            yield Finding("workdirs", None, message, advice, warning=True)


def _engine(report: EngineReport) -> Finding:
    what = f"engine {report.engine.name}"
    if report.installed is None:
        return Finding(what, None, "not installed", report.engine.install)
    if report.installed.signed_in is False:
        message = "installed, but not signed in"
        return Finding(what, None, message, report.engine.sign_in, warning=True)
    return Finding(what, True, "installed; details: askback engines")


def _prewarm(report: EngineReport, obstacle: str | None) -> Finding:
    what = f"prewarm {report.engine.name}"
    if obstacle is not None:
        advice = "change that, or leave out the setting 'prewarm' of the engine"
        return Finding(what, None, f"has no effect: {obstacle}", advice, warning=True)
    return Finding(what, True, f"a server keeps {report.setup.prewarm} ready")


def _usable(reports: Sequence[EngineReport]) -> Iterator[Finding]:
    """A warning if no engine with a model can be used."""
    installed = [each.installed for each in reports if each.installed and each.engine.chosen_by_default]
    if any(each.signed_in is not False for each in installed):
        return
    message = (
        "no engine is signed in: runs will fail until one is; 'scripted' only plays scripts"
        if installed
        else "no engine with a model is installed; 'scripted' only plays scripts"
    )
    yield Finding("engines", None, message, warning=True)


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if has_slow_cookies(sys.version_info[:3]):
        # Askback does not use that parser. Other programs of this Python may.
        message = f"{version} parses cookies in quadratic time: a stranger can stop programs that use http.cookies"
        advice = "Askback does not use it, but update Python to 3.11.10, 3.12.6 or later"
        return Finding("python", None, message, advice, warning=True)
    return Finding(what="python", ok=sys.version_info >= (3, 11), message=version)


def has_slow_cookies(version: tuple[int, int, int]) -> bool:
    """Whether `http.cookies` has CVE-2024-7592."""
    return (3, 11) <= version < (3, 11, 10) or (3, 12) <= version < (3, 12, 6)


def _disk(data_dir: Path) -> Finding:
    folder = next(parent for parent in (data_dir, *data_dir.parents) if is_kind(parent, Path.exists))
    free = shutil.disk_usage(folder).free
    advice = "" if free >= _LOW_DISK else "free some space, or choose another folder with --data-dir"
    return Finding("disk", free >= _LOW_DISK, f"{size(free)} free for {data_dir}", advice)


def _access(data_dir: Path) -> Iterator[Finding]:
    """Whether other users can access the data folder. Checked before it is opened, which removes their permissions."""
    from askback.fs.paths import Access, access_of_others

    if not is_kind(data_dir, Path.exists):
        return
    access = access_of_others(data_dir)
    if access is Access.NONE:
        yield Finding("data folder", True, "other users have no access")
    else:
        message = f"other users can {access} {data_dir}"
        wrong = False if access is Access.WRITE else None
        yield Finding("data folder", wrong, message, f"chmod 700 {data_dir}")


def _telemetry(settings: Settings) -> Iterator[Finding]:
    """Whether the collector can be reached, if there should be one. Nothing is sent to it."""
    from askback.app.opening import INSTALL_OTEL, lacks_opentelemetry

    endpoint = settings.telemetry.otlp_endpoint
    if endpoint is None:
        return
    if lacks_opentelemetry():
        message = f"OpenTelemetry is not installed, but traces and metrics are to be sent to {endpoint}"
        yield Finding("telemetry", False, message, INSTALL_OTEL)
        return
    address = urlsplit(endpoint)
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.hostname or "", port), _CONNECT_SEC).close()
    except OSError as error:
        message = f"the collector at {endpoint} cannot be reached: {error}; runs are not affected"
        advice = "start the collector, or correct telemetry.otlp_endpoint"
        yield Finding("telemetry", None, message, advice, warning=True)
    else:
        yield Finding("telemetry", True, f"traces and metrics are sent to {endpoint}")


async def _telegram(settings: Settings) -> AsyncIterator[Finding]:
    """The bot's token, other users of it, and whether it reaches its chats. Nothing if there is no bot. Sends no message."""
    telegram = settings.telegram
    if telegram.token is None:
        return
    from askback.notifications.channels.telegram.api import BotApi, BotApiError, Refused

    api = BotApi(token=telegram.token, url=telegram.api_url)
    try:
        name = (await api.call("getMe"))["username"]
        yield Finding("telegram", True, f"the token belongs to the bot @{name}")
        async for finding in _receivers(settings, api):
            yield finding
    except Refused as error:
        advice = "take the token from @BotFather again, and correct telegram.token" if error.of_token else ""
        message = f"the token is refused ({error.status})" if error.of_token else f"the Bot API says: {error}"
        yield Finding("telegram", False, message, advice)
    except BotApiError as error:
        message = f"the Bot API at {telegram.api_url} cannot be reached: {error}"
        advice = "check the network, HTTPS_PROXY and telegram.api_url"
        yield Finding("telegram", False, message, advice)
    finally:
        await api.close()


async def _receivers(settings: Settings, api: BotApi) -> AsyncIterator[Finding]:
    from askback.notifications.channels.telegram.api import Refused

    if (await api.call("getWebhookInfo")).get("url"):
        message = "the bot sends its updates to a webhook, so no answer arrives here"
        advice = "use another bot, or remove the webhook with the method deleteWebhook"
        yield Finding("telegram", False, message, advice)
    if not any(chat.notify for chat in settings.telegram.chats):
        advice = "send /start to the bot: it replies with your id, which belongs in telegram.chats"
        yield Finding("telegram", None, "no chat gets questions", advice, warning=True)
    for chat in settings.telegram.chats:
        if not chat.notify:
            continue
        try:
            await api.call("getChat", chat_id=chat.id)
        except Refused as error:
            message = f"the bot does not reach {chat.name} ({chat.id}): {error}"
            advice = "add the bot to the group" if chat.id < 0 else f"{chat.name} must send /start to the bot"
            yield Finding("telegram", None, message, advice, warning=True)


def _sandbox(isolation: Isolation) -> Finding:
    can = (
        "it can read and change everything that you can, including the server's token, other runs and your keys;"
        " the sandbox of Codex is off as well"
    )
    words = {
        "bubblewrap": (
            "bubblewrap: an engine sees its own run, a private /tmp and the system's programs;"
            " no process outlives its run"
        ),
        "guardian": f"guardian: no process of an engine outlives its run, but {can}",
        "none": f"none: only the process group of an engine is killed, and {can}",
    }
    message, advice = words[isolation.level], isolation.advice
    if isolation.why_not_more:
        message += f"; {isolation.why_not_more}"
    if isolation.shared:
        message += f"; the settings share {', '.join(isolation.shared)} with all of them"
        advice = "remove from sandbox_share what engines need not change"
    warning = not isolation.hides_files
    return Finding("sandbox", None if advice else True, message, advice, warning=warning)


def _network(engine: str, network: str) -> Finding:
    words = {
        "host": "engines can connect wherever you can, including to loopback services and cloud metadata addresses",
        "no-loopback": "engines can connect to other machines, but not to this one or to cloud metadata addresses",
        "none": "engines have no network",
    }
    advice = 'to block these, set network = "no-loopback"; engines then cannot use models on this machine'
    what = f"network {engine}".rstrip()
    message = f"{network}: {words[network]}"
    return Finding(
        what=what, ok=None if network == "host" else True, message=message, advice=advice * (network == "host")
    )


def _homes(app: App, reports: Sequence[EngineReport]) -> Iterator[Finding]:
    """Engines that are installed directly in a home folder, of which the sandbox shows only the program."""
    from askback.app.engines import hidden_from_engines
    from askback.process.sandbox.visibility import whole_homes

    hide = hidden_from_engines(app.settings)
    for report in reports:
        if report.installed is None:
            continue
        for home in whole_homes(hide, report.installed.path, report.setup.env.get("PATH", "")):
            message = f"its program is in {home}, or its PATH contains it: the sandbox shows only the program"
            advice = "install it in a subfolder, or remove that folder from PATH"
            yield Finding(f"engine {report.engine.name}", None, message, advice)


def _limits(enforcement: Enforcement) -> Iterator[Finding]:
    """What is enforced, what is not, and what is enforced only after the fact."""
    means = enforcement.means
    said = [f"{name} by {' and '.join(each)}" for name, each in means.items() if each]
    if missing := [name for name, each in means.items() if not each]:
        message = f"not enforced: {', '.join(missing)}; {enforcement.why_not_more}"
        yield Finding("limits", None, message, "run Askback on Linux to enforce more")
    if said:
        yield Finding("limits", True, f"for engines: {'; '.join(said)}")
    if said and "cgroup v2" not in means["memory"]:
        message = "a watchdog checks several times a second: memory and processes can briefly exceed their limits"
        advice = "run Askback as a systemd service with Delegate=yes, so that the kernel enforces both"
        yield Finding("limits", None, f"{message}; {enforcement.why_not_more}", advice)


def _print(findings: Sequence[Finding]) -> None:
    output.print_heading(f"  {'CHECK':<18} RESULT")
    for finding in findings:
        sign = {True: "✔", False: "✘", None: "!" if finding.warning else "·"}[finding.ok]
        output.print_line(f"{sign} {finding.what:<18} {printable(finding.message)}", indent=21)
        if finding.advice:
            output.print_line(f"  {'':<18} → {printable(finding.advice)}", indent=23)
