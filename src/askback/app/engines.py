"""The engines of an instance by its settings: their commands, environments and limits, and the sandbox they run in."""

from __future__ import annotations

import logging
from contextlib import suppress

from askback.app.files import shared_folder
from askback.app.known_engines import known_engines
from askback.app.storage import credential_files, credential_variables
from askback.catalog.probes import EngineSetup
from askback.core.errors import Invalid, RefusalCode
from askback.core.permissions import Policy, read_policy
from askback.engines.base import Engine
from askback.engines.registry import Engines
from askback.process.child import NotStarted, Spawner
from askback.process.guardian import client
from askback.process.guardian.client import Guardian
from askback.process.guardian.delegation import delegation
from askback.process.isolation import NO_SANDBOX, Isolation, IsolationLevel, Network, ResourceLimits
from askback.process.sandbox.bubblewrap import Sandboxed, homes_of_users
from askback.process.sandbox.visibility import DenyList, deny_list
from askback.process.spawn_direct import Direct
from askback.settings.environment import engine_environment, secret_values, user_home
from askback.settings.model import Settings
from askback.settings.sections import EngineSettings, in_bytes
from askback.settings.trust import key_name
from askback.workspace.workdirs import Workdirs

log = logging.getLogger(__name__)


def make_spawner(settings: Settings) -> Spawner:
    if not client.available():
        return Direct()
    watched = Guardian(delegation())
    if settings.sandbox == "off":
        return watched
    return Sandboxed(
        watched,
        hide=hidden_from_engines(settings),
        show=settings.sandbox_show,
        share=settings.sandbox_share,
        networks=networks(settings).values(),
    )


def hidden_from_engines(settings: Settings) -> DenyList:
    """What a sandbox never shows to an engine."""
    homes = {*homes_of_users(user_home()), *settings.skills_dir}
    homes |= {engine.home for engine in settings.engines.values() if engine.home is not None}
    private = [
        settings.data_dir,
        settings.runs,
        *shared_folder(settings),
        *settings.sources,
        *credential_files(settings),
    ]
    return deny_list(homes=homes, private=private)


def policy_of(settings: Settings) -> Policy | None:
    """The policy for all runs. Raises `Invalid` if it is wrong: without it, calls would run that must not."""
    policy, problems = read_policy(settings.permissions, "permissions")
    if problems:
        raise Invalid(RefusalCode.SETTINGS_INVALID, "the policy in the settings is not valid", problems)
    return policy


def make_workdirs(settings: Settings) -> Workdirs:
    homes = deny_list(homes=homes_of_users(user_home()), private=()).homes
    own_folders = [settings.runs, *shared_folder(settings)]
    return Workdirs(allowed=settings.workdirs, data_dir=settings.data_dir, homes=homes, own_folders=own_folders)


def networks(settings: Settings) -> dict[str, Network]:
    """The networks that the settings name, by the key of the setting."""
    given = {f"engines.{name}.network": engine.network for name, engine in settings.engines.items()}
    return {key: Network(value) for key, value in {"network": settings.network, **given}.items() if value is not None}


async def check_sandbox(settings: Settings, spawner: Spawner) -> None:
    """Refuse a sandbox that is required but not available now, instead of in the first run."""
    problems: list[str] = []
    isolation: Isolation | None = None
    if settings.sandbox == "on":
        isolation = await spawner.isolation()
        if isolation.level is not IsolationLevel.BUBBLEWRAP:
            problems.append(f"sandbox: {isolation.why_not_more}; {isolation.advice}, or set it to 'auto'")
    for key, network in networks(settings).items():
        if network is not Network.HOST:
            isolation = isolation or await spawner.isolation()
            reason = isolation.no_network.get(network)
            if reason is None and not isolation.hides_files:
                reason = f"it needs the sandbox: {isolation.why_not_more}; {isolation.advice}"
            if reason:
                problems.append(f"{key}: '{network}' is not available: {reason}; or set it to 'host'")
    if problems:
        message = "the settings require a sandbox that is not available here"
        raise Invalid(RefusalCode.SETTINGS_INVALID, message, problems)


