"""What is secret in a run. Everything that shows or stores a part of a run asks here, wherever the part comes from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from askback.background.pools import Pools
from askback.core.errors import AskbackError, raise_if_temporary
from askback.core.interactions import Interaction
from askback.core.run_env import secrets_in
from askback.core.runs import Run, RunRequest
from askback.core.secrecy import Secrecy
from askback.skills.library import Library
from askback.skills.package import SkillPackage
from askback.skills.summary import secret_inputs
from askback.store.base import RunStore
from askback.text.redaction import Redactor, answer_secrets
from askback.workspace.archives import RunArchives
from askback.workspace.workspaces import Workspaces


def declares_secrets(package: SkillPackage) -> bool:
    return any(Secrecy.by(schema).any for schema in (package.input_schema, package.parameter_schema))


def texts_to_mask(
    package: SkillPackage, request: RunRequest, asked: Iterable[Interaction], env: Mapping[str, str]
) -> tuple[str, ...]:
    """Every text that must not be in anything that the run prints or names."""
    inputs = (request.input[name] for name in secret_inputs(request.input, package.input_schema))
    parameters = (request.parameter[name] for name in secret_inputs(request.parameter, package.parameter_schema))
    answers = answer_secrets((*inputs, *parameters, *(each.secret_response for each in asked)))
    return (*answers, *(secret for value in env.values() for secret in secrets_in(value)))


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
        return RunRequest(
            input=_without(request.input, secret_inputs(request.input, package.input_schema)),
            parameter=_without(request.parameter, secret_inputs(request.parameter, package.parameter_schema)),
        )

    async def redactor(self, store: RunStore, run: Run) -> Redactor:
        request = await store.request(run.id)
        env = await self._env(run, request)
        return Redactor((), texts_to_mask(await self.package(run), request, await store.interactions(run.id), env))

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
