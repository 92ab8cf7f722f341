"""Known secrets do not get through, in any form an engine is likely to print them in."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.core.secrets import MASK, Redactor

SECRET = 'sk-live/0+"äß" 1234?'


def basic_auth(secret: str) -> str:
    return base64.b64encode(f"user:{secret}".encode()).decode()


@pytest.mark.parametrize("form", [str, quote, lambda secret: json.dumps(secret)[1:-1]], ids=["plain", "url", "json"])
def test_a_secret_is_masked_and_what_stands_around_it_is_kept(form: object) -> None:
    text = f"before {form(SECRET)} after"
    assert Redactor([SECRET]).text(text) == f"before {MASK} after"
    assert Redactor([SECRET]).line(text.encode()) == f"before {MASK} after".encode()


@given(st.text(min_size=8), st.binary(max_size=5), st.binary(max_size=5), st.booleans())
def test_a_secret_is_masked_in_base64_wherever_it_stands(secret: str, before: bytes, after: bytes, url: bool) -> None:
    secret = secret.encode(errors="replace").decode()
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    text = encode(before + secret.encode() + after).decode()
    assert MASK in Redactor([secret]).text(text)


def test_a_secret_in_basic_authorization_is_masked() -> None:
    assert MASK in Redactor([SECRET]).text(f"Authorization: Basic {basic_auth(SECRET)}")


def test_a_secret_that_begins_with_another_is_masked_whole() -> None:
    assert Redactor(["12345678", "12345678-abc"]).text("12345678-abc 12345678") == f"{MASK} {MASK}"


def test_what_is_too_short_to_be_a_secret_is_kept() -> None:
    assert Redactor(["", "short"]).text("short and sweet") == "short and sweet"
    assert Redactor([]).line(b"\xff\n") == b"\xff\n"


def test_bytes_that_are_no_text_are_kept() -> None:
    assert Redactor([SECRET]).line(b"\xff " + SECRET.encode() + b" \xfe") == b"\xff " + MASK.encode() + b" \xfe"


def test_a_secret_that_is_no_text_is_masked_too() -> None:
    raw = b"\xffsecret\xfe-bytes"
    redactor = Redactor([raw.decode(errors="surrogateescape")])
    assert redactor.line(b"x " + raw) == b"x " + MASK.encode()
    assert redactor.text(raw.decode(errors="surrogateescape")) == MASK
