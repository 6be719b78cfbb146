"""Signatures of deliveries, judged by the reference library of Standard Webhooks."""

import base64
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from execution.dispatch.signing import key_of, signature_headers

OLD = "whsec_" + base64.b64encode(b"o" * 24).decode()
NEW = "whsec_" + base64.b64encode(b"n" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"x" * 32).decode()


def signed(body: bytes, *secrets: str, message_id: str = "m1") -> dict[str, str]:
    return signature_headers(
        message_id=message_id, timestamp_s=int(time.time()), body=body, keys=[key_of(secret) for secret in secrets]
    )


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner)), st.binary(min_size=1))
def test_the_reference_library_accepts_every_body_and_key(payload: object, key: bytes) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    body = json.dumps(payload).encode()
    assert Webhook(secret).verify(body, signed(body, secret)) == payload


def test_the_known_vector_of_the_specification_comes_out() -> None:
    found = signature_headers(
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp_s=1614265330,
        body=b'{"test": 2432232314}',
        keys=[key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")],
    )
    assert found["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_while_a_secret_is_rotated_both_the_old_and_the_new_one_verify_and_no_other() -> None:
    headers = signed(b"{}", NEW, OLD)
    assert len(headers["webhook-signature"].split(" ")) == 2
    for secret in (OLD, NEW):
        Webhook(secret).verify(b"{}", headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(b"{}", headers)


@pytest.mark.parametrize("changed", [{"webhook-id": "m2"}, {"webhook-timestamp": str(int(time.time()) + 1)}])
def test_a_signature_covers_the_id_and_the_time_as_well(changed: dict[str, str]) -> None:
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(b"{}", signed(b"{}", NEW) | changed)


@pytest.mark.parametrize("secret", ["", "bm90IGEgc2VjcmV0", "whsec_", "whsec_===", "whsec_not base64!", "WHSEC_bm8="])
def test_what_is_no_signing_secret_is_refused_without_being_repeated(secret: str) -> None:
    with pytest.raises(ValueError, match="signing secret") as refused:
        key_of(secret)
    assert not secret or secret.removeprefix("whsec_").strip("=") == "" or secret not in str(refused.value)


def test_a_secret_may_come_without_its_padding() -> None:
    assert key_of("whsec_bm8") == key_of("whsec_bm8=") == b"no"
