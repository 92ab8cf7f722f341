"""A token that is restricted to labels, on every operation, stream and page: other runs do not exist for it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from askback.access.tokens import Tokens
from askback.app import now
from askback.core.access import AccessScope
from askback.core.errors import Invalid
from askback.web import app as web
from support.api import PATIENCE_SEC, calling, get, operations, over, refused, reply, start, waiting
from support.data_folder import World
from support.program import until
from support.server import Server

MARK = "xqzmarkxqz"
"""In every text of the hidden runs: labels, input, summary, prompt, artifacts, result and webhook."""
SCOPES = (AccessScope.READ, AccessScope.ANSWER, AccessScope.SUBMIT)
OWN = {"customer": "4711"}
OTHERS: tuple[dict[str, str], ...] = (
    {"customer": MARK},
    {"customer": f"4711{MARK}", "owner": "4711"},
    {"Customer": "4711", "by": MARK},
    {},
)
"""Labels of runs that a token for `OWN` must not see."""
MISSING = "0000000000000000"
HTML = {"accept": "text/html"}
EVENTS = {"accept": "text/event-stream"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A server with hidden runs, and a caller who must not notice any of them."""

    world: World
    server: Server
    main: httpx.Client
    restricted: httpx.Client
    token: str
    hidden: tuple[str, ...]
    upload_id: str
    own: str
    """A run of the caller, which waits."""

    @property
    def tokens(self) -> Tokens:
        return Tokens(self.world.records, now)

    def check(self, response: httpx.Response) -> None:
        """Nothing of a hidden run is in the response, beyond what the request itself contained."""
        text = f"{response.headers}{response.text}"
        sent = f"{response.request.url}{response.request.content!r}"
        assert MARK not in text or MARK in sent, (response.request.url, text)
        found = [run_id for run_id in self.hidden if run_id in text and run_id not in sent]
        assert not found, (response.request.url, text)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    world = World(tmp_path_factory.mktemp("restricted"))
    furnish(world)
    env = {"ASKBACK_SLOTS": "8", "ASKBACK_NOTIFICATIONS__ALLOW_PRIVATE": "true"}
    with Server(world, env=env) as server, calling(server.url, server.token) as main:
        token = Tokens(world.records, now).make("anna", SCOPES, None, OWN)
        hidden = tuple(run_id for labels in OTHERS for run_id in make_hidden(main, labels))
        upload = main.post("/v1/uploads", files={"file": (f"{MARK}.txt", io.BytesIO(b"x"))}).json()["upload_id"]
        with calling(server.url, token) as restricted:
            own = waiting(main, "marked", input={"note": "mine"}, labels=OWN | {"plan": "trial"})
            yield Case(
                world=world,
                server=server,
                main=main,
                restricted=restricted,
                token=token,
                hidden=hidden,
                upload_id=upload,
                own=own,
            )


def furnish(world: World) -> None:
    ask = {"ask": {"interaction_id": "colour", "prompt": "{{input.note|}}?", "options": ["red", "{{input.note|}}"]}}
    wrote = {"write": {"path": f"artifacts/{MARK}.txt", "text": "{{input.note|}} {{reply|}}\n"}}
    schema = {"type": "object", "properties": {"note": {"type": "string"}}}
    world.skill(
        [wrote, ask], [wrote, {"finish": {"colour": "{{input.note|}}"}}], name="marked", schemas={"input": schema}
    )


def make_hidden(main: httpx.Client, labels: dict[str, str]) -> Iterator[str]:
    """One run that is over, and one that waits and has a link."""
    hook = {"url": f"http://127.0.0.1:9/{MARK}"}
    for finished in (True, False):
        run_id = waiting(main, "marked", input={"note": MARK}, labels=labels, webhooks=[hook])
        if finished:
            assert reply(main, run_id, "red").status_code == 202
            assert over(main, run_id)["state"] == "succeeded"
        else:
            assert main.post(f"/v1/runs/{run_id}/interaction/link", json={}).status_code == 201
        yield run_id