async def try_sandbox(spawner: Spawner, *, executes: bool) -> None:
    """Find out which sandbox works while programs can be started: `/healthz` reports it also during an outage.

    An instance that executes runs without one logs that.
    """
    with suppress(NotStarted):
        isolation = await spawner.isolation()
        if executes and not isolation.hides_files:
            log.warning("%s Reason: %s; %s", NO_SANDBOX, isolation.why_not_more, isolation.advice)


def engine_setups(settings: Settings, own_secrets: tuple[str, ...]) -> tuple[Engines, dict[str, EngineSetup]]:
    engines = known_engines(settings)
    named = {key_name(("engines", name)): name for name in settings.engines} | {
        "default_engine": settings.default_engine
    }
    named |= {f"worker.engines: {name}": name for name in settings.worker.engines}
    unknown = sorted(key for key, name in named.items() if name is not None and name not in engines)
    if unknown:
        advice = 'one that speaks ACP needs protocol = "acp" and its command'
        problems = [f"{key}: there is no such engine; known: {', '.join(engines)}; {advice}" for key in unknown]
        raise Invalid(RefusalCode.SETTINGS_INVALID, "the settings name engines that do not exist", problems)
    _check_prewarm(engines, settings)
    _check_ask_tool(engines, settings)
    return engines, {name: _setup(engine, settings, own_secrets) for name, engine in engines.items()}


def _check_prewarm(engines: Engines, settings: Settings) -> None:
    able = [name for name, engine in engines.items() if engine.warm]
    wanted = [name for name, given in settings.engines.items() if given.prewarm]
    problems = [
        f"{key_name(('engines', name, 'prewarm'))}: a process of {name} cannot be kept for another turn, so none is"
        f" started in advance; leave it out, or use one of: {', '.join(able)}"
        for name in wanted
        if name not in able
    ]
    if problems:
        raise Invalid(RefusalCode.SETTINGS_INVALID, "the settings ask for prewarmed processes that cannot be", problems)


def _check_ask_tool(engines: Engines, settings: Settings) -> None:
    able = [name for name, engine in engines.items() if engine.takes_ask_tool]
    problems = [
        f"{key_name(('engines', name, 'ask_tool'))}: {name} takes no tool from Askback; leave it out, or use one of:"
        f" {', '.join(able)}"
        for name, given in settings.engines.items()
        if given.ask_tool and name not in able
    ]
    if problems:
        raise Invalid(RefusalCode.SETTINGS_INVALID, "the settings give a tool to engines that cannot have it", problems)


def _setup(engine: Engine, settings: Settings, own_secrets: tuple[str, ...]) -> EngineSetup:
    given = settings.engines.get(engine.name) or EngineSettings()
    allowed = {*engine.env_allow, *engine.env} - credential_variables(settings)
    env = {**engine.env, **engine_environment(allowed, given.env)}
    return EngineSetup(
        command=given.command or engine.default_command,
        env=env,
        model=given.model,
        effort=given.effort,
        home=given.home,
        sign_in_home=given.home or user_home(),
        renew_sign_in=given.renew_sign_in,
        extra_args=given.extra_args,
        slots=given.slots,
        warm_sec=settings.warm_sec if given.warm_sec is None else given.warm_sec,
        prewarm=given.prewarm,
        ask_tool=given.ask_tool,
        secrets=(*secret_values(env), *own_secrets),
        network=Network(given.network or settings.network),
        resources=_resources(settings, given),
    )


def _resources(settings: Settings, given: EngineSettings) -> ResourceLimits:
    limits = settings.limits.model_copy(update=given.limits.model_dump(exclude_none=True))
    return ResourceLimits(
        memory_bytes=in_bytes(limits.memory),
        processes=limits.processes,
        cpu_sec=limits.cpu_sec,
        disk_bytes=in_bytes(limits.disk),
        reserve_bytes=in_bytes(limits.disk_reserve),
    )
