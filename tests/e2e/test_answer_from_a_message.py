"""A person with a phone and no token gets a message, follows its link, answers, and the run goes on."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from support.api import calling, get, operations, over, refused, start
from support.data_folder import ASK, FINISH, World
from support.mail_server import PASSWORD, USER, Mailbox, make_certificate, receiving_mail, server_context
from support.ntfy import Ntfy, ntfy_server
from support.program import until
from support.receiver import Receiver, receiving
from support.server import Server
from support.slack import Slack, slack

PUBLIC = "https://askback.example"
SECRET = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ="
TOPIC_TOKEN = "tk_of_the_topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """A server that notifies a channel of every kind."""

    server: Server
    world: World
    ntfy: Ntfy
    slack: Slack
    mailbox: Mailbox
    receiver: Receiver

    def asked(self, client: httpx.Client, **body: Any) -> str:
        """A run that waits, and whose question every channel has got."""
        run_id = start(client, "asking", **body)
        until(lambda: all(self.url_of(channel, run_id) for channel in CHANNELS))
        return run_id

    def url_of(self, channel: str, run_id: str) -> str | None:
        """The link in the message of this run; None if the message has not come."""
        return next((url for run, url in CHANNELS[channel](self) if run == run_id), None)


def _of_ntfy(channels: Channels) -> Iterator[tuple[str, str]]:
    return ((_run_of(each["click"]), each["click"]) for each in list(channels.ntfy.messages))


def _of_slack(channels: Channels) -> Iterator[tuple[str, str]]:
    for each in list(channels.slack.incoming):
        url = each["blocks"][-1]["elements"][-1]["url"]
        yield _run_of(url), url


def _of_mail(channels: Channels) -> Iterator[tuple[str, str]]:
    for each in list(channels.mailbox.came):
        url = re.findall(rf"{PUBLIC}/answers/\S+", each.part("plain"))[-1]
        yield _run_of(url), url


def _of_standard(channels: Channels) -> Iterator[tuple[str, str]]:
    for each in list(channels.receiver.came):
        url = json.loads(each.body)["data"]["answer_url"]
        yield _run_of(url), url


CHANNELS: dict[str, Callable[[Channels], Iterator[tuple[str, str]]]] = {
    "ntfy": _of_ntfy,
    "slack": _of_slack,
    "anna@example.org": _of_mail,
    "the app": _of_standard,
}
"""By the name of the recipient."""


def _run_of(url: str) -> str:
    """A link says which run it is for; its signature is what cannot be guessed."""
    body = urlsplit(url).path.rpartition("/")[2].partition(".")[0]
    run_id: str = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))[0]
    return run_id


@pytest.fixture(scope="module")
def channels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Channels]:
    folder = tmp_path_factory.mktemp("channels")
    world = World(folder)
    world.skill([ASK], [FINISH], name="asking")
    certificate = make_certificate(folder / "tls", "127.0.0.1")
    with ExitStack() as ends:
        ntfy, double = ends.enter_context(ntfy_server()), ends.enter_context(slack())
        receiver = ends.enter_context(receiving(Receiver()))
        mailbox = ends.enter_context(receiving_mail(Mailbox(), tls=server_context(certificate), login=True))
        config = folder / "server.toml"
        config.write_text(_config(ntfy, double, receiver, mailbox))
        env = {"SSL_CERT_FILE": str(certificate)}
        server = ends.enter_context(Server(world, "--config", str(config), env=env))
        yield Channels(server=server, world=world, ntfy=ntfy, slack=double, mailbox=mailbox, receiver=receiver)


def _config(ntfy: Ntfy, double: Slack, receiver: Receiver, mailbox: Mailbox) -> str:
    states = 'states = ["waiting_user"]'
    return f"""