# Every operation.

PARAMETERS = {
    "path": f"{MARK}.txt",
    "link_id": "9f2c01ab",
    "link": "forged",
    "skill_id": "marked",
    "name": "scripted",
    "session_id": "9f2c01ab",
    "subscription_id": "0f3c2a7b9d1e4c5a",
    "token_name": "anna",
    "invitation_id": "9f2c01ab",
}
"""Values of path parameters beside `run_id`."""
QUERIES = {
    "GET /v1/runs/{run_id}/versions": {"path": f"{MARK}.txt"},
    "GET /v1/runs/{run_id}/diff": {"path": f"{MARK}.txt", "from": "0"},
    "GET /v1/runs": {"limit": "200"},
    "GET /v1/inbox": {"limit": "200"},
    "GET /v1/interactions": {"limit": "200"},
    "GET /v1/deliveries": {"limit": "200"},
}
BODIES: dict[str, Callable[[str], Any]] = {
    "POST /v1/runs": lambda run_id: {
        "skill": "marked",
        "engine": "scripted",
        "input": {"note": "new"},
        "from_run": {"run_id": run_id, "files": "artifacts"},
    },
    "POST /v1/runs/{run_id}/interaction/reply": lambda run_id: {"interaction_id": "colour", "response": "red"},
    "POST /v1/runs/{run_id}/interaction/link": lambda run_id: {},
    "POST /v1/answers/{link}": lambda run_id: {"response": "red"},
    "POST /v1/push/subscriptions": lambda run_id: {
        "endpoint": "https://push.example.com/x",
        "keys": {"p256dh": "x", "auth": "x"},
    },
    "POST /v1/tokens": lambda run_id: {"name": "wider", "scopes": ["read"]},
    "POST /v1/invitations": lambda run_id: {"token": "anna"},
}
WITHOUT_BODY = {
    "POST /v1/runs/{run_id}/cancel",
    "POST /v1/runs/{run_id}/resume",
    "POST /v1/uploads",
    "POST /v1/skills",
    "POST /v1/answers/{link}/file",
    "POST /v1/push/subscriptions/{subscription_id}/test",
}
OPERATIONS = sorted(f"{method} {path}" for method, path in operations())


def about_one_run(operation: str) -> bool:
    return "{run_id}" in operation or operation == "POST /v1/runs"


CALLS = [(operation, accept) for operation in OPERATIONS for accept in ("application/json", "text/event-stream")]
CALLS = [(each, accept) for each, accept in CALLS if accept == "application/json" or about_one_run(each)]
"""A stream of a list does not end: it has a test of its own."""


def call(client: httpx.Client, operation: str, run_id: str, **headers: str) -> httpx.Response:
    """The operation for this run. Fails for an operation with a body or parameter that is not listed here."""
    method, template = operation.split()
    path = template.format(run_id=run_id, **PARAMETERS)
    body = None
    if method in ("POST", "PUT", "PATCH") and operation not in WITHOUT_BODY:
        body = BODIES[operation](run_id)
    return client.request(method, path, params=QUERIES.get(operation), json=body, headers=headers)


@pytest.mark.contract("N-5")
@pytest.mark.parametrize(("operation", "accept"), CALLS)
def test_no_operation_shows_or_changes_a_run_with_other_labels(case: Case, operation: str, accept: str) -> None:
    before = {run_id: (get(case.main, run_id), links(case, run_id)) for run_id in case.hidden}
    told = []
    for run_id in (MISSING, *case.hidden):
        response = call(case.restricted, operation, run_id, accept=accept)
        case.check(response)
        told.append((response.status_code, response.text.replace(run_id, "RUN")))
    if about_one_run(operation):
        assert told[0][0] in (401, 403, 404), told[0]
        assert len(set(told)) == 1, told
    assert {run_id: (get(case.main, run_id), links(case, run_id)) for run_id in case.hidden} == before


