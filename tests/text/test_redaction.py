"""Known secrets do not get through, in any form an engine is likely to print them in."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.text.redaction import MASK, Redactor, answer_secrets

SECRET = 'sk-live/0+"äß" 1234?'


def basic_auth(secret: str) -> str:
    return base64.b64encode(f"user:{secret}".encode()).decode()


@pytest.mark.parametrize(
    "form",
    [
        str,
        quote,
        lambda secret: json.dumps(secret)[1:-1],
        lambda secret: secret.encode().hex(),
        lambda secret: secret.encode().hex().upper(),
    ],
    ids=["plain", "url", "json", "hex", "upper hex"],
)
def test_a_secret_is_masked_and_the_text_around_it_is_kept(form: object) -> None:
    text = f"before {form(SECRET)} after"
    assert Redactor([SECRET]).text(text) == f"before {MASK} after"
    assert Redactor([SECRET]).line(text.encode()) == f"before {MASK} after".encode()


@given(st.text(min_size=8), st.binary(max_size=5), st.binary(max_size=5), st.booleans())
def test_a_secret_is_masked_in_base64_at_every_offset(secret: str, before: bytes, after: bytes, url: bool) -> None:
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


# Escapes.


def escapes_of(character: str) -> list[str]:
    """Every way in which JSON may write a character within a string."""
    units = character.encode("utf-16-be")
    numbers = [int.from_bytes(units[place : place + 2]) for place in range(0, len(units), 2)]
    forms = ["".join(f"\\u{number:04x}" for number in numbers), "".join(f"\\u{number:04X}" for number in numbers)]
    short = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}
    if character in short:
        forms.append(short[character])
    if character not in '"\\' and character >= " ":
        forms.append(character)
    return forms


SECRETS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=8, max_size=40)


@given(SECRETS, st.data())
def test_no_way_of_escaping_gets_a_secret_through(secret: str, data: st.DataObject) -> None:
    spelled = "".join(data.draw(st.sampled_from(escapes_of(character))) for character in secret)
    line = f'{{"text": "a {spelled} z"}}'
    assert json.loads(line)["text"] == f"a {secret} z"
    masked = Redactor([secret]).line(line.encode())
    assert MASK.encode() in masked
    assert b"\n" not in masked
    assert MASK in Redactor([secret]).text(f"a {spelled} z")


@given(SECRETS, st.data())
def test_no_way_of_percent_encoding_gets_a_secret_through(secret: str, data: st.DataObject) -> None:
    def forms(character: str) -> list[str]:
        encoded = "".join(f"%{byte:02X}" for byte in character.encode())
        return [encoded, encoded.lower(), *([] if character == "%" else [character])]

    hidden = "".join(data.draw(st.sampled_from(forms(character))) for character in secret)
    assert unquote(hidden) == secret
    assert MASK in Redactor([secret]).text(f"https://example.org/?key={hidden}&more=1")
    assert MASK.encode() in Redactor([secret]).line(f"key={hidden}".encode())


@given(SECRETS, st.integers(min_value=1, max_value=3))
def test_json_within_json_does_not_get_a_secret_through(secret: str, depth: int) -> None:
    spelled = "".join(escapes_of(character)[0] for character in secret)
    for _ in range(depth):
        spelled = json.dumps(spelled)[1:-1]
    assert MASK.encode() in Redactor([secret]).line(spelled.encode())


@given(SECRETS, st.data())
def test_escaped_base64_does_not_get_a_secret_through(secret: str, data: st.DataObject) -> None:
    encoded = base64.b64encode(secret.encode()).decode()
    spelled = "".join(data.draw(st.sampled_from(escapes_of(character))) for character in encoded)
    assert MASK.encode() in Redactor([secret]).line(spelled.encode())


@given(st.text())
def test_a_text_without_secrets_is_kept_as_it_is(text: str) -> None:
    redactor = Redactor(["9c51d2e84b607f3a", "a much longer secret"])
    assert redactor.text(text) == text
    line = json.dumps(text).encode()
    assert redactor.line(line) == line


# Answers.


def test_an_answer_is_also_masked_without_the_space_around_it_and_line_by_line() -> None:
    answers = answer_secrets(["  hunter2 \n", {"key": "-----BEGIN-----\nabcdefghijkl\n}\n", "pin": [4711]}, None])
    redactor = Redactor([], answers)
    assert redactor.text("it is hunter2, or 4711") == f"it is {MASK}, or {MASK}"
    assert redactor.text("first abcdefghijkl, then }") == f"first {MASK}, then }}"


def test_an_answer_is_masked_from_four_characters_on_and_also_as_a_number() -> None:
    redactor = Redactor([], answers=["4711", "abc"])
    assert redactor.value({"pin": 4711, "said": ["it is 4711", "abc"]}) == {
        "pin": MASK,
        "said": [f"it is {MASK}", "abc"],
    }
