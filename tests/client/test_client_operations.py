"""Every operation of the API can be called from the Python clients, or there is a reason why not."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import pytest

from askback.client import AsyncClient, Client, calls
from support.operations import LEFT_OUT, operations, template_of

NOT_A_METHOD = {"event_stream": "follow"}
"""Calls that a method with another name makes."""


def declared() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, make in inspect.getmembers(calls, inspect.isfunction):
        returned = str(get_type_hints(make).get("return"))
        is_public = make.__module__ == calls.__name__ and not name.startswith("_")
        if is_public and any(kind in returned for kind in ("Call[", "Listing[", "Download")):
            yield name, make


def requests_of(make: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """The method and path of a call, with placeholders for what its caller gives."""
    values = {name: _placeholder(hint) for name, hint in get_type_hints(make).items() if name != "return"}
    # A delivery of one run or of all runs: two operations, one call.
    for each in [values, {"run_id": "x"}] if make is calls.deliveries else [values]:
        made = make(**each)
        call = made.call if isinstance(made, calls.Listing | calls.Download) else made
        yield call.method, call.path


def _placeholder(hint: Any) -> Any:
    text = str(hint)
    if "None" in text:
        return None
    if "Mapping" in text and "str |" not in text:
        return {}
    if "Sequence" in text:
        return ()
    return 1 if hint is int else "x"


def test_every_operation_has_a_call() -> None:
    made = {template_of(*request) for _, make in declared() for request in requests_of(make)}
    assert None not in made
    assert operations() - made == LEFT_OUT.keys()
    assert all(LEFT_OUT.values())


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_every_call_is_a_method_of_both_clients(client: type[Any]) -> None:
    names = {NOT_A_METHOD.get(name, name) for name, _ in declared()}
    assert names - set(dir(client)) == set()


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_a_method_has_the_arguments_and_the_docstring_of_its_call(client: type[Any]) -> None:
    assert list(inspect.signature(client.link).parameters) == ["self", "run_id", "expires_in_sec", "recipient"]
    assert all(getattr(client, NOT_A_METHOD.get(name, name)).__doc__ for name, _ in declared())