def links(case: Case, run_id: str) -> Any:
    return case.main.get(f"/v1/runs/{run_id}/interaction/links").json()


@pytest.mark.contract("N-5")
def test_the_walk_would_notice_what_it_looks_for(case: Case) -> None:
    """With the server's own token, the same operations show the hidden runs."""
    seen = 0
    for operation in OPERATIONS:
        if operation.startswith("GET") and "link}" not in operation:
            response = call(case.main, operation, case.hidden[0])
            try:
                case.check(response)
            except AssertionError:
                seen += 1
    assert seen >= 10


@pytest.mark.contract("N-5")
def test_totals_and_counts_are_those_of_the_own_runs(case: Case) -> None:
    inbox = case.restricted.get("/v1/inbox").json()
    assert ([each["run_id"] for each in inbox["items"]], inbox["total"]) == ([case.own], 1)
    assert inbox["items"][0]["labels"] == {"customer": "4711", "plan": "trial"}
    assert inbox["skills"] == {"marked": 1}
    assert case.restricted.get("/v1/inbox", params={"q": "mine"}).json()["total"] == 1
    assert case.restricted.get("/v1/inbox", params={"q": MARK}).json()["total"] == 0
    stats = case.restricted.get("/v1/stats").json()
    assert stats["unfinished"]["waiting_user"] == 1
    assert case.main.get("/v1/stats").json()["unfinished"]["waiting_user"] > 1


@pytest.mark.contract("N-5")
@pytest.mark.parametrize("label", [f"customer:{MARK}", "customer:4712", "owner:4711", "Customer:4711"])
def test_a_filter_cannot_leave_the_restriction(case: Case, label: str) -> None:
    for path in ("/v1/runs", "/v1/inbox", "/v1/interactions", "/v1/deliveries"):
        assert case.restricted.get(path, params={"label": label}).json()["items"] == []


@pytest.mark.contract("N-5")
@pytest.mark.parametrize("path", ["/metrics", "/v1/workers"])
def test_metrics_and_workers_are_not_for_a_restricted_token(case: Case, path: str) -> None:
    refused(case.restricted.get(path), 403, "SCOPE_MISSING")


@pytest.mark.contract("N-5")
def test_uploads_of_others_do_not_exist(case: Case) -> None:
    answers = []
    for upload_id in (case.upload_id, f"up-{'0' * 24}"):
        given = {"upload_id": upload_id}
        body = {"interaction_id": "colour", "response": given}
        answers.append(case.restricted.post(f"/v1/runs/{case.own}/interaction/reply", json=body).json())
        answers.append(case.restricted.post("/v1/runs", json={"skill": given}).json())
        answers.append(case.restricted.post("/v1/runs", json={"skill": "marked", "input": {"note": given}}).json())
    assert {each["code"] for each in answers} == {"UPLOAD_NOT_FOUND"}
    assert len({each["detail"] for each in answers}) == 1
    assert get(case.main, case.own)["state"] == "waiting_user"


# What the holder can do.


