"""The page as an app: its manifest and icons, its service worker, and notifications on this device.

No push service can be reached from here, so a browser cannot subscribe by itself: the address of a push service on this
machine is put in its place. A push is then handed to the service worker by the browser's own tools, as it arrives there
after decryption; that it can be decrypted is tested elsewhere. A headless browser shows no notification, but lists it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Error, Page, expect
from site_pages import Site, furnish, sign_in, signed_in

from support import api as wire
from support.data_folder import World
from support.push_service import PushService, push_service
from support.server import Server

_SUBSCRIBES = """
(made) => {
  let current = JSON.parse(localStorage.getItem("test-subscription"));
  const of = (json) => ({
    endpoint: json.endpoint,
    toJSON: () => ({ ...json, expirationTime: null }),
    unsubscribe: async () => { current = null; localStorage.removeItem("test-subscription"); return true; },
  });
  PushManager.prototype.subscribe = async function (how) {
    if (!how.userVisibleOnly || how.applicationServerKey.length !== 87) throw new Error("not a valid subscription");
    current = made;
    localStorage.setItem("test-subscription", JSON.stringify(made));
    return of(made);
  };
  PushManager.prototype.getSubscription = async () => (current === null ? null : of(current));
}
"""
_NOTIFICATIONS = """
async () => {
  const found = await (await navigator.serviceWorker.ready).getNotifications();
  return found.map(({ title, body, tag, data, actions }) => ({ title, body, tag, data, actions: actions.map((each) => each.title) }));
}
"""


@pytest.fixture
def service() -> Iterator[PushService]:
    with push_service() as made:
        yield made


@pytest.fixture(scope="module")
def pushing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    world = World(tmp_path_factory.mktemp("pushing"))
    furnish(world)
    with Server(world, env={"ASKBACK_NOTIFICATIONS__ALLOW_PRIVATE": "true"}) as server:
        yield server


@pytest.fixture
def phone(pushing: Server, browser: Browser, service: PushService) -> Iterator[Site]:
    look = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    with signed_in(pushing, browser, permissions=["notifications"], **look) as site:
        site.context.add_init_script(f"({_SUBSCRIBES})({json.dumps(service.subscription())})")
        yield site
        for each in site.api.get("/v1/push").json()["items"]:
            site.api.delete(f"/v1/push/subscriptions/{each['id']}")


def turn_on(page: Page) -> None:
    page.locator("#notify").click()
    page.locator('[data-push="on"]').click()
    expect(page.locator('.push-dialog[data-state="on"]')).to_be_visible()


def deliver(site: Site, page: Page, content: dict[str, Any]) -> None:
    """Hand a push to the service worker of the page."""
    tools = site.context.new_cdp_session(page)
    seen: list[dict[str, Any]] = []
    tools.on("ServiceWorker.workerRegistrationUpdated", lambda event: seen.extend(event["registrations"]))
    tools.send("ServiceWorker.enable")
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    while not (ids := [each["registrationId"] for each in seen if not each["isDeleted"]]):
        page.wait_for_timeout(20)
    push = {"origin": site.url, "registrationId": ids[-1], "data": json.dumps(content)}
    before = page.evaluate(_NOTIFICATIONS)
    # The browser drops a push to a worker that it is just starting; a push service would send it again.
    for _ in range(4):
        tools.send("ServiceWorker.deliverPushMessage", push)
        for _ in range(100):
            if page.evaluate(_NOTIFICATIONS) != before:
                return
            page.wait_for_timeout(50)


def shown(page: Page, count: int = 1) -> list[dict[str, Any]]:
    while len(found := page.evaluate(_NOTIFICATIONS)) < count:
        page.wait_for_timeout(20)
    return list(found)


def click(site: Site, page: Page, action: str = "") -> None:
    """A tap on the one notification, or on its button: a headless browser shows none that could be tapped."""
    while not site.context.service_workers:
        page.wait_for_timeout(20)
    site.context.service_workers[0].evaluate(
        """async (action) => {
          const [notification] = await self.registration.getNotifications();
          self.dispatchEvent(new NotificationEvent("notificationclick", { notification, action }));
        }""",
        action,
    )


def question_of(run_id: str) -> dict[str, Any]:
    told = {"kind": "question", "skill": "asking", "run": run_id, "question": "colour"}
    return told | {"text": "Which colour?", "options": ["red", "blue"]}


# The app.


def test_the_page_can_be_installed(phone: Site) -> None:
    page = phone.open("/")
    tools = phone.context.new_cdp_session(page)
    found = tools.send("Page.getAppManifest")
    assert found["errors"] == []
    assert found["url"] == f"{phone.url}/manifest.webmanifest"
    manifest = json.loads(found["data"])
    assert (manifest["start_url"], manifest["scope"], manifest["display"]) == ("/", "/", "standalone")
    assert {each["errorId"] for each in tools.send("Page.getInstallabilityErrors")["installabilityErrors"]} <= {
        "in-incognito"
    }
    assert {each["purpose"] for each in manifest["icons"]} == {"any", "maskable"}
    for icon in manifest["icons"]:
        # A phone fetches them without its cookies.
        image = httpx.get(phone.server.url + icon["src"], timeout=60)
        assert image.headers["content-type"] == "image/png"
        width, height = struct.unpack(">II", image.content[16:24])
        assert icon["sizes"] == f"{width}x{height}"


@pytest.mark.parametrize("path", ["/manifest.webmanifest", "/service-worker.js"])
def test_a_stranger_gets_neither_manifest_nor_service_worker(pushing: Server, path: str) -> None:
    assert httpx.get(pushing.url + path, timeout=60).status_code == 401


def test_the_service_worker_stores_nothing_and_says_that_the_server_is_gone(
    tmp_path: Path, browser: Browser, service: PushService
) -> None:
    world = World(tmp_path)
    furnish(world)
    with Server(world, env={"ASKBACK_NOTIFICATIONS__ALLOW_PRIVATE": "true"}) as server:
        context = browser.new_context(permissions=["notifications"])
        site = Site(server, context, sign_in(server, context))
        context.add_init_script(f"({_SUBSCRIBES})({json.dumps(service.subscription())})")
        page = site.open("/")
        turn_on(page)
        assert page.evaluate("caches.keys()") == []
        page.goto(f"{site.url}/runs")
        expect(page.locator("h1")).to_have_text("Runs")
        server.stop()
        page.goto(f"{site.url}/runs")
        expect(page.locator("h1")).to_have_text("The server cannot be reached")
        site.api.close()
        context.close()


# On and off.


@pytest.mark.contract("N-8")
def test_a_device_is_turned_on_tested_and_turned_off(phone: Site, service: PushService) -> None:
    page = phone.open("/")
    expect(page.locator("#notify")).to_have_text("Notify me on this device")
    turn_on(page)
    (device,) = phone.api.get("/v1/push").json()["items"]
    assert device["device"] == "Chrome, Linux"
    page.locator('[data-push="test"]').click()
    expect(page.locator("#push-said")).to_contain_text("Sent.")
    assert [each.content for each in service.pushes] == [{"kind": "test"}]
    page.locator('[data-push="off"]').click()
    expect(page.locator('.push-dialog[data-state="off"]')).to_be_visible()
    assert phone.api.get("/v1/push").json()["items"] == []


@pytest.mark.long
def test_the_button_says_that_pushes_are_on_after_a_reload(phone: Site) -> None:
    page = phone.open("/")
    turn_on(page)
    page.reload()
    expect(page.locator("#notify")).to_have_text("Notifications are on")


@pytest.mark.contract("N-8")
def test_signing_out_turns_the_device_off(phone: Site) -> None:
    page = phone.open("/")
    turn_on(page)
    page.goto(f"{phone.url}/sessions")
    page.locator("#sign-out").click()
    expect(page.locator("input[name=token]")).to_be_visible()
    assert phone.api.get("/v1/push").json()["items"] == []
    assert page.evaluate("[localStorage.getItem('askback-push'), localStorage.getItem('test-subscription')]") == [
        None,
        None,
    ]


@pytest.mark.long
def test_a_new_sign_in_with_the_same_token_keeps_the_device(phone: Site) -> None:
    page = phone.open("/")
    turn_on(page)
    (before,) = phone.api.get("/v1/sessions").json()["items"][:1]
    phone.api.delete(f"/v1/sessions/{before['id']}")
    assert phone.api.get("/v1/push").json()["items"] == [], "the session has ended"
    sign_in(phone.server, phone.context)
    page.goto(f"{phone.url}/")
    while not phone.api.get("/v1/push").json()["items"]:
        page.wait_for_timeout(50)


def test_another_user_of_the_browser_does_not_inherit_the_device(phone: Site) -> None:
    page = phone.open("/")
    turn_on(page)
    page.evaluate("localStorage.setItem('askback-push', 'somebody else')")
    page.reload()
    while page.evaluate("localStorage.getItem('test-subscription')") is not None:
        page.wait_for_timeout(50)
    while phone.api.get("/v1/push").json()["items"]:
        page.wait_for_timeout(50)


IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Version/18.0 Mobile/15E148 Safari/604.1"


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "look", "state", "text"),
    [
        (
            "Object.defineProperty(Notification, 'permission', { value: 'denied' })",
            {},
            "blocked",
            "blocks notifications",
        ),
        ("delete window.PushManager", {}, "unsupported", "does not support"),
        ("delete window.PushManager", {"user_agent": IPHONE}, "home_screen", "Home Screen"),
        ("Object.defineProperty(window, 'isSecureContext', { value: false })", {}, "insecure", "HTTPS"),
    ],
)
def test_the_dialog_says_why_a_device_cannot_be_notified(
    pushing: Server, browser: Browser, script: str, look: dict[str, Any], state: str, text: str
) -> None:
    with signed_in(pushing, browser, **look) as site:
        site.context.add_init_script(script)
        page = site.open("/")
        page.locator("#notify").click()
        dialog = page.locator(f'.push-dialog[data-state="{state}"]')
        expect(dialog).to_contain_text(text)
        expect(dialog.get_by_role("button")).to_have_count(1)


@pytest.mark.long
def test_a_browser_without_a_push_service_says_so(pushing: Server, browser: Browser) -> None:
    """What this browser really does: there is no push service for it here."""
    with signed_in(pushing, browser, permissions=["notifications"]) as site:
        site.context.add_init_script(
            "PushManager.prototype.subscribe = async () => { throw new DOMException('Registration failed', 'AbortError'); }"
        )
        page = site.open("/")
        page.locator("#notify").click()
        page.locator('[data-push="on"]').click()
        expect(page.locator("#push-said")).to_have_text("That did not work: Registration failed")
        expect(page.locator('[data-push="on"]')).to_be_enabled()


# A push.


@pytest.mark.contract("N-8")
def test_a_push_becomes_a_notification_and_a_later_one_replaces_it(phone: Site) -> None:
    page = phone.open("/")
    turn_on(page)
    run_id = wire.waiting(phone.api, "asking")
    deliver(phone, page, question_of(run_id))
    (note,) = shown(page)
    assert (note["title"], note["body"]) == ("asking has a question", "Which colour?")
    assert note["actions"] == ["red", "blue"]
    deliver(phone, page, question_of(run_id) | {"text": "Still there?"})
    while [each["body"] for each in shown(page)] != ["Still there?"]:
        page.wait_for_timeout(20)
    wire.reply(phone.api, run_id, "red")


def test_a_tap_on_an_option_leads_to_it_and_one_more_tap_answers(phone: Site) -> None:
    page = phone.open("/runs")
    page.goto(f"{phone.url}/")
    turn_on(page)
    page.goto(f"{phone.url}/runs")
    run_id, other = wire.waiting(phone.api, "asking"), wire.waiting(phone.api, "asking")
    deliver(phone, page, question_of(run_id))
    shown(page)
    click(phone, page, "1")
    chosen = page.locator(".option-chosen")
    expect(chosen).to_contain_text("blue")
    expect(chosen).to_contain_text("Tap to confirm")
    assert page.url == f"{phone.url}/"
    while wire.get(phone.api, run_id)["state"] == "waiting_user":
        # The page ignores a tap on what has moved within 600 ms, and every ignored one starts the time again.
        page.wait_for_timeout(1500)
        with suppress(Error):
            chosen.click(timeout=5000)
    assert wire.over(phone.api, run_id)["state"] == "succeeded"
    assert wire.get(phone.api, other)["state"] == "waiting_user"
    wire.reply(phone.api, other, "red")


@pytest.mark.long
def test_a_tap_on_a_question_that_is_closed_says_how_it_ended(phone: Site) -> None:
    page = phone.open("/")
    turn_on(page)
    run_id = wire.waiting(phone.api, "asking")
    deliver(phone, page, question_of(run_id))
    shown(page)
    wire.reply(phone.api, run_id, "red")
    wire.over(phone.api, run_id)
    click(phone, page)
    expect(page.locator("#inbox-note")).to_have_text("Answered by main, by API: red")


def test_a_tap_on_a_hostile_question_opens_nothing_else(phone: Site) -> None:
    page = phone.open("/")
    turn_on(page)
    deliver(
        phone,
        page,
        {"kind": "question", "skill": "<b>x", "run": "../../evil", "question": "&choose=0#\u2028", "text": "<i>"},
    )
    (note,) = shown(page)
    assert (note["title"], note["body"]) == ("<b>x has a question", "<i>")
    click(phone, page)
    expect(page.locator("#inbox-note")).to_have_text("This question is closed.")
    assert page.url == f"{phone.url}/"
