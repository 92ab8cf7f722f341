"""Questions over HTTP: pending, answered by text, option, object or file, the inbox, and links to one question."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from askback.access.grants import digest
from askback.access.tokens import Tokens
from askback.core.access import AccessScope
from askback.runs.links import MAX_PER_RUN, Link, Links, StoredLink
from support.api import PATIENCE_SEC, calling, get, over, reach, refused, reply, start, waiting
from support.data_folder import World
from support.program import until
from support.server import Server


def test_the_pending_question_is_told_and_no_other(client: httpx.Client) -> None:
    run_id = waiting(client)
    question = client.get(f"/v1/runs/{run_id}/interaction").json()
    assert question == get(client, run_id)["pending_interaction"]
    assert (question["options"], question["outcome"], question["answered_by"]) == (["red", "blue"], "pending", None)
    reply(client, run_id, "red")
    over(client, run_id)
    refused(client.get(f"/v1/runs/{run_id}/interaction"), 404, "INTERACTION_NOT_FOUND")


def test_an_answer_is_kept_with_who_gave_it(client: httpx.Client) -> None:
    run_id = waiting(client)
    reply(client, run_id, "blue")
    listed = client.get(f"/v1/runs/{run_id}/interactions").json()
    (question,) = listed["items"]
    assert listed["next_cursor"] is None
    kept = {name: question[name] for name in ("interaction_id", "outcome", "response", "answered_by")}
    assert kept == {"interaction_id": "colour", "outcome": "answered", "response": "blue", "answered_by": "user"}


def test_an_answer_to_another_question_is_409(client: httpx.Client) -> None:
    run_id = waiting(client)
    refused(reply(client, run_id, "red", "other"), 409, "INTERACTION_NOT_PENDING")
    assert get(client, run_id)["state"] == "waiting_user"
    assert reply(client, run_id, "red").status_code == 202
    refused(reply(client, run_id, "red"), 409, "INTERACTION_NOT_PENDING")


def test_an_answer_before_the_question_is_409(client: httpx.Client) -> None:
    run_id = start(client, "endless")
    refused(reply(client, run_id, "red"), 409, "INTERACTION_NOT_PENDING")
    client.post(f"/v1/runs/{run_id}/cancel")


@pytest.mark.parametrize(
    "unfit", [{}, {"name": 1}, {"name": "x", "count": 0}, ["x"], 7, None, {"name": "x" * 1_100_000}]
)
def test_an_object_that_does_not_fit_is_422_and_the_run_waits_on(client: httpx.Client, unfit: Any) -> None:
    run_id = waiting(client, "form")
    told = refused(reply(client, run_id, unfit), 422, "REPLY_INVALID")
    assert told["problems"]
    assert all(problem.startswith("response") for problem in told["problems"])
    assert get(client, run_id)["state"] == "waiting_user"
    assert reply(client, run_id, {"name": "Ada", "count": 2}).status_code == 202
    (question,) = client.get(f"/v1/runs/{run_id}/interactions").json()["items"]
    assert question["response"] == {"name": "Ada", "count": 2}


@pytest.mark.parametrize(
    "body", [{}, {"response": "x"}, {"interaction_id": "colour"}, {"interaction_id": 1, "response": 1}]
)
def test_half_an_answer_is_none(client: httpx.Client, body: dict[str, Any]) -> None:
    run_id = waiting(client)
    refused(client.post(f"/v1/runs/{run_id}/interaction/reply", json=body), 422, "REQUEST_INVALID")
    assert get(client, run_id)["state"] == "waiting_user"


def test_the_answer_to_a_secret_question_is_never_told(client: httpx.Client) -> None:
    run_id = waiting(client, "secretive")
    answered = reply(client, run_id, "hunter2-hunter2")
    over(client, run_id)
    paths = ("", "/interactions", "/events", "/result")
    told = [answered.text, *(client.get(f"/v1/runs/{run_id}{path}").text for path in paths)]
    assert [text for text in told if "hunter2" in text] == []


def test_a_file_is_an_answer(client: httpx.Client, furnished: World) -> None:
    run_id = waiting(client)
    upload = client.post("/v1/uploads", files={"file": ("notes.txt", b"the notes")}).json()
    assert reply(client, run_id, {"upload_id": upload["upload_id"]}).status_code == 202
    over(client, run_id)
    told = furnished.prompts(run_id)[-1]
    (path,) = [word for word in told.split() if word.endswith("/notes.txt")]
    assert (furnished.data_dir / "runs" / run_id / "work" / path).read_text() == "the notes"


def test_a_file_that_is_no_answer_leaves_nothing_behind(client: httpx.Client, furnished: World) -> None:
    run_id = waiting(client)
    refused(reply(client, run_id, {"upload_id": "up-000000000000000000000000"}), 404, "UPLOAD_NOT_FOUND")
    upload = client.post("/v1/uploads", files={"file": ("notes.txt", b"the notes")}).json()
    file = {"upload_id": upload["upload_id"]}
    refused(reply(client, run_id, file, "other"), 409, "INTERACTION_NOT_PENDING")
    assert reply(client, run_id, "red").status_code == 202
    refused(reply(client, run_id, file), 409, "INTERACTION_NOT_PENDING")
    over(client, run_id)
    assert list((furnished.data_dir / "runs" / run_id / "work").glob("inputs/*/*")) == []


def test_the_inbox_has_every_pending_question_the_oldest_first(client: httpx.Client) -> None:
    first, second, third = waiting(client), waiting(client, "form"), waiting(client)
    mine = {first, second, third}

    def listed() -> list[dict[str, Any]]:
        items, cursor = [], {}
        while True:
            page = client.get("/v1/inbox", params={"limit": 2, **cursor}).json()
            assert len(page["items"]) <= 2
            items += [each for each in page["items"] if each["run_id"] in mine]
            if page["next_cursor"] is None:
                return items
            cursor = {"cursor": page["next_cursor"]}

    found = listed()
    assert [each["run_id"] for each in found] == [first, second, third]
    assert (found[1]["skill"], found[1]["engine"], found[1]["prompt"]) == ("form", "scripted", "Which colour?")
    total = client.get("/v1/inbox", params={"limit": 1}).json()["total"]
    assert total == len(client.get("/v1/inbox", params={"limit": 200}).json()["items"])
    assert reply(client, second, {"name": "Ada"}).status_code == 202
    assert [each["run_id"] for each in listed()] == [first, third]


def test_the_inbox_is_filtered_and_counts_what_matches(client: httpx.Client) -> None:
    mine = [waiting(client, "form"), waiting(client, "secretive")]

    def page(**params: str) -> dict[str, Any]:
        found: dict[str, Any] = client.get("/v1/inbox", params={"limit": "200", **params}).json()
        return found

    every = page()
    assert (every["total"], sum(every["skills"].values())) == (len(every["items"]), len(every["items"]))
    assert every["engines"] == {"scripted": every["total"]}
    of_form = page(skill="form", q="WHICH colour")
    assert {each["skill"] for each in of_form["items"]} == {"form"}
    assert (of_form["total"], of_form["skills"]) == (every["skills"]["form"], every["skills"])
    assert page(q="no-such-word", order="deadline") == {
        "items": [],
        "next_cursor": None,
        "total": 0,
        "skills": {},
        "engines": {},
    }
    refused(client.get("/v1/inbox", params={"order": "newest"}), 422, "REQUEST_INVALID")
    for run_id in mine:
        assert client.post(f"/v1/runs/{run_id}/cancel").status_code in (200, 202)


def test_closed_questions_are_listed_newest_first_and_keep_their_secrets(client: httpx.Client) -> None:
    first, second = waiting(client), waiting(client, "secretive")
    assert reply(client, first, "red").status_code == 202
    assert reply(client, second, "hunter-2-hunter").status_code == 202
    items, cursor = [], {}
    while len(items) < 2:
        page = client.get("/v1/interactions", params={"limit": 1, **cursor}).json()
        items += [each for each in page["items"] if each["run_id"] in (first, second)]
        cursor = {"cursor": page["next_cursor"]}
    assert [(each["run_id"], each["response"]) for each in items] == [(second, None), (first, "red")]
    assert [(each["outcome"], each["answered_by"]) for each in items] == [("answered", "user")] * 2
    assert (items[1]["skill"], items[1]["engine"]) == ("asking", "scripted")
    refused(client.get("/v1/interactions", params={"cursor": "x"}), 422, "INPUT_INVALID")


def test_a_wait_that_will_be_decided_says_until_when(client: httpx.Client) -> None:
    options = {"interactive_require_user_reply": False, "session_timeout_sec": 600}
    run_id = waiting(client, options=options)
    run = get(client, run_id)
    deadline = datetime.fromisoformat(run["wait_deadline_at"])
    assert timedelta(seconds=500) < deadline - datetime.now(UTC) <= timedelta(seconds=600)
    pages = client.get("/v1/inbox", params={"limit": 200}).json()["items"]
    (listed,) = [each for each in pages if each["run_id"] == run_id]
    assert listed["wait_deadline_at"] == run["wait_deadline_at"]


# Links.


def test_a_link_that_says_nothing_of_its_time_is_good_for_a_day(server: Server, client: httpx.Client) -> None:
    path = f"/v1/runs/{waiting(client)}/interaction/link"
    bare, empty = client.post(path), client.post(path, json={})
    assert (bare.status_code, empty.status_code) == (201, 201), bare.text
    lasts = datetime.fromisoformat(bare.json()["expires_at"]) - datetime.now(UTC)
    assert timedelta(hours=23) < lasts <= timedelta(days=1)


def make_link(client: httpx.Client, run_id: str, **body: Any) -> str:
    made = client.post(f"/v1/runs/{run_id}/interaction/link", json=body)
    assert made.status_code == 201, made.text
    return str(made.json()["url"])


def test_a_link_lets_its_holder_answer_that_question_and_nothing_else(server: Server, client: httpx.Client) -> None:
    run_id, other = waiting(client), waiting(client)
    url = make_link(client, run_id)
    assert url.startswith(f"{server.url}/v1/answers/")
    with calling(server.url, None) as holder:
        question = holder.get(url).json()
        assert question == client.get(f"/v1/runs/{run_id}/interaction").json()
        for path in (f"/v1/runs/{run_id}", f"/v1/runs/{run_id}/interaction", "/v1/inbox", "/v1/runs", "/metrics"):
            refused(holder.get(path), 401, "UNAUTHORIZED")
            refused(holder.get(f"{url}/../../..{path}"), 401, "UNAUTHORIZED")
        refused(reply(holder, run_id, "red"), 401, "UNAUTHORIZED")
        refused(holder.post(url, json={"response": "red", "interaction_id": "colour"}), 422, "REQUEST_INVALID")
        answered = holder.post(url, json={"response": "blue"})
        assert answered.status_code == 202
        assert (answered.json()["outcome"], answered.json()["response"]) == ("answered", "blue")
        refused(holder.post(url, json={"response": "red"}), 409, "INTERACTION_NOT_PENDING")
        refused(holder.get(url), 409, "INTERACTION_NOT_PENDING")
    over(client, run_id)
    assert client.get(f"/v1/runs/{run_id}/result").json()["data"] == {"colour": "blue"}
    assert get(client, other)["state"] == "waiting_user"


def test_a_link_s_answer_has_to_fit_as_well(server: Server, client: httpx.Client) -> None:
    run_id = waiting(client, "form")
    with calling(server.url, None) as holder:
        url = make_link(client, run_id, expires_in_sec=60)
        refused(holder.post(url, json={"response": {"count": 1}}), 422, "REPLY_INVALID")
        assert holder.post(url, json={"response": {"name": "Ada"}}).status_code == 202


def test_a_forged_or_expired_link_is_401(server: Server, client: httpx.Client, furnished: World) -> None:
    run_id, other = waiting(client), waiting(client)
    good = make_link(client, run_id).rpartition("/")[2]
    body, _, signature = good.partition(".")
    key = furnished.records.secret("link-key").encode()

    def made(key: bytes, expires_at: datetime) -> str:
        link = Link(run_id=other, interaction_id="colour", expires_at=expires_at)
        links = Links(
            key=key,
            clock=lambda: datetime.now(UTC),
            stored=lambda run_id: furnished.records.of_run(
                run_id, furnished.data_dir / "runs" / run_id, "links", StoredLink
            ),
            is_token=lambda _: True,
        )
        return links.make(link, token="main", token_digest=digest(server.token))[0]

    future, past = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) - timedelta(seconds=1)
    foreign = made(b"another key", future)
    bad = [
        foreign,
        made(key, past),
        f"{foreign.partition('.')[0]}.{signature}",
        f"{body}.{signature[:-2]}",
        f"{body}.",
        body,
        f".{signature}",
        f"{good}x",
        f"{good}/more",
        "..",
        "%00",
        "\u0661\u0662",
        "a" * 5000,
    ]
    with calling(server.url, None) as holder:
        assert holder.get(f"/v1/answers/{made(key, future)}").status_code == 200
        for text in bad:
            refused(holder.get(f"/v1/answers/{text}"), 401, "UNAUTHORIZED")
            refused(holder.post(f"/v1/answers/{text}", json={"response": "red"}), 401, "UNAUTHORIZED")
    assert get(client, other)["state"] == "waiting_user"


def test_a_browser_with_an_invalid_link_sees_a_page_that_says_what_to_do(server: Server, client: httpx.Client) -> None:
    run_id, deleted = waiting(client), waiting(client)
    revoked, gone = (make_link(client, each) for each in (run_id, deleted))
    assert client.delete(f"/v1/runs/{run_id}/interaction/links").status_code == 204
    client.post(f"/v1/runs/{deleted}/cancel")
    over(client, deleted)
    assert client.delete(f"/v1/runs/{deleted}").status_code == 204
    urls = [revoked, gone, revoked[:-5], f"{server.url}/v1/answers/x", f"{server.url}/v1/answers/"]
    urls += [each.replace("/v1/answers/", "/answers/") for each in urls]
    pages = set()
    with calling(server.url, None) as holder, httpx.Client(timeout=PATIENCE_SEC) as browser:
        for url in urls:
            shown = browser.get(url, headers={"accept": "text/html,*/*;q=0.8", "accept-language": "en"})
            assert (shown.status_code, shown.headers["content-type"]) == (401, "text/html; charset=utf-8"), url
            pages.add(shown.text)
            told = refused(holder.get(url), 401, "UNAUTHORIZED")
            assert told["detail"] == "the link is incomplete or no longer valid; ask for a new one"
        chinese = browser.get(gone, headers={"accept": "text/html", "accept-language": "zh"}).text
    (page,) = pages
    assert "ask the person who sent it for a new one" in page
    assert "token" not in page.lower()
    assert "此链接无法使用" in chinese


def links_of(client: httpx.Client, run_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/v1/runs/{run_id}/interaction/links").json()["items"]
    return found


def test_a_link_is_revoked_alone_or_with_all_of_its_question(server: Server, client: httpx.Client) -> None:
    run_id, other = waiting(client), waiting(client)
    first, second, third = (make_link(client, run_id) for _ in range(3))
    elsewhere = make_link(client, other)
    listed = links_of(client, run_id)
    assert [each["token"] for each in listed] == ["main"] * 3
    assert not [each for each in listed if first.rpartition("/")[2] in str(each)]
    with calling(server.url, None) as holder:
        path = f"/v1/runs/{run_id}/interaction/links"
        refused(client.delete(f"/v1/runs/{other}/interaction/links/{listed[0]['id']}"), 404, "LINK_NOT_FOUND")
        assert client.delete(f"{path}/{listed[0]['id']}").status_code == 204
        refused(client.delete(f"{path}/{listed[0]['id']}"), 404, "LINK_NOT_FOUND")
        refused(holder.get(first), 401, "UNAUTHORIZED")
        refused(holder.post(first, json={"response": "red"}), 401, "UNAUTHORIZED")
        assert [holder.get(each).status_code for each in (second, third, elsewhere)] == [200, 200, 200]
        assert client.delete(path).status_code == 204
        assert client.delete(path).status_code == 204
        assert [holder.get(each).status_code for each in (second, third, elsewhere)] == [401, 401, 200]
    assert links_of(client, run_id) == []
    assert get(client, run_id)["state"] == "waiting_user"


@pytest.mark.parametrize("by_session", [False, True])
def test_a_link_ends_with_the_token_that_made_it(
    server: Server, client: httpx.Client, furnished: World, by_session: bool
) -> None:
    tokens = Tokens(furnished.records, lambda: datetime.now(UTC))
    name, run_id = f"linker-{by_session}", waiting(client)
    token = tokens.make(name, (AccessScope.ANSWER,), None)
    headers = server.session(token) if by_session else {"authorization": f"Bearer {token}"}
    with calling(server.url, None, **headers) as maker, calling(server.url, None) as holder:
        url = make_link(maker, run_id)
        assert holder.get(url).status_code == 200
        tokens.revoke(name)
        until(lambda: holder.get(url).status_code == 401)
        refused(holder.get(url), 401, "UNAUTHORIZED")
        refused(holder.post(url, json={"response": "red"}), 401, "UNAUTHORIZED")
    assert links_of(client, run_id) == []
    assert get(client, run_id)["state"] == "waiting_user"


@pytest.mark.sqlite
def test_a_link_is_kept_as_a_digest_and_goes_with_its_run(client: httpx.Client, furnished: World) -> None:
    run_id = waiting(client)
    link = make_link(client, run_id).rpartition("/")[2]
    path = furnished.data_dir / "runs" / run_id / "links.json"
    assert link not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0


def test_a_question_has_a_bounded_number_of_links(server: Server, client: httpx.Client) -> None:
    run_id = waiting(client)
    for _ in range(MAX_PER_RUN):
        make_link(client, run_id)
    full = client.post(f"/v1/runs/{run_id}/interaction/link", json={})
    refused(full, 409, "STATE_UNSUITABLE")
    assert client.delete(f"/v1/runs/{run_id}/interaction/links/{links_of(client, run_id)[0]['id']}").status_code == 204
    make_link(client, run_id)


def test_who_may_not_answer_may_neither_list_nor_revoke_links(
    server: Server, client: httpx.Client, furnished: World
) -> None:
    tokens = Tokens(furnished.records, lambda: datetime.now(UTC))
    run_id = waiting(client)
    url = make_link(client, run_id)
    path = f"/v1/runs/{run_id}/interaction/links"
    with calling(server.url, tokens.make("only-looks", (AccessScope.READ,), None)) as reader:
        refused(reader.get(path), 403, "SCOPE_MISSING")
        refused(reader.delete(path), 403, "SCOPE_MISSING")
    with calling(server.url, None) as holder:
        refused(holder.delete(path), 401, "UNAUTHORIZED")
        assert holder.get(url).status_code == 200


def test_a_link_is_made_only_for_a_pending_question(client: httpx.Client) -> None:
    run_id = start(client, "quick")
    over(client, run_id)
    refused(client.post(f"/v1/runs/{run_id}/interaction/link", json={}), 404, "INTERACTION_NOT_FOUND")
    reach(client, run_id, "succeeded")


@pytest.mark.parametrize("seconds", [0, -1, 31_536_001, 2**70, 1.5, "60", None])
def test_a_link_lasts_a_bounded_time(client: httpx.Client, seconds: Any) -> None:
    run_id = waiting(client)
    answer = client.post(f"/v1/runs/{run_id}/interaction/link", json={"expires_in_sec": seconds})
    refused(answer, 422, "REQUEST_INVALID")
