"""What may be a webhook: which addresses are public, what is refused at once, and what is shown of an address."""

from __future__ import annotations

import pytest

from askback.core.webhooks import Webhook, WebhookKind, is_public, webhook_problems

PRIVATE = [
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%lo",
    "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
    "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::1", "2002:7f00:1::", "2002:c0a8:101::1",
    "2001:db8::1", "2001::1", "100::1",
]  # fmt: skip
PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
GOOD_SECRET = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ="


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_of_our_own_networks_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "", "example.com/hook", "ftp://example.com/", "file:///etc/passwd", "https://", "https:///path",
        "https://user:pass@example.com/", "https://exa mple.com/", "https://example.com/\r\nX: y", "https://é.example/",
        "https://example.com:99999/", "https://[::1/", "http://127.0.0.1/", "http://[::ffff:127.0.0.1]:80/",
    ],
)  # fmt: skip
def test_an_unfit_address_is_refused_by_its_path(url: str) -> None:
    (problem,) = webhook_problems(Webhook(url=url), "webhooks.0", allow_private=False)
    assert problem.startswith("webhooks.0.url: ")


def test_a_private_address_may_be_allowed() -> None:
    assert webhook_problems(Webhook(url="http://127.0.0.1:8080/hook"), "webhooks.0", allow_private=True) == []


@pytest.mark.parametrize(
    ("kind", "secret", "fits"),
    [
        ("standard", None, True),
        ("standard", GOOD_SECRET, True),
        ("standard", GOOD_SECRET.removeprefix("whsec_"), False),
        ("standard", "whsec_c2hvcnQ=", False),
        ("standard", "whsec_no base64!", False),
        ("ntfy", "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2", True),
        ("ntfy", "tk\nX-Header: no", False),
        ("slack", None, True),
        ("slack", GOOD_SECRET, False),
    ],
)
def test_a_secret_fits_its_kind_or_is_refused(kind: str, secret: str | None, fits: bool) -> None:
    hook = Webhook(url="https://example.com/topic", secret=secret, kind=WebhookKind(kind))
    found = webhook_problems(hook, "w", allow_private=False)
    assert (found == []) is fits
    assert secret is None or not any(secret in problem for problem in found)


@pytest.mark.parametrize(
    ("kind", "url", "shown"),
    [
        ("standard", "https://example.com:8443/hook?key=s3cret", "https://example.com:8443/hook?…"),
        ("standard", "https://example.com/hook", "https://example.com/hook"),
        ("ntfy", "https://ntfy.sh/my-secret-topic", "https://ntfy.sh/…"),
        ("slack", "https://hooks.slack.com/services/T0/B0/XXX", "https://hooks.slack.com/…"),
    ],
)
def test_what_is_shown_of_an_address_holds_no_secret(kind: str, url: str, shown: str) -> None:
    hook = Webhook(url=url, secret=GOOD_SECRET, kind=WebhookKind(kind))
    assert hook.shown_url == shown
    assert url not in repr(hook)
    assert GOOD_SECRET not in repr(hook)
