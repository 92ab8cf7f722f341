"""The engines on this machine: which one a run gets, which profile it has, and how engines are shown. Knows no runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from askback.catalog.checks import Check, Checks
from askback.catalog.models import ModelLists
from askback.catalog.probes import EngineSetup, EngineSource, Installed
from askback.core.errors import Invalid, RefusalCode, RunWarning, Unavailable, WarningCode
from askback.core.permissions import GateKind
from askback.core.run_env import reserved_by
from askback.core.runs import Mode, Profile, ProfileChoice, ProfileKind, Run, RunOptions
from askback.engines.base import Engine, Probe, Turn
from askback.engines.registry import Engines
from askback.fs.copies import CopyLimits
from askback.skills.package import SkillPackage
from askback.wire import server as wire


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReport:
    engine: Engine
    setup: EngineSetup
    installed: Installed | None


class EngineCatalog:
    """The known engines, as configured and installed on this machine."""

    def __init__(
        self,
        *,
        engines: Engines,
        setups: Mapping[str, EngineSetup],
        source: EngineSource,
        models: ModelLists,
        checks: Checks,
        default_engine: str | None,
    ) -> None:
        self._engines = engines
        self._setups = setups
        self._source = source
        self._models = models
        self._checks = checks
        self._default_engine = default_engine

    async def choose(self, package: SkillPackage, wanted: str | None) -> Engine:
        """The engine of a run: the one it names, else the one of `first_for`."""
        if wanted is not None:
            engine = self._engines.choose(wanted)
            if not package.allows_engine(wanted):
                allowed = ", ".join(name for name in self._engines if package.allows_engine(name)) or "none of them"
                raise Invalid(
                    RefusalCode.ENGINE_UNSUITABLE,
                    f"skill '{package.id}' does not run on '{wanted}'; it runs on: {allowed}",
                )
            return engine
        name = await self.first_for(package)
        if name is None:
            raise self._nothing_installed(package)
        return self._engines[name]

    async def first_for(self, package: SkillPackage) -> str | None:
        """The engine of a run that names none: the first that suits the skill and is installed.

        Engines that are signed in come first, then those of which that is unknown. No program is started to find out.
        """
        candidates = self._candidates(package)
        installed = [name for name in candidates if self._source.has(self._engines[name], self._setups[name])]
        return min(installed, key=self._sign_in_rank, default=None)

    def _sign_in_rank(self, name: str) -> int:
        engine = self._engines[name]
        signed_in = self._source.signed_in(engine, self._setups[name])
        # An engine without a model needs no account. That makes it no better than a model that may be signed in.
        return {True: 0 if engine.chosen_by_default else 1, None: 1, False: 2}[signed_in]

    def missing_sign_in(self, name: str) -> str | None:
        """How to sign in to an engine that is not signed in. None: it is, or that is unknown."""
        if name not in self._engines or self._source.signed_in(self._engines[name], self._setups[name]) is not False:
            return None
        return self._engines[name].sign_in

    def advised_command(self, name: str, *, installed: bool) -> str | None:
        """The command that installs an engine, or signs in to an installed one; None if there is no single command."""
        engine = self._engines.get(name)
        command = "" if engine is None else engine.sign_in_command if installed else engine.install_command
        return command or None

    def _candidates(self, package: SkillPackage) -> Sequence[str]:
        if package.engines is not None:
            return [name for name in package.engines if name in self._engines and package.allows_engine(name)]
        default = None if self._default_engine is None else self._engines.choose(self._default_engine).name
        if default is not None and package.allows_engine(default):
            return [default]
        return [
            name for name, engine in self._engines.items() if engine.chosen_by_default and package.allows_engine(name)
        ]

    def _nothing_installed(self, package: SkillPackage) -> Invalid | Unavailable:
        if not self._source.any_worker():
            message = "the run names no engine, and no worker is there to choose one of; start one with: askback worker"
            return Unavailable(RefusalCode.NO_WORKER, message)
        names = self._candidates(package) if package.engines is None else package.engines
        message = (
            "the run names no engine, and none of the default engines is installed;"
            " install one, or name the engine 'scripted', which plays scripts and needs no account"
            if package.engines is None
            else f"skill '{package.id}' needs one of these engines, and none is installed"
        )
        known = {name: self._engines[name].install for name in names if name in self._engines}
        advice = [f"{name}: {known.get(name, 'is not known to this version')}" for name in names]
        return Invalid(RefusalCode.ENGINE_NOT_FOUND, message, advice)

    async def profile(self, engine: Engine, mode: Mode, options: RunOptions) -> Profile:
        setup = self._setups[engine.name]
        installed = await self._source.expected(engine, setup)
        if installed is None:
            raise Invalid(
                RefusalCode.ENGINE_NOT_FOUND,
                f"engine '{engine.name}' is not installed: {setup.command[0]} was not found; {engine.install}",
            )
        probe, choice = installed.probe, options.interactive_profile
        kind = probe.kind if choice is ProfileChoice.AUTO else ProfileKind(choice)
        if mode is Mode.INTERACTIVE:
            _check_profile(engine, kind, probe, asked_for=choice is not ProfileChoice.AUTO)
        reason = probe.reason if kind is probe.kind else f"the run asked for it; {probe.reason}"
        return Profile(kind=kind, reason=reason, session_timeout_sec=options.session_timeout_sec)

    async def check_gate(self, engine: Engine, mode: Mode, profile: Profile) -> None:
        """Refuse `permissions` for a run whose engine cannot be asked before each call of a tool."""
        installed = await self._source.expected(engine, self._setups[engine.name])
        if installed is None or engine.gate(installed.probe) is GateKind.NONE:
            version = "" if installed is None else f" {installed.probe.version or ''}".rstrip()
            gated = ", ".join(name for name, each in self._engines.items() if each.has_gate)
            message = f"engine '{engine.name}'{version} has no gate for calls of tools, so a run with permissions cannot use it"
            raise Invalid(RefusalCode.ENGINE_UNSUITABLE, f"{message}; engines that can have one: {gated}")
        if mode is Mode.INTERACTIVE and profile.kind is not ProfileKind.RESUMABLE:
            message = f"a run with permissions must be resumable: a process that stays has no gate; {profile.reason}"
            raise Invalid(RefusalCode.PROFILE_UNAVAILABLE, message)

    async def env_words(self, engine: Engine) -> frozenset[str]:
        """The first words of the variables that this engine reads or sets."""
        installed = await self._source.expected(engine, self._setups[engine.name])
        if installed is None:
            return reserved_by(engine.env_allow)
        turn = Turn(
            prompt="",
            mode=Mode.AUTO,
            attempt_number=1,
            command=(engine.name,),
            cwd="/",
            home="/",
            skill_dir="skill",
            probe=installed.probe,
        )
        launches = [engine.launch(turn)]
        if engine.can_stay:
            launches.append(engine.launch_resident(turn))
        return reserved_by(
            [engine.name, *engine.env_allow, *engine.env, *(name for launch in launches for name in launch.env)]
        )

    async def ignored_effort(self, run: Run, *, required: bool) -> RunWarning | None:
        """A warning if the installed engine has no option for the effort; an error if the run itself names one."""
        engine, setup = self._engines[run.engine], self._setups[run.engine]
        wanted = run.options.effort or setup.effort
        installed = None if wanted is None else await self._source.expected(engine, setup)
        if installed is None or run.process_profile in installed.probe.effort:
            return None
        version = f" {installed.probe.version}" if installed.probe.version else ""
        kind = f" in {run.process_profile} runs" if installed.probe.effort else ""
        message = f"engine '{engine.name}'{version} has no option for the effort {wanted!r}{kind}"
        if required:
            raise Invalid(RefusalCode.INPUT_INVALID, f"{message}; leave it out", [f"options.effort: {message}"])
        return RunWarning(code=WarningCode.EFFORT_IGNORED, message=message)

    async def views(self, *, refresh: bool = False) -> list[wire.Engine]:
        """Each engine as the API shows it, including third-party engines that cannot be loaded."""
        broken = [wire.Engine(name=name, found=False, advice=why) for name, why in self._engines.broken.items()]
        shown = [_shown(report, self._source.workers(report.engine)) for report in await self.reports(refresh=refresh)]
        return [*shown, *broken]

    async def models(self, name: str) -> wire.EngineModels:
        """The models that a run on this engine can name, as its program lists them."""
        engine = self._engines.choose(name)
        setup = self._setups[name]
        answer = await self._models.find(engine, setup, await self._source.here(engine, setup))
        if answer.models is None and self._source.workers(engine):
            # Sign-ins and versions differ between machines, so only the program on this one is asked.
            reason = (
                f"{answer.reason}; or list the models of a worker on its machine with: askback engines models {name}"
            )
            answer = replace(answer, reason=reason)
        models = None if answer.models is None else tuple(wire.EngineModel(**asdict(each)) for each in answer.models)
        return wire.EngineModels(engine=name, models=models, reason=answer.reason, asked_at=answer.asked_at)

    async def check(self, name: str) -> Check:
        """Try whether the sessions of an engine on this machine survive its process. Costs a few tokens."""
        engine, setup = self._engines.choose(name), self._setups[name]
        installed = await self._source.here(engine, setup)
        if installed is None:
            message = f"engine '{name}' is not installed: {setup.command[0]} was not found; {engine.install}"
            raise Invalid(RefusalCode.ENGINE_NOT_FOUND, message)
        if not engine.converses or installed.probe.offers is None:
            message = f"there is nothing to check of engine '{name}': {installed.probe.reason}"
            raise Invalid(RefusalCode.ENGINE_UNSUITABLE, message)
        check = await self._checks.run(engine, setup, installed)
        if check is None:
            message = f"another program checks engine '{name}' at the moment, or lists its models; try again"
            raise Unavailable(RefusalCode.RESOURCE_SHORTAGE, message)
        return check

    def watch_probes(self, listener: Callable[[str], None]) -> None:
        """Call the listener with the name of every engine before its program is probed."""
        self._source.watch(listener)

    async def reports(self, *, refresh: bool = False) -> Sequence[EngineReport]:
        """All engines. `refresh`: probe also those that were probed before."""
        if refresh:
            self._source.forget()
        return [
            EngineReport(
                engine=engine, setup=self._setups[name], installed=await self._source.find(engine, self._setups[name])
            )
            for name, engine in self._engines.items()
        ]

    def copy_limits(self, name: str) -> CopyLimits:
        """How much a run on this engine may copy from another run."""
        resources = self._setups[name].resources
        return CopyLimits(max_bytes=resources.disk_bytes, reserve_bytes=resources.reserve_bytes)

    @property
    def names(self) -> tuple[str, ...]:
        """All known engines, installed or not."""
        return tuple(self._engines)

    @property
    def broken(self) -> Mapping[str, str]:
        """Third-party engines that cannot be used, with the reason."""
        return self._engines.broken


def _check_profile(engine: Engine, kind: ProfileKind, probe: Probe, *, asked_for: bool) -> None:
    """Refuse a profile that the installed engine does not support, with the reason from the probe.

    If the run did not request a profile, it may be sticky even if the probe saw no support for a resident process.
    """
    if kind is ProfileKind.RESUMABLE and probe.kind is not ProfileKind.RESUMABLE:
        reason = f"engine '{engine.name}' does not support resumable runs: {probe.reason}"
        raise Invalid(RefusalCode.PROFILE_UNAVAILABLE, reason)
    can_stay = kind in engine.profiles and (probe.resident or not asked_for)
    if kind is ProfileKind.STICKY_PROCESS and not can_stay:
        reason = f"engine '{engine.name}' does not support {kind} runs: its process cannot be kept while the run waits"
        if probe.kind is not ProfileKind.RESUMABLE:
            reason += f", and its session cannot be resumed in a new process: {probe.reason}"
        raise Invalid(RefusalCode.PROFILE_UNAVAILABLE, reason)


def _shown(report: EngineReport, workers: int | None) -> wire.Engine:
    name, title, found, advice = report.engine.name, report.engine.title, report.installed, engine_advice(report)
    if found is None:
        return wire.Engine(name=name, title=title, found=False, advice=advice, workers=workers)
    return wire.Engine(
        name=name,
        title=title,
        found=True,
        path=found.path,
        version=found.probe.version,
        interactive_profile=wire.EngineProfile(
            kind=found.probe.kind, reason=found.probe.reason, offers=found.probe.offers
        ),
        profiles=_profiles_of(report.engine, found.probe),
        warm=can_be_warm(report.engine, found.probe),
        gate=report.engine.gate(found.probe),
        signed_in=found.signed_in,
        advice=advice,
        workers=workers,
    )


def can_be_warm(engine: Engine, probe: Probe) -> bool:
    """Whether the process of a resumable run can stay while the run waits."""
    return probe.resident and probe.kind is ProfileKind.RESUMABLE and engine.warm


def _profiles_of(engine: Engine, probe: Probe) -> tuple[ProfileKind, ...]:
    """The profiles that an interactive run may request."""
    kinds = [ProfileKind.RESUMABLE] if probe.kind is ProfileKind.RESUMABLE else []
    if probe.resident and ProfileKind.STICKY_PROCESS in engine.profiles:
        kinds.append(ProfileKind.STICKY_PROCESS)
    return tuple(kinds)


def engine_advice(report: EngineReport) -> str | None:
    """How to install the engine or sign in; None if nothing is missing."""
    if report.installed is None:
        return report.engine.install
    return report.engine.sign_in if report.installed.signed_in is False else None
