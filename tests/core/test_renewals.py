"""Which changes of a sign-in are taken over: declared tokens of the same account, and nothing else."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.core.renewals import ANY, Kind, Renewal, RenewalRefused, TokenField, merge
from askback.engines.registry import engines

RULE = Renewal(
    name="auth.json",
    fields=(
        TokenField(path=("tokens", "access")),
        TokenField(path=("tokens", "expires"), kind=Kind.INTEGER),
        TokenField(path=("tokens", "id"), kind=Kind.JWT, claims=(("sub",), ("org", "id"))),
        TokenField(path=("tokens", "scopes"), kind=Kind.TEXTS, optional=True),
        TokenField(path=("providers", ANY, "key"), where=("type", "oauth")),
    ),
    account=(("user",),),
)


def jwt(**claims: Any) -> str:
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims, 1)
    )


OLD: dict[str, Any] = {
    "user": "ada",
    "commands": {"server": ["run", "this"]},
    "tokens": {"access": "old", "expires": 1, "id": jwt(sub="ada", org={"id": 1}, exp=1)},
    "providers": {"one": {"type": "oauth", "key": "old"}, "two": {"type": "wellknown", "key": "old"}},
}


def changed(*path: str, to: Any) -> dict[str, Any]:
    document = json.loads(json.dumps(OLD))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return document


def merged(new: Any) -> dict[str, Any] | None:
    content = merge(RULE, json.dumps(OLD).encode(), new if isinstance(new, bytes) else json.dumps(new).encode())
    return None if content is None else json.loads(content)


@pytest.mark.parametrize(
    "new",
    [
        changed("tokens", "access", to="new"),
        changed("tokens", "expires", to=1_900_000_000_000),
        changed("tokens", "id", to=jwt(sub="ada", org={"id": 1}, exp=2)),
        changed("tokens", "scopes", to=["read", "write"]),
        changed("providers", "one", "key", to="new"),
    ],
)
def test_a_renewed_token_is_taken_over(new: dict[str, Any]) -> None:
    assert merged(new) == new


def test_what_an_engine_left_out_stays() -> None:
    assert merged({"user": "ada", "tokens": {"access": "new", "id": None}}) == changed("tokens", "access", to="new")


def test_the_same_document_written_differently_changes_nothing() -> None:
    assert merge(RULE, json.dumps(OLD).encode(), json.dumps(OLD, indent=8, sort_keys=True).encode()) is None


@pytest.mark.parametrize(
    "new",
    [
        changed("user", to="mallory"),
        {key: value for key, value in OLD.items() if key != "user"} | {"tokens": {"access": "new"}},
        changed("commands", to={"server": ["run", "that"]}),
        changed("commands", "other", to=["run"]),
        changed("mcpServers", to={"x": {"command": "sh"}}),
        changed("tokens", "access", to={"a": "new"}),
        changed("tokens", "access", to=["new"]),
        changed("tokens", "access", to=7),
        changed("tokens", "access", to=""),
        changed("tokens", "access", to="x" * 20_000),
        changed("tokens", "access", to="new\n[mcp]"),
        changed("tokens", "access", to="\x1b[31mnew"),
        changed("tokens", "access", to="n\u202eew"),
        changed("tokens", "expires", to=True),
        changed("tokens", "expires", to=-1),
        changed("tokens", "expires", to=1.5),
        changed("tokens", "expires", to="2"),
        changed("tokens", "expires", to=10**40),
        changed("tokens", "id", to=jwt(sub="mallory", org={"id": 1})),
        changed("tokens", "id", to=jwt(sub="ada", org={"id": 2})),
        changed("tokens", "id", to="opaque"),
        changed("tokens", "scopes", to=["read"] * 1000),
        changed("tokens", "scopes", to=[{"a": "read"}]),
        changed("tokens", to="new"),
        changed("providers", "two", "key", to="new"),
        changed("providers", "two", to={"type": "oauth", "key": "new"}),
        changed("providers", "one", "type", to="wellknown"),
        changed("providers", "http://evil", to={"type": "oauth", "key": "new"}),
        [OLD],
        "text",
        None,
        b"",
        b"{",
        b"\xff\xfe",
        b'{"user": "ada", "tokens": {"access": "new"}, "user": "mallory"}',
        b'{"user": "ada", "tokens": {"expires": NaN}}',
        b'{"user": "ada", "tokens": {"expires": 1e999}}',
        b'{"user": "ada", "tokens": {"access": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
        b'{"user": "ada", "tokens": {"access": "' + b"x" * (2 << 20) + b'"}}',
    ],
    ids=lambda new: repr(new)[:60],
)
def test_any_other_change_is_refused(new: Any) -> None:
    with pytest.raises(RenewalRefused):
        merged(new)


def test_a_refusal_names_the_place_and_never_a_value() -> None:
    with pytest.raises(RenewalRefused) as refused:
        merged(changed("tokens", "se\x1bcret", to="the-token"))
    assert "the-token" not in str(refused.value)
    assert str(refused.value).isprintable()


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["old", "ada", "oauth"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["user", "tokens", "access", "commands", "providers", "one", "type", "key"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(new=st.dictionaries(st.sampled_from([*OLD, "mcpServers"]), _VALUES))
def test_whatever_an_engine_wrote_nothing_but_tokens_differs_after_it(new: dict[str, Any]) -> None:
    try:
        after = merged(new)
    except RenewalRefused:
        return
    if after is not None:
        assert _without_tokens(after) == _without_tokens(OLD)


def _without_tokens(document: dict[str, Any]) -> dict[str, Any]:
    rest = json.loads(json.dumps(document))
    for key in ("access", "expires", "id", "scopes"):
        rest["tokens"].pop(key, None)
    rest["providers"]["one"].pop("key", None)
    return rest


def test_no_engine_may_renew_what_it_does_not_name_as_a_sign_in_nor_its_settings() -> None:
    found = [engine for engine in engines().values() if engine.renewals]
    assert {engine.name for engine in found} >= {"claude", "codex", "gemini", "iflow", "opencode", "qwen"}
    for engine in found:
        for rule in engine.renewals:
            assert rule.name in engine.credentials
            assert not {"settings", "config"} & set(rule.name.replace("/", ".").split("."))
