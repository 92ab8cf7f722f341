"""What is secret in a run. Everything that shows or stores a part of a run asks here, wherever the part comes from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from askback.background.pools import Pools
from askback.core.errors import AskbackError, Conflict, RefusalCode, raise_if_temporary
from askback.core.interactions import Interaction
from askback.core.run_env import secrets_in
from askback.core.runs import Run, RunRequest
from askback.core.secrecy import Secrecy
from askback.skills.library import Library
from askback.skills.package import SkillPackage
from askback.skills.templates import secret_inputs
from askback.store.visible import RunStore
from askback.text.redaction import Redactor, answer_secrets, texts_in
from askback.workspace.archives import RunArchives
from askback.workspace.workspaces import Workspaces

_MAX_INHERITED = 32 * 1024
"""Characters. They are read with every look at the run that inherits them."""


def declares_secrets(package: SkillPackage) -> bool:
    return any(Secrecy.by(schema).any for schema in (package.input_schema, package.parameter_schema))


def texts_to_mask(
    run: Run, package: SkillPackage, request: RunRequest, asked: Iterable[Interaction], env: Mapping[str, str]
) -> tuple[str, ...]:
    """Every text that must not be in anything that the run prints or names."""
    inputs = (request.input[name] for name in secret_inputs(request.input, package.input_schema))
    parameters = (request.parameter[name] for name in secret_inputs(request.parameter, package.parameter_schema))
    answers = answer_secrets((*inputs, *parameters, *(each.secret_response for each in asked)))
    return (*answers, *run.inherited_secrets, *(secret for value in env.values() for secret in secrets_in(value)))


def names_of_secrets(
    values: Mapping[str, Any], schema: Mapping[str, Any] | None, inherited: Collection[str]
) -> tuple[str, ...]:
    """The names of the values that are secret by the schema, or contain a secret of a run that is continued."""
    by_schema = secret_inputs(values, schema)
    if not inherited:
        return by_schema
    redactor, known = Redactor((), inherited), set(inherited)
    return tuple(
        name
        for name, value in values.items()
        if name in by_schema or redactor.value(value) != value or not known.isdisjoint(texts_in(value))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSecrets:
    """Finds the secrets of a run that is not over. Its answers and variables are erased at its end."""

    library: Library
    workspaces: Workspaces
    pools: Pools
    archives: RunArchives | None

    async def package(self, run: Run) -> SkillPackage:
        """The package of the run itself, which may differ from the one that now has its name."""
        digest = run.skill.digest
        if run.skill.uploaded:
            folder = self.workspaces.of(run.id).package
            return await self.pools.skills.run(self.library.unpacked, folder, digest, admitted=True)
        known = self.library.cached(digest)
        return known if known is not None else await self.pools.skills.run(self.library.package, digest, admitted=True)

    async def shown_request(self, run: Run, request: RunRequest) -> RunRequest:
        """What the run was given, without secrets: nothing if its skill can no longer say what is secret."""
        try:
            package = await self.package(run)
        except AskbackError:
            return RunRequest()
        inherited = run.inherited_secrets
        return RunRequest(
            input=_without(request.input, names_of_secrets(request.input, package.input_schema, inherited)),
            parameter=_without(
                request.parameter, names_of_secrets(request.parameter, package.parameter_schema, inherited)
            ),
        )

    async def inherited(self, source: Run, request: RunRequest) -> tuple[str, ...]:
        """The secret texts of this run, for a run that continues it. Without secret answers and variables: those are erased.

        Raises `Conflict` if they are unknown, or too long to be stored with the new run.
        """
        if not request.input and not request.parameter:
            return source.inherited_secrets
        try:
            package = await self.package(source)
        except AskbackError as fault:
            message = f"run {source.id} cannot be continued: its skill, which says what is secret, is gone: {fault}"
            raise Conflict(RefusalCode.STATE_UNSUITABLE, message) from None
        texts = tuple(dict.fromkeys(text for text in texts_to_mask(source, package, request, (), {}) if text))
        if sum(map(len, texts)) > _MAX_INHERITED:
            message = f"run {source.id} cannot be continued: its secret inputs are too long to be masked in another run"
            raise Conflict(RefusalCode.STATE_UNSUITABLE, message)
        return texts

    async def redactor(self, store: RunStore, run: Run) -> Redactor:
        request = await store.request(run.id)
        env = await self._env(run, request)
        asked = await store.interactions(run.id)
        return Redactor((), texts_to_mask(run, await self.package(run), request, asked, env))

    async def _env(self, run: Run, request: RunRequest) -> dict[str, str]:
        """Empty if they cannot be opened here: then no engine of this machine has got them."""
        if request.env is None:
            return {}
        pad = None if self.archives is None else await self.archives.pad(run)
        try:
            return await self.pools.files.run(self.workspaces.of(run.id).open_env, request.env, pad)
        except OSError as fault:
            raise_if_temporary(fault)
            return {}
        except ValueError:
            return {}


def _without(values: Mapping[str, Any], hidden: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in hidden}