@pytest.mark.contract("N-5")
def test_a_run_of_the_token_has_its_labels_and_may_have_more(case: Case) -> None:
    run_id = waiting(case.restricted, "marked", labels={"plan": "x"})
    assert get(case.restricted, run_id)["labels"] == {"plan": "x", "customer": "4711"}
    created = case.restricted.get(f"/v1/runs/{run_id}/events").json()["items"][0]
    assert (created["type"], created["data"]["labels"]) == ("run.created", {"plan": "x", "customer": "4711"})
    told = refused(
        case.restricted.post("/v1/runs", json={"skill": "marked", "engine": "scripted", "labels": {"customer": "1"}}),
        403,
        "SCOPE_MISSING",
    )
    assert told["detail"] == "this token is restricted to customer=4711; labels.customer cannot have another value"
    assert reply(case.restricted, run_id, "red").status_code == 202
    assert over(case.restricted, run_id)["state"] == "succeeded"
    again = case.restricted.post(
        "/v1/runs", json={"skill": "marked", "from_run": {"run_id": run_id, "files": "artifacts"}, "engine": "scripted"}
    )
    assert again.json()["labels"] == {"plan": "x", "customer": "4711"}
    closed = case.restricted.get("/v1/interactions").json()["items"]
    assert {each["run_id"]: each["labels"] for each in closed}[run_id] == {"plan": "x", "customer": "4711"}
    case.restricted.post(f"/v1/runs/{again.json()['id']}/cancel")
    for each in (run_id, over(case.restricted, again.json()["id"])["id"]):
        assert case.restricted.delete(f"/v1/runs/{each}").status_code == 204
        assert case.restricted.get(f"/v1/runs/{each}").status_code == 404


@pytest.mark.contract("N-5")
def test_a_restricted_token_cannot_work_in_folders_of_the_machine(case: Case, tmp_path: Path) -> None:
    body = {"skill": "marked", "engine": "scripted", "workdir": str(tmp_path)}
    told = refused(case.restricted.post("/v1/runs", json=body), 403, "SCOPE_MISSING")
    assert "cannot use a workdir" in told["detail"]


@pytest.mark.contract("N-5")
def test_an_idempotency_key_of_other_labels_is_another_key(case: Case) -> None:
    key, body = {"idempotency-key": "order-1"}, {"skill": "marked", "engine": "scripted"}
    made = []
    for customer in ("a", "b"):
        token = case.tokens.make("successor", SCOPES, None, {"customer": customer})
        with calling(case.server.url, token) as client:
            made += [client.post("/v1/runs", json=body, headers=key).json() for _ in range(2)]
        case.tokens.revoke("successor")
    assert [each["labels"] for each in made] == [{"customer": "a"}] * 2 + [{"customer": "b"}] * 2
    assert len({each["id"] for each in made}) == 2


@pytest.mark.contract("N-5")
def test_an_administrator_cannot_be_restricted(case: Case) -> None:
    with pytest.raises(Invalid, match="'admin' cannot be restricted"):
        case.tokens.make("half", (AccessScope.ADMIN,), None, OWN)
    with pytest.raises(Invalid, match="these labels are not valid"):
        case.tokens.make("odd", SCOPES, None, {"a b": "c"})


# Streams.


@contextmanager
def following(case: Case, path: str, token: str) -> Iterator[Callable[[str], str]]:
    """An open stream; the function returns what came until this text was in it."""
    headers = EVENTS | {"authorization": f"Bearer {token}"}
    with httpx.stream("GET", f"{case.server.url}{path}", headers=headers, timeout=PATIENCE_SEC) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        # The first line is sent when the stream listens.
        came = [next(lines)]

        def until_seen(last: str) -> str:
            for line in lines:
                came.append(line)
                if last in line:
                    return "\n".join(came)
            raise AssertionError(came)

        yield until_seen


@pytest.mark.contract("N-5")
@pytest.mark.parametrize("path", ["/v1/inbox", "/v1/runs", "/v1/runs?label=plan:trial", "/v1/inbox?label=plan:trial"])
def test_streams_have_the_own_runs_alone(case: Case, path: str) -> None:
    with following(case, path, case.token) as until_seen:
        hidden = waiting(case.main, "marked", input={"note": MARK}, labels=OTHERS[0] | {"plan": "trial"})
        assert reply(case.main, hidden, "red").status_code == 202
        over(case.main, hidden)
        own = start(case.main, "marked", input={"note": "the last"}, labels=OWN | {"plan": "trial"})
        text = until_seen(own)
    assert MARK not in text
    assert hidden not in text
    case.main.post(f"/v1/runs/{own}/cancel")
    over(case.main, own)


