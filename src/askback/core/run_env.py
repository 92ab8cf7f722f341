"""The rules for `env`, the secret variables of a run: which names and values are accepted. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from askback.core.errors import FieldProblem

MAX_NAMES = 50
MAX_VALUE_CHARS = 32_768
SHORTEST = 8
"""Shorter values cannot be masked: they would occur by chance."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
_RESERVED = frozenset(
    (
        *("PATH", "HOME", "PWD", "OLDPWD", "SHELL", "USER", "LOGNAME", "HOSTNAME", "TERM", "LANG", "LANGUAGE", "TZ"),
        *("TMPDIR", "TMP", "TEMP", "IFS", "ENV", "CDPATH", "SHELLOPTS", "PS4", "PROMPT_COMMAND", "CLASSPATH"),
        *("EDITOR", "VISUAL", "PAGER", "BROWSER", "IS_SANDBOX", "CI", "DEBUG"),
    )
)
_RESERVED_PREFIXES = (
    *("LD_", "DYLD_", "LC_", "XDG_", "DBUS_", "GCONV_", "GLIBC_", "MALLOC_", "OPENSSL_", "OTEL_", "ASKBACK"),
    *("BASH", "ZSH", "PYTHON", "PERL", "RUBY", "JAVA", "NODE", "NPM", "BUN_", "DENO_"),
    *("GIT_", "SSH_", "SSL_", "CURL_", "REQUESTS_"),
)
"""What loads code into programs, or changes how they connect."""


def reserved_by(names: Collection[str]) -> frozenset[str]:
    """The first words of the names that an engine reads or sets: `CODEX` for `CODEX_HOME`."""
    return frozenset(name.partition("_")[0].upper() for name in names)


def env_problems(env: Mapping[str, str], engine_words: Collection[str]) -> Iterator[FieldProblem]:
    """Every reason why a run cannot have these variables. No value is quoted."""
    if len(env) > MAX_NAMES:
        yield FieldProblem.at(("env",), f"has {len(env)} variables; at most {MAX_NAMES} are allowed")
        return
    for name, value in env.items():
        if not _NAME.fullmatch(name):
            yield FieldProblem.at(("env",), f"{name[:100]!r} is not the name of a variable")
        elif _is_reserved(name):
            yield FieldProblem.at(("env", name), "the name is reserved")
        elif name.partition("_")[0].upper() in engine_words:
            yield FieldProblem.at(
                ("env", name), "the name configures the engine; only the settings can set it, in engines.NAME.env"
            )
        elif "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
            yield FieldProblem.at(("env", name), "the value contains a character that no variable can have")
        elif len(value) > MAX_VALUE_CHARS:
            yield FieldProblem.at(("env", name), f"the value is longer than {MAX_VALUE_CHARS} characters")
        elif not secrets_in(value):
            yield FieldProblem.at(
                ("env", name), f"the value is shorter than {SHORTEST} characters and cannot be masked; use `parameter`"
            )


def secrets_in(value: str) -> tuple[str, ...]:
    """What is masked: the value, and each of its lines, since output is read line by line."""
    parts = {value, value.strip(), *(line.strip() for line in value.splitlines())}
    return tuple(part for part in parts if len(part) >= SHORTEST)


def _is_reserved(name: str) -> bool:
    upper = name.upper()
    return upper in _RESERVED or upper.endswith("_PROXY") or upper.startswith(_RESERVED_PREFIXES)
