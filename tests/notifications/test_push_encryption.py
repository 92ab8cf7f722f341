"""The encryption of pushes is that of RFC 8291: its own example, and what a browser can read."""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography.hazmat.primitives.asymmetric import ec

from askback.notifications.channels.push_encryption import MAX_BYTES, Recipient, ServerKey, encrypted
from support.push_service import bytes_of, decrypted, signed_claims, text_of

# RFC 8291, section 5 and appendix A.
MESSAGE = b"When I grow up, I want to be a watermelon"
SENDER = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
BROWSER = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"
BROWSER_POINT = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
AUTH = "BTBZMqHH6r4Tts7J_aSIgg"
SALT = "DGv6ra1nlYgDCS1FRnbzlw"
BODY = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl"
    "7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
)


def key_of(text: str) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(bytes_of(text), "big"), ec.SECP256R1())


def test_the_example_of_the_rfc_is_encrypted_as_there() -> None:
    recipient = Recipient.of(BROWSER_POINT, AUTH)
    assert text_of(encrypted(MESSAGE, recipient, key=key_of(SENDER), salt=bytes_of(SALT))) == BODY
    assert decrypted(bytes_of(BODY), key_of(BROWSER), bytes_of(AUTH)) == MESSAGE


def test_every_message_has_a_key_of_its_own_and_fits() -> None:
    recipient, message = Recipient.of(BROWSER_POINT, AUTH), b"x" * MAX_BYTES
    one, other = encrypted(message, recipient), encrypted(message, recipient)
    assert one[:86] != other[:86]
    assert len(one) <= 4096
    assert decrypted(one, key_of(BROWSER), bytes_of(AUTH)) == message


def test_the_key_of_the_server_follows_from_its_secret() -> None:
    now = datetime.now(UTC)
    key, same = (ServerKey(secret="a secret", contact="mailto:ops@example.com") for _ in range(2))
    assert key.public == same.public
    assert key.public != ServerKey(secret="another", contact="").public
    claims, public = signed_claims(key.authorization("https://push.example.com:8443/a/b?c", now))
    assert public == key.public
    assert claims["aud"] == "https://push.example.com:8443"
    assert "a secret" not in repr(key)