@pytest.mark.contract("N-5")
@pytest.mark.parametrize("path", ["/v1/runs", "/v1/inbox"])
def test_a_stream_filters_by_labels(case: Case, path: str) -> None:
    with following(case, f"{path}?label=customer:4711&label=plan:y", case.server.token) as until_seen:
        other = waiting(case.main, "marked", labels=OWN | {"plan": "z"})
        wanted = waiting(case.main, "marked", labels=OWN | {"plan": "y"})
        assert other not in until_seen(wanted)
    for run_id in (other, wanted):
        case.main.post(f"/v1/runs/{run_id}/cancel")
        over(case.main, run_id)


# Pages.

PAGES = sorted({page.path for page in web.PAGES if not page.by_link})
PAGE_QUERIES = [
    "",
    f"?path={MARK}.txt",
    "?skill=marked&again={run_id}",
    "?skill=marked&follow={run_id}",
    f"?q={MARK}",
    f"?label=customer:{MARK}",
    "?cursor=999999",
    "?days=14",
]


@pytest.fixture(scope="module")
def browser(case: Case) -> Iterator[httpx.Client]:
    headers = HTML | case.server.session(case.token)
    with httpx.Client(base_url=case.server.url, headers=headers, timeout=PATIENCE_SEC) as client:
        yield client


@pytest.mark.contract("N-5")
@pytest.mark.parametrize("path", PAGES)
def test_no_page_shows_a_run_with_other_labels(case: Case, browser: httpx.Client, path: str) -> None:
    for query in PAGE_QUERIES:
        told = []
        for run_id in (MISSING, *case.hidden):
            response = browser.get((path + query).replace("{run_id}", run_id).replace("{skill_id}", "marked"))
            case.check(response)
            told.append((response.status_code, response.text.replace(run_id, "RUN")))
        if "{run_id}" in path:
            assert {status for status, _ in told} == {404}
            assert len(set(told)) == 1
        if "{run_id}" in query:
            assert len({status for status, _ in told}) == 1


@pytest.mark.contract("N-5")
def test_pages_show_the_own_runs(case: Case, browser: httpx.Client) -> None:
    for path in ("/", "/runs", f"/runs/{case.own}", f"/runs/{case.own}/files", "/dashboard"):
        response = browser.get(path)
        assert response.status_code == 200
        assert case.own in response.text, path


@pytest.mark.contract("N-5")
def test_the_api_of_the_page_is_restricted_as_well(case: Case, browser: httpx.Client) -> None:
    listed = browser.get("/v1/runs", headers={"accept": "application/json"}).json()["items"]
    assert case.own in [run["id"] for run in listed]
    assert MARK not in json.dumps(listed)


@pytest.mark.contract("N-5")
def test_links_of_others_to_the_own_question_do_not_exist(case: Case) -> None:
    path = f"/v1/runs/{case.own}/interaction/link"
    others = case.main.post(path, json={"recipient": "staff"}).json()["id"]
    own = case.restricted.post(path, json={}).json()["id"]
    assert [each["id"] for each in case.restricted.get(path + "s").json()["items"]] == [own]
    refused(case.restricted.delete(f"{path}s/{others}"), 404, "LINK_NOT_FOUND")
    assert case.restricted.delete(path + "s").status_code == 204
    assert [each["id"] for each in case.main.get(path + "s").json()["items"]] == [others]
    assert case.main.delete(path + "s").status_code == 204


@pytest.mark.contract("N-5")
def test_a_link_of_a_restricted_token_ends_with_it(case: Case) -> None:
    token = case.tokens.make("short", SCOPES, None, OWN)
    with calling(case.server.url, token) as client:
        url = client.post(f"/v1/runs/{case.own}/interaction/link", json={}).json()["url"]
    assert httpx.get(url).json()["interaction_id"] == "colour"
    case.tokens.revoke("short")
    assert until(lambda: httpx.get(url).status_code == 401)