[server]
public_url = "{PUBLIC}"
[[webhooks]]
url = "{ntfy.url}/my-topic"
kind = "ntfy"
secret = "{TOPIC_TOKEN}"
{states}
[[webhooks]]
url = "{double.url}/services/T0/B0/secret"
kind = "slack"
{states}
[[webhooks]]
url = "mailto:anna@example.org"
kind = "email"
{states}
[[webhooks]]
url = "{receiver.url}"
secret = "{SECRET}"
name = "the app"
{states}
[notifications]
allow_private = true
[notifications.email]
url = "smtps://127.0.0.1:{mailbox.port}"
user = "{USER}"
password = "{PASSWORD}"
sender = "Askback <askback@example.org>"
"""


def local(channels: Channels, url: str) -> str:
    """Where the proxy of the public address leads."""
    assert url.startswith(f"{PUBLIC}/answers/"), url
    return url.replace(PUBLIC, channels.server.url)


def api(channels: Channels, url: str) -> str:
    return local(channels, url).replace("/answers/", "/v1/answers/")


def answered(client: httpx.Client, run_id: str) -> dict[str, Any]:
    (item,) = client.get(f"/v1/runs/{run_id}/interactions").json()["items"]
    found: dict[str, Any] = item
    return found


@pytest.mark.contract("N-2", "N-3")
@pytest.mark.parametrize("channel", CHANNELS)
def test_the_link_of_a_message_answers_the_question_without_a_token(channels: Channels, channel: str) -> None:
    with calling(channels.server.url, channels.server.token) as client, calling(channels.server.url, None) as person:
        run_id = channels.asked(client)
        url = channels.url_of(channel, run_id)
        assert url is not None
        page = person.get(local(channels, url) + "?choose=1", headers={"accept": "text/html"})
        assert (page.status_code, "Which colour?" in page.text) == (200, True)
        response = person.post(api(channels, url), json={"response": "blue"})
        assert response.status_code == 202, response.text
        over(client, run_id)
        assert client.get(f"/v1/runs/{run_id}/result").json()["data"] == {"colour": "blue"}
        assert answered(client, run_id)["answered_with"] == {"name": channel, "via": "link"}
    assert (channels.ntfy.problems, channels.slack.problems) == ([], [])


@pytest.mark.contract("N-2")
@pytest.mark.parametrize("channel", CHANNELS)
def test_the_link_of_a_message_leads_to_nothing_else(channels: Channels, channel: str) -> None:
    with calling(channels.server.url, channels.server.token) as client, calling(channels.server.url, None) as person:
        run_id, other = channels.asked(client), channels.asked(client)
        url = channels.url_of(channel, run_id)
        assert url is not None
        link = urlsplit(url).path.rpartition("/")[2]
        cookie = f"askback_session_{channels.server.port}={link}"
        for method, path in operations():
            if "/answers/" in path or path in ("/healthz", "/readyz"):
                continue
            filled = re.sub(r"\{[^}]*\}", "x", path.replace("{run_id}", run_id))
            for headers in ({}, {"authorization": f"Bearer {link}"}, {"cookie": cookie}):
                refused(person.request(method, filled, headers=headers), 401, "UNAUTHORIZED")
        foreign = link.replace(link.partition(".")[0], _link_of(channels, channel, other).partition(".")[0])
        refused(person.get(f"/v1/answers/{foreign}"), 401, "UNAUTHORIZED")
        assert get(client, other)["state"] == "waiting_user"
        for each in (run_id, other):
            client.post(f"/v1/runs/{each}/cancel")


def _link_of(channels: Channels, channel: str, run_id: str) -> str:
    url = channels.url_of(channel, run_id)
    assert url is not None
    return urlsplit(url).path.rpartition("/")[2]


@pytest.mark.contract("N-2")
def test_a_link_is_dead_when_its_question_is_closed(channels: Channels) -> None:
    with calling(channels.server.url, channels.server.token) as client, calling(channels.server.url, None) as person:
        run_id = channels.asked(client)
        urls = [channels.url_of(channel, run_id) or "" for channel in CHANNELS]
        assert len(set(urls)) == len(CHANNELS)
        assert person.post(api(channels, urls[0]), json={"response": "red"}).status_code == 202
        for url in urls:
            refused(person.post(api(channels, url), json={"response": "blue"}), 409, "INTERACTION_NOT_PENDING")
        over(client, run_id)
        assert answered(client, run_id)["response"] == "red"
        assert client.delete(f"/v1/runs/{run_id}").status_code == 204
        for url in urls:
            refused(person.get(api(channels, url)), 401, "UNAUTHORIZED")


@pytest.mark.contract("N-2")
def test_links_of_messages_are_listed_with_their_recipients_and_revoked(channels: Channels) -> None:
    with calling(channels.server.url, channels.server.token) as client, calling(channels.server.url, None) as person:
        run_id = channels.asked(client)
        path = f"/v1/runs/{run_id}/interaction/links"
        listed = client.get(path).json()["items"]
        assert {(each["recipient"], each["token"]) for each in listed} == {(channel, None) for channel in CHANNELS}
        assert channels.server.token not in client.get(path).text
        by_slack = next(each["id"] for each in listed if each["recipient"] == "slack")
        assert client.delete(f"{path}/{by_slack}").status_code == 204
        url = channels.url_of("slack", run_id)
        assert url is not None
        refused(person.get(api(channels, url)), 401, "UNAUTHORIZED")
        assert by_slack not in [each["id"] for each in client.get(path).json()["items"]]
        assert client.delete(path).status_code == 204
        assert client.get(path).json()["items"] == []
        client.post(f"/v1/runs/{run_id}/cancel")


@pytest.mark.contract("N-3")
def test_no_secret_of_the_server_reaches_a_broker(channels: Channels) -> None:
    with calling(channels.server.url, channels.server.token) as client:
        client.post(f"/v1/runs/{channels.asked(client)}/cancel")
    data_dir = channels.world.data_dir
    secrets = [channels.server.token, (data_dir / "link-key").read_text().strip(), PASSWORD, SECRET]
    seen = [f"{headers}{body.decode()}" for _, headers, body in channels.ntfy.requests]
    seen += [json.dumps(each) for each in channels.slack.incoming]
    seen += [each.content.decode() for each in channels.mailbox.came]
    assert seen
    for text in seen:
        assert not [secret for secret in secrets if secret in text]
    assert all(each["authorization"] == f"Bearer {TOPIC_TOKEN}" for _, each, _ in channels.ntfy.requests)
    actions = [action["action"] for each in channels.ntfy.messages for action in each["actions"]]
    assert set(actions) == {"view"}
    assert not [text for text in seen[len(channels.ntfy.requests) :] if TOPIC_TOKEN in text]


@pytest.mark.contract("N-3")
def test_a_button_of_ntfy_answers_at_once_if_the_settings_allow_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.skill([ASK], [FINISH], name="asking")
    with ntfy_server() as ntfy:
        config = tmp_path / "server.toml"
        config.write_text(
            f'[server]\npublic_url = "{PUBLIC}"\n[[webhooks]]\nurl = "{ntfy.url}/t"\nkind = "ntfy"\n'
            'states = ["waiting_user"]\n[notifications]\nallow_private = true\nallow_answer_buttons = true\n'
        )
        with Server(world, "--config", str(config)) as server, calling(server.url, server.token) as client:
            run_id = start(client, "asking")
            until(lambda: ntfy.messages)
            _, blue = ntfy.messages[0]["actions"]
            tapped = httpx.request(
                blue["method"],
                blue["url"].replace(PUBLIC, server.url),
                headers=blue["headers"],
                content=blue["body"],
                timeout=120,
            )
            assert tapped.status_code == 202, tapped.text
            over(client, run_id)
            assert client.get(f"/v1/runs/{run_id}/result").json()["data"] == {"colour": "blue"}
            assert ntfy.problems == []
